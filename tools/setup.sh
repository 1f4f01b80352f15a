#!/bin/sh
# Makes .venv, whole or not at all. PYTHON names the interpreter where the choice matters; `tools/setup.sh dali`
# also installs DALI, over 400 MB, which only reading ImageNet needs.
#
# The stamp .venv/whole is written last and holds a checksum of everything the environment was made from and what
# it has, so an interrupted set-up is taken for what it is and made again, and one that fits is left alone.
set -eu
cd "$(dirname "$0")/.."

case "${1:-}" in
"" | dali) ;;
*)
    echo "usage: tools/setup.sh [dali], not '$1'" >&2
    exit 2
    ;;
esac

BASE=mpi,digits,report,dev
EXTRAS=$BASE${1:+,$1}
STAMP=.venv/whole

usable() { # a Python that answers, is 3.10 or 3.9, and can make an environment (a pyenv shim may refuse to run)
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] not in ((3, 10), (3, 9)))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ] && usable "$PYTHON"; then
        command -v "$PYTHON"
        return
    fi
    for version in 3.10 3.9; do
        for candidate in "python$version" \
            "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version"*/bin/python \
            "$HOME"/.local/share/uv/python/cpython-"$version"*/bin/python3 \
            /opt/python*"$version"*/bin/python3 /usr/local/bin/"python$version"; do
            if usable "$candidate"; then
                command -v "$candidate"
                return
            fi
        done
    done
    for candidate in python3 python; do
        if usable "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    echo "error: no usable Python 3.9 or 3.10 found, the versions nnabla has wheels for (3.11 and newer have none);" \
        "install one with 'pyenv install 3.10' or 'uv python install 3.10' and run make again" >&2
    return 1
}

mkdir -p .venv
exec 9<.venv
flock 9 # two makes at once: the second waits, then finds the work done

wanted=$(cat setup.py tools/setup.sh constraints/*.txt | cksum)
had=$(cat "$STAMP" 2>/dev/null || true)
case "$had" in
"$wanted $EXTRAS" | "$wanted $EXTRAS,"*) exit 0 ;; # an environment that has more than asked for also fits
esac

rm -f "$STAMP"
if [ "${had% *}" != "$wanted" ]; then # else only extras are missing, and what is there stays
    python=$(find_python)
    echo "setting up .venv with $("$python" --version) ($python)"
    find .venv -mindepth 1 -delete
    "$python" -m venv .venv
fi
version=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
.venv/bin/python -m pip install --quiet --disable-pip-version-check \
    --constraint "constraints/python$version.txt" --editable ".[$EXTRAS]"
echo "$wanted $EXTRAS" >"$STAMP"
