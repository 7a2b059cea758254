# Everything that a checkout needs. Every target may come first: what it depends on is installed on the way.
#
#   make test PYTHON=python3.13          another interpreter for the virtual environment
#   make test PYTEST_ARGS="-k vector"    only some of the tests
#   make mutants MUTANTS="physics"       only faults of some rooms

PYTHON ?= python3
PIP_ARGS ?=
PYTEST_ARGS ?=
DEMO_ARGS ?= --scenario medium --steps 180000 --episodes 2 --rounds 30 --schedulers agent dssra pipeline random
SEARCHES := dssra zoo:graph
PLANNERS := asteroid pipar titanic xpipe adaptis

# Relative and without spaces, so that the checkout itself may stand in a folder with spaces. Tools run as
# `python -m`: the interpreter lines of scripts in .venv/bin would break in such a folder.
VENV := .venv
STAMP := $(VENV)/.installed
TEST_STAMP := $(VENV)/.installed-test
LINT_STAMP := $(VENV)/.installed-lint
DOCS_STAMP := $(VENV)/.installed-docs
RUN := $(VENV)/bin/python

# The arrays of a round are small: threads of the numerical libraries would only get into each other's way.
test test-slow bench scaling results learning: export OMP_NUM_THREADS = 1
test bench scaling results learning: export OPENBLAS_NUM_THREADS = 1
test bench scaling results learning: export MKL_NUM_THREADS = 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo compile-demo run-demo test check compile-searches compile-planners test-slow mutants lint format bench scaling results learning golden docs docs-serve clean distclean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s  %s\n", $$1, $$2 }' Makefile

install: $(STAMP) $(TEST_STAMP) $(LINT_STAMP) ## Create .venv and install the package with its tools

# $(call install,EXTRA): Python compiles what is imported. Compiling all of every package would double the time.
install = $(RUN) -m pip install --quiet --no-compile --disable-pip-version-check $(PIP_ARGS) --editable ".[$(1)]"

$(STAMP): pyproject.toml
	@echo "== Installing into $(VENV) (once, and after changes of pyproject.toml)"
	@test -x $(RUN) || "$(PYTHON)" -m venv $(VENV)
	@$(call install,plots)
	@touch $@

$(TEST_STAMP): $(STAMP)
	@echo "== Installing what tests need"
	@$(call install,test)
	@touch $@

$(LINT_STAMP): $(TEST_STAMP)
	@echo "== Installing what checks style and types"
	@$(call install,dev)
	@touch $@

# The training takes one core. Meanwhile another compiles what the comparison needs.
demo: $(STAMP) ## Train a scheduler on the medium scenario and compare it with the others
	@$(MAKE) --no-print-directory -j 2 compile-demo run-demo

compile-demo: $(STAMP)
	@$(RUN) -m collapipe_env warm-up --scenarios medium --schedulers dssra zoo:graph > /dev/null 2>&1 || true

run-demo: $(STAMP)
	$(RUN) train_agent.py $(DEMO_ARGS)
	@printf '%s\n' "next, after source $(VENV)/bin/activate:" \
	  "  collapipe view runs/medium-ppo-seed0                        # one page of the run: rounds, charts, tables" \
	  "  collapipe plot runs/medium-ppo-seed0 --style ieee --latex   # figures and a table for a paper" \
	  "  collapipe leaderboard run --scheduler dssra                 # a score on the suite"

# Compiled code is there before the tests begin: all workers would compile the same functions at the same time.
# Of two cores one compiles the searches, the other installs the tests' packages and compiles the planners, on
# a scenario with all processes. Each function is compiled once: neither core comes to one while the other is at it.
test: $(STAMP) ## The fast tests
	@$(MAKE) --no-print-directory -j 2 compile-searches compile-planners
	@echo "== Tests"
	@$(RUN) -m pytest -n auto -m "not slow" --durations 20 --durations-min 2 $(PYTEST_ARGS)

compile-searches: $(STAMP)
	@echo "== Compiling searches (once, and after changes of compiled sources)"
	@$(RUN) -m collapipe_env warm-up --schedulers $(SEARCHES)

compile-planners: $(TEST_STAMP)
	@echo "== Compiling planners"
	@$(RUN) -m collapipe_env warm-up --scenarios small-wild --schedulers $(PLANNERS)

check: ## The fast tests, then style, imports, workflows and types
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory lint

test-slow: $(TEST_STAMP) ## The tests that the fast run leaves out
	@$(RUN) -m pytest -n auto -m slow $(PYTEST_ARGS)

mutants: $(TEST_STAMP) ## Change single lines of the core: each time its tests have to fail (an hour)
	@$(RUN) tests/mutants $(MUTANTS)

lint: $(LINT_STAMP) ## Check style, imports, workflows and types
	@echo "== ruff"
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@echo "== imports"
	@$(RUN) -c "from importlinter.cli import lint_imports_command as lint; lint()" --no-logo
	@echo "== workflows"
	@$(RUN) -m check_jsonschema -q --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(RUN) -m check_jsonschema -q --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	@$(RUN) -m check_jsonschema -q --builtin-schema vendor.dependabot .github/dependabot.yml
	@$(RUN) -m check_jsonschema -q --builtin-schema vendor.citation-file-format CITATION.cff
	@$(VENV)/bin/zizmor --offline --quiet .github
	@echo "== tables of mutants"
	@$(RUN) tests/mutants --check
	@echo "== mypy"
	@$(RUN) -m mypy

format: $(LINT_STAMP) ## Format the sources and fix what can be fixed
	@$(RUN) -m ruff check --fix .
	@$(RUN) -m ruff format .

bench: $(TEST_STAMP) ## Run the benchmarks and hold them against their goals
	$(RUN) benchmarks/step_rate.py
	$(RUN) benchmarks/first_decision.py

scaling: $(TEST_STAMP) ## Measure growth with size, and write it into docs/evidence.md anew (five minutes)
	$(RUN) -m tools.docs evidence/growth

results: $(TEST_STAMP) ## Compare all schedulers and write docs/results.md anew (hours)
	$(RUN) -m tools.docs results

learning: $(TEST_STAMP) ## Train every task on its data and write docs/learning.md anew (an hour)
	$(RUN) -m tools.docs learning

golden: $(TEST_STAMP) ## Write the golden trajectories anew, after an intended change of behaviour
	$(RUN) tests/golden/make_golden.py

$(DOCS_STAMP): $(STAMP)
	@echo "== Installing what builds the documentation"
	@$(RUN) -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) --editable ".[docs]"
	@touch $@

docs: $(DOCS_STAMP) ## Build the documentation as a site in site/
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict
	@echo "the site is in site/index.html, which any browser opens"

docs-serve: $(DOCS_STAMP) ## Show the documentation on http://127.0.0.1:8000 and rebuild it when a page changes
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs serve

clean: ## Remove build outputs and caches
	rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage* coverage.xml
	find . -name __pycache__ -type d -not -path "./$(VENV)/*" -prune -exec rm -rf {} +

distclean: clean ## Remove the virtual environment, too
	rm -rf $(VENV)
