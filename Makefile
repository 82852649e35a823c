# Two commands do everything: `make study` and `make test`. PYTHON chooses the interpreter that makes the environment in VENV.
PYTHON ?= python3
VENV ?= .venv
WORKDIR ?= runs/dk_quick
BIN := $(VENV)/bin

define check-python
fail() { echo "error: $$1; choose another: make $(or $(MAKECMDGOALS),setup) PYTHON=python3.12"; exit 1; } >&2; \
command -v $(PYTHON) > /dev/null || fail "there is no program $(PYTHON)"; \
$(PYTHON) -c 'import sys; sys.exit(3 if sys.version_info < (3, 11) else 0)' > /dev/null 2>&1; \
case $$? in 0) ;; 3) fail "$(PYTHON) is older than Python 3.11" ;; *) fail "$(PYTHON) does not run as Python" ;; esac
endef

.PHONY: setup bench-setup study test lint clean

setup: $(VENV)/.installed

$(VENV)/.installed: requirements.txt setup.py
	@$(check-python)
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

# The other libraries that scripts/benchmark measures against, in an environment of their own (4.4 GB).
bench-setup: .venv-bench/.installed

.venv-bench/.installed: requirements-bench.txt
	@$(check-python)
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
