# The two commands: `make train` and `make test`. Everything else is here to be read.

RANKS ?= 4
CONFIG ?= configs/digits.yaml

# Open MPI refuses root and more ranks than cores unless told; ranks that wait must then yield their core.
export OMPI_ALLOW_RUN_AS_ROOT = 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1
export OMP_NUM_THREADS ?= 1
MPIRUN = .venv/bin/mpirun --map-by :OVERSUBSCRIBE --bind-to none --mca mpi_yield_when_idle 1 --mca osc ^ucx

.PHONY: help setup train bench test lint format clean

help:
	@echo "make train   train ResNet on the digits with $(RANKS) ranks on a 2D torus (RANKS=, CONFIG=)"
	@echo "make bench   time every all-reduce algorithm on $(RANKS) ranks"
	@echo "make test    all tests, those under mpirun included"
	@echo "make lint    style and types"
	@echo "make setup   only the environment, .venv"

setup:
	@tools/setup.sh

train: setup
	$(MPIRUN) -n $(RANKS) .venv/bin/nnabla-torus train $(CONFIG)

bench: setup
	$(MPIRUN) -n $(RANKS) .venv/bin/nnabla-torus bench

test:
	@tools/setup.sh dali
	.venv/bin/python -m pytest

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

format: setup
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
