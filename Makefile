# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
export OMP_NUM_THREADS := 1
.PHONY: demo test lint docs figures dist screenshots clean browser

demo: $(VENV)/demo.stamp
	$(BIN)/cf2 demo

test: $(VENV)/dev.stamp browser lint
	$(BIN)/python -m pytest -n 2
	$(MAKE) docs

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/dev.stamp
	$(BIN)/sphinx-build -q -W --keep-going docs docs/_build
	@echo "The site is at docs/_build/index.html"

dist: $(VENV)/dev.stamp
	$(BIN)/python -m build -q --outdir dist

figures: $(VENV)/dev.stamp
	$(BIN)/python docs/fill.py

screenshots: $(VENV)/dev.stamp browser
	$(BIN)/python docs/screenshots.py

# The browser tests use the system's Chromium; without it, and without the right to install it, they are skipped.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing Chromium for the browser tests"; \
	  apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y chromium >/dev/null || \
	  echo "Chromium could not be installed: the browser tests will be skipped"; \
	else echo "no Chromium and no right to install it: the browser tests will be skipped"; fi

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/demo.stamp

clean:
	rm -rf $(VENV) dist build docs/_build .pytest_cache .mypy_cache .ruff_cache
