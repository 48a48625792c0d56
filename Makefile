# make test | test-slow | demo | check | docs | hooks | clean — each makes its own environment in .venv first
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

PAGE := docs/browser/built/facts.json
# a process a core, each with one thread; the tests of a file stay together and share what they set up
TESTS := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile -m "not slow"

.PHONY: install system browser test test-slow demo check docs format hooks clean

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

# a Chromium and axe-core for the report's tests, which are skipped without them
browser:
	@sh scripts/browser.sh
	@sh scripts/axe.sh

# what the page that runs in a visitor's browser needs; left out, with a reason, where npm is missing
$(PAGE): $(STAMP) scripts/browser_page.py leplanner/planner/export.py leplanner/zoo/tworoom/config.json
	$(BIN)/python scripts/browser_page.py

test: install system browser $(PAGE)
	$(TESTS)

test-slow: install system
	$(BIN)/python -m pytest -m slow

demo: install system
	$(BIN)/leplanner demo

check: install system browser docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(TESTS)

docs: install $(PAGE)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

hooks: install
	$(BIN)/pre-commit install

clean:
	rm -rf .venv build dist docs/browser/built *.egg-info
