# Two commands do everything: `make study` and `make test`. PYTHON chooses the interpreter that makes the environment in VENV.
PYTHON ?= python3
VENV ?= .venv
WORKDIR ?= runs/dk_quick
BIN := $(VENV)/bin

.PHONY: setup bench-setup study test lint clean

setup: $(VENV)/.installed

$(VENV)/.installed: requirements.txt setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is older than Python 3.11; choose another: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

# The other libraries that scripts/benchmark measures against, in an environment of their own (4.4 GB).
bench-setup: .venv-bench/.installed

.venv-bench/.installed: requirements-bench.txt
	$(PYTHON) -m venv --clear .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-bench.txt
	@touch $@

study: setup
	$(BIN)/python -m train --config=configs/dk_quick.py --workdir=$(WORKDIR)
	$(BIN)/python scripts/report.py $(WORKDIR)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

clean:
	rm -rf $(VENV) .venv-bench *.egg-info .mypy_cache .pytest_cache .ruff_cache
