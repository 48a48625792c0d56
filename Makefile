# make test | test-slow | demo | check | clean — each makes its own environment in .venv first
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: install system test test-slow demo check format clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv || sh scripts/venv-without-ensurepip.sh $(PYTHON)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch torchvision
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

# libraries for drawing without a screen; installed when root on Debian, named otherwise
system:
	@sh scripts/system-libraries.sh

test: install system
	$(BIN)/python -m pytest -m "not slow"

test-slow: install system
	$(BIN)/python -m pytest -m slow

demo: install system
	$(BIN)/leplanner demo

check: install system
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python -m pytest -m "not slow"

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv runs build dist *.egg-info
