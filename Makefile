# `make demo` and `make test` set everything up; they need Python 3.11 and make.

PYTHON ?= python3
BIN := .venv/bin
SCHEMA := $(BIN)/check-jsonschema --quiet --builtin-schema vendor.
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-all browser lint types format docs dist clean reproduce \
	reproduce-full

help:
	@echo "make demo      install the library and run the demonstration"
	@echo "make test      install the test tools, check style and types, run the tests"
	@echo "make test-all  the same, with the slow tests"
	@echo "make lint      check style, spelling, links and workflows"
	@echo "make types     check types       make docs    build the site"
	@echo "make dist      build and check the wheel and the source distribution"
	@echo "make format    mend style        make clean   remove caches and builds"
	@echo "make reproduce       the paper's tables and figures, quickly"
	@echo "make reproduce-full  the same with all seeds; takes hours"

demo: .venv/.installed
	$(BIN)/python examples/demo.py

# Style takes seconds and comes first. Types take one core for more than a minute, so
# they are checked beside the tests, which then share both cores.
test: .venv/.installed-test
	@$(MAKE) --no-print-directory -j 2 lint browser
	@$(MAKE) --no-print-directory -j 2 types test-quick

test-quick: .venv/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow"

test-all: lint types browser
	$(BIN)/python -m pytest -q

# Tests of the report open it in Chromium, driven by Playwright, which needs libatomic.
# Where they cannot be installed (no root, no apt-get, no network) these tests skip and
# say so; nothing else depends on them.
browser:
	@{ command -v chromium && ldconfig -p | grep libatomic.so.1; } >/dev/null 2>&1 || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && \
	  echo "Installing chromium for the tests of the report" && \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
	    --no-install-recommends chromium libatomic1; } >/dev/null 2>&1; } || true

lint: .venv/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/pymarkdown scan *.md docs/*.md docs/api/*.md
	$(BIN)/python docs/check_links.py
	$(SCHEMA)github-workflows .github/workflows/*
	$(SCHEMA)github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/idea.yml
	$(SCHEMA)dependabot .github/dependabot.yml
	$(SCHEMA)citation-file-format CITATION.cff
	$(BIN)/zizmor --offline --quiet .github

types: .venv/.installed-test
	$(BIN)/mypy

format: .venv/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The site: pages, reference, tutorials and gallery, which run. Warnings are errors.
docs: .venv/.installed-docs
	OMP_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/python -m sphinx -W --keep-going -b html \
	  docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

dist: .venv/.installed-dist
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*

clean:
	rm -rf docs/_build docs/_generated docs/auto_* docs/api/generated
	rm -rf build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Tables that cannot be fetched are left out; set SKNIMO_DATA to a folder that has them.
JOBS ?= 2
REPRODUCE := OMP_NUM_THREADS=1 $(BIN)/python -m experiments --jobs $(JOBS)
QUICK := experiments/results/quick

reproduce: .venv/.installed-bench
	-$(BIN)/python -m experiments.download
	$(REPRODUCE) --quick --out $(QUICK)
	$(BIN)/python -m experiments.report --quick --page $(QUICK)/reproduction.md

reproduce-full: .venv/.installed-bench
	-$(BIN)/python -m experiments.download
	$(REPRODUCE)
	$(BIN)/python -m experiments.report

# The stamps make repeated calls instant; a test installation serves the demo too.
.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing sknimo into .venv"
	@$(PIP) -e ".[cli,onnx,report]"
	@touch $@

.venv/.installed-test: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing sknimo and its test tools into .venv"
	@$(PIP) -e ".[test]"
	@touch .venv/.installed $@

.venv/.installed-bench: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing sknimo and its rivals into .venv"
	@$(PIP) -e ".[bench]"
	@touch .venv/.installed $@

.venv/.installed-docs: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing sknimo and Sphinx into .venv"
	@$(PIP) -e ".[docs]"
	@touch .venv/.installed $@

.venv/.installed-dist: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing the tools of a release into .venv"
	@$(PIP) build twine
	@touch $@

.venv/bin/python:
	$(PYTHON) -m venv .venv
