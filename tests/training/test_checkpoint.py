import shutil
import time

import nnabla as nn
import numpy as np
import pytest

from nnabla_torus.failure import UserError
from nnabla_torus.training import checkpoint as checkpoints
from nnabla_torus.training.checkpoint import Checkpoint

FILES = ["state.json", "parameters.h5", "solver.h5", "ranks.h5", "SHA256SUMS"]


def made(step=3):
    generator = np.random.default_rng(step)
    return Checkpoint(
        state={"step": step, "callbacks": {}},
        parameters={
            "conv/W": generator.standard_normal((2, 3)).astype(np.float32),
            "bn/mean": np.arange(2, dtype=np.float32),
        },
        trainable=frozenset(["conv/W"]),
        solver={"conv/W/m": np.ones((2, 3), np.float32), "conv/W/t": np.array(7, np.uint32)},
        ranks={"statistics": generator.standard_normal((4, 2)).astype(np.float32)},
    )


def tree(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_written_is_read(tmp_path):
    path = checkpoints.write(tmp_path, "step-3", made())
    assert checkpoints.latest(tmp_path) == path == tmp_path / "step-3"
    found = checkpoints.read(path)
    assert found.state["step"] == 3 and found.trainable == {"conv/W"}
    for part in ("parameters", "solver", "ranks"):
        found_arrays, arrays = getattr(found, part), getattr(made(), part)
        assert found_arrays.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(found_arrays[name], array)
            assert found_arrays[name].dtype == array.dtype
    assert sorted(entry.name for entry in path.iterdir()) == sorted(FILES)
    assert not list(tmp_path.glob(".*"))


def test_nnabla_loads_the_parameters(tmp_path):
    path = checkpoints.write(tmp_path, "step-3", made())
    with nn.parameter_scope("", {}):
        nn.load_parameters(str(path / "parameters.h5"))
        loaded = nn.get_parameters(grad_only=False)
        assert list(loaded) == ["conv/W", "bn/mean"]
        assert [variable.need_grad for variable in loaded.values()] == [True, False]
        np.testing.assert_array_equal(loaded["conv/W"].d, made().parameters["conv/W"])


def test_no_checkpoint_is_no_mistake(tmp_path):
    assert checkpoints.latest(tmp_path / "nowhere") is None


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", ["cut", "altered", "missing"])
def test_damage_is_found_in_every_file(tmp_path, file, damage):
    checkpoints.write(tmp_path, "step-2", made(2))
    path = checkpoints.write(tmp_path, "step-3", made())
    data = (path / file).read_bytes()
    if damage == "missing":
        (path / file).unlink()
    else:
        (path / file).write_bytes(data[:-9] if damage == "cut" else data[:40] + bytes([data[40] ^ 1]) + data[41:])
    before = tree(tmp_path)
    with pytest.raises(UserError, match=r"step-3 is damaged: .*; write another one's name into .*latest: step-2$"):
        checkpoints.read(path)
    assert tree(tmp_path) == before


def test_another_format_is_told_apart_from_damage(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "FORMAT", 2)
    path = checkpoints.write(tmp_path, "step-3", made())
    monkeypatch.undo()
    with pytest.raises(UserError, match=r"step-3 has format 2, but this version of nnabla-torus reads 1"):
        checkpoints.read(path)


def test_whole_files_of_something_else_are_told_in_one_line(tmp_path):
    path = checkpoints.write(tmp_path, "step-3", made())
    (path / "state.json").write_text("[]")
    sums = (path / "SHA256SUMS").read_text().splitlines()
    (path / "SHA256SUMS").write_text(
        "\n".join([f"{checkpoints._sum(b'[]')}  state.json", *(line for line in sums if "state.json" not in line)])
    )
    with pytest.raises(UserError, match="not what nnabla-torus writes; train without --resume"):
        checkpoints.read(path)


def test_latest_that_points_nowhere_names_what_is_there(tmp_path):
    checkpoints.write(tmp_path, "step-2", made(2))
    shutil.rmtree(checkpoints.write(tmp_path, "step-3", made()))
    with pytest.raises(UserError, match=r"names 'step-3', which is not there; .*: step-2$"):
        checkpoints.latest(tmp_path)


def test_a_crash_while_writing_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    first = checkpoints.write(tmp_path, "step-2", made(2))
    real, written = checkpoints._write_to_disk, []

    def crash_in_the_third(path, data):
        written.append(path)
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        real(path, data)

    monkeypatch.setattr(checkpoints, "_write_to_disk", crash_in_the_third)
    with pytest.raises(OSError, match="No space"):
        checkpoints.write(tmp_path, "step-3", made())
    assert checkpoints.latest(tmp_path) == first and checkpoints.names(tmp_path) == ["step-2"]
    monkeypatch.undo()
    checkpoints.write(tmp_path, "step-3", made())  # what was left behind is not in the way
    assert checkpoints.names(tmp_path) == ["step-2", "step-3"]


def test_only_the_newest_stay(tmp_path):
    for step in (9, 1, 2, 3):  # 9: of a run that went on from before it
        checkpoints.write(tmp_path, f"step-{step}", made(step))
    checkpoints.remove_old(tmp_path, 2)
    assert checkpoints.names(tmp_path) == ["step-2", "step-3"]


def test_equal_checkpoints_are_equal_files(tmp_path):
    first = tree(checkpoints.write(tmp_path / "first", "step-3", made()))
    time.sleep(1.1)  # HDF5 counts seconds
    assert tree(checkpoints.write(tmp_path / "second", "step-3", made())) == first
