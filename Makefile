# Everything that a checkout needs. Every target may come first: what it depends on is installed on the way.
#
#   make test PYTHON=python3.13          another interpreter for the virtual environment
#   make test PYTEST_ARGS="-k vector"    only some of the tests

PYTHON ?= python3
PIP_ARGS ?=
PYTEST_ARGS ?=
DEMO_ARGS ?= --scenario medium --steps 180000 --episodes 3 --rounds 40
SEARCHES := dssra zoo:graph
PLANNERS := adaptis asteroid flexpipe greedy_dpp pipar splitfed_v2 xpipe

# Relative and without spaces, so that the checkout itself may stand in a folder with spaces. Tools run as
# `python -m`: the interpreter lines of scripts in .venv/bin would break in such a folder.
VENV := .venv
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
RUN := $(VENV)/bin/python

# The arrays of a round are small: threads of the numerical libraries would only get into each other's way.
test mutants bench scaling results learning: export OMP_NUM_THREADS = 1
test bench scaling results learning: export OPENBLAS_NUM_THREADS = 1
test bench scaling results learning: export MKL_NUM_THREADS = 1
test-slow docs docs-serve: export OMP_NUM_THREADS = 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo compile-demo run-demo test compile-searches compile-planners test-slow mutants lint format bench scaling results learning golden docs docs-serve clean distclean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s  %s\n", $$1, $$2 }' Makefile

install: $(STAMP) ## Create .venv and install the package with its tools

# Python compiles what is imported. Compiling all of every package beforehand would double the time.
$(STAMP): pyproject.toml
	@echo "== Installing into $(VENV) (once, and after changes of pyproject.toml)"
	@test -x $(RUN) || "$(PYTHON)" -m venv $(VENV)
	@$(RUN) -m pip install --quiet --no-compile --disable-pip-version-check $(PIP_ARGS) --editable ".[dev,plots]"
	@touch $@

# The training takes one core. Meanwhile another compiles what the comparison needs.
demo: $(STAMP) ## Train a scheduler on the medium scenario and compare it with the others
	@$(MAKE) --no-print-directory -j 2 compile-demo run-demo

compile-demo: $(STAMP)
	@$(RUN) -m collapipe_env warm-up --scenarios medium --schedulers dssra zoo:graph > /dev/null 2>&1 || true

run-demo: $(STAMP)
	$(RUN) train_agent.py $(DEMO_ARGS)

# Compiled code is there before the tests begin: both workers would compile the same functions at the same time.
# Of two cores one compiles the searches, the other lints and then compiles the planners of the baselines.
test: $(STAMP) ## Lint, then the fast tests
	@$(MAKE) --no-print-directory -j 2 compile-searches compile-planners
	@echo "== Tests"
	@$(RUN) -m pytest -n 2 -m "not slow" $(PYTEST_ARGS)

compile-searches: $(STAMP)
	@echo "== Compiling searches (once, and after changes of compiled sources)"
	@$(RUN) -m collapipe_env warm-up --schedulers $(SEARCHES)

compile-planners: lint
	@echo "== Compiling planners"
	@$(RUN) -m collapipe_env warm-up --schedulers $(PLANNERS)

test-slow: $(STAMP) ## The tests that the fast run leaves out
	@$(RUN) -m pytest -m slow $(PYTEST_ARGS)

mutants: $(STAMP) ## Change single lines of the core: each time its tests have to fail (an hour)
	@$(RUN) tests/mutants $(MUTANTS)

lint: $(STAMP) ## Check style, format and types
	@echo "== ruff check"
	@$(RUN) -m ruff check .
	@echo "== ruff format"
	@$(RUN) -m ruff format --check .
	@echo "== mypy"
	@$(RUN) -m mypy

format: $(STAMP) ## Format the sources and fix what can be fixed
	@$(RUN) -m ruff check --fix .
	@$(RUN) -m ruff format .

bench: $(STAMP) ## Run the benchmarks and hold them against their goals
	$(RUN) benchmarks/step_rate.py
	$(RUN) benchmarks/first_decision.py

scaling: $(STAMP) ## Measure peers and growth with size, and write docs/scaling.md anew (five minutes)
	$(RUN) benchmarks/peers.py
	$(RUN) -m tools.docs scaling

results: $(STAMP) ## Compare all schedulers and write docs/results.md anew (hours)
	$(RUN) -m tools.docs results

learning: $(STAMP) ## Train every task on its data and write docs/learning.md anew (an hour)
	$(RUN) -m tools.docs learning

golden: $(STAMP) ## Write the golden trajectories anew, after an intended change of behaviour
	$(RUN) tests/golden/make_golden.py

$(DOCS_STAMP): pyproject.toml $(STAMP)
	@echo "== Installing what builds the documentation"
	@$(RUN) -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) --editable ".[docs]"
	@touch $@

docs: $(DOCS_STAMP) ## Build the documentation as a site in site/, with the notebooks run
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict
	@echo "the site is in site/index.html, which any browser opens"

docs-serve: $(DOCS_STAMP) ## Show the documentation on http://127.0.0.1:8000 and rebuild it when a page changes
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs serve

clean: ## Remove build outputs and caches
	rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -not -path "./$(VENV)/*" -prune -exec rm -rf {} +

distclean: clean ## Remove the virtual environments, too
	rm -rf $(VENV) benchmarks/.peers
