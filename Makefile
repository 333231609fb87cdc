# Every target makes what it needs. `make` alone says what there is.

PORT ?= 8000
MESSAGES ?= 50000
# What depends on the database, and those who are asked.
BENCH_POSTGRESQL = tools_list query_records own_queryset get_record aggregate_records update_record fast sdk sdk_token
TEST_ENVIRONMENTS = .venv/.installed tests/node_modules/.installed chromium

# The first interpreter of a list that runs, is new enough and can make virtual environments. pyenv's shims exist for
# versions that do not run, hence the trial; its versions are found although none of them is on the PATH.
PYENV_PYTHONS = $$(ls -d "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.*/bin/python3 2>/dev/null | sort -rV)
find_python = $(shell for python in $(2) $(PYENV_PYTHONS); do \
	"$$python" -c "import sys, ensurepip, sqlite3, ssl; sys.exit(sys.version_info < ($(1)))" 2>/dev/null \
	&& echo "$$python" && break; done)

# The oldest Python with the oldest Django, and the newest with the newest: what lies between is covered by both.
PYTHON ?= $(call find_python,(3,11),python3.11 python3.12 python3.13 python3.14 python3)
PYTHON_DEMO ?= $(or $(PYTHON_DJANGO6),$(PYTHON))
PYTHON_DJANGO6 ?= $(call find_python,(3,12),python3.14 python3.13 python3.12 python3)

# What the environments of the tests have; the exact versions are in requirements/.
DJANGO5 = . --group dev --group docs --group example --group packages --group packages-django5 "django~=5.2.0"
DJANGO6 = . --group dev --group example --group packages "django>=6,<7"
LOWEST = ".[xlsx,daphne,redis,uvicorn]" django-filter httpx2 hypothesis jsonschema pillow pytest pytest-asyncio pytest-django
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check
# The first that knows dependency groups.
PIP = "pip>=25.1"
# The protocol, each kind of method through the endpoint, the check of tokens, the system checks; and what Channels and
# REST framework do.
LOWEST_TESTS = tests/unit/protocol tests/unit/server/test_kernel.py tests/unit/tools/test_query_records.py \
	tests/unit/tools/test_function_tools.py tests/unit/resources/test_function_resources.py \
	tests/unit/resources/test_model_resources.py tests/unit/resources/test_prompts.py tests/unit/oauth/test_bearer.py \
	tests/unit/checks tests/unit/rest tests/unit/subscriptions tests/unit/transports/http tests/unit/test_asgi.py

# The tests of the gate: docs/audit.md says what that is.
GATE_TESTS = tests/unit/oauth/test_bearer.py tests/unit/oauth/test_token_query.py tests/unit/oauth/test_resource_urls.py tests/unit/test_signin.py \
	tests/unit/test_scopes.py tests/unit/context/test_admin_page.py tests/unit/context/test_call_restrictions.py \
	tests/unit/context/test_confirmation*.py \
	tests/unit/exposures tests/unit/emulation/test_admin_actions.py tests/unit/emulation/test_admin_exposure.py \
	tests/unit/differences/test_bulk_writes.py tests/unit/differences/test_named_rows.py \
	tests/unit/differences/test_write_calls.py tests/unit/emulation/test_list_filters.py \
	tests/unit/emulation/test_saving.py tests/unit/schema/test_secrets*.py tests/unit/orm/test_access*.py \
	tests/unit/orm/aggregates tests/unit/orm/test_allowed_filters*.py tests/unit/orm/test_columns*.py \
	tests/unit/orm/test_compiled_queries_switch.py tests/unit/orm/test_computed_columns.py \
	tests/unit/orm/test_conditions*.py tests/unit/orm/test_hidden_parts.py \
	tests/unit/orm/test_named_filters.py tests/unit/orm/test_ordering.py tests/unit/orm/test_path.py \
	tests/unit/orm/test_permission_queries.py tests/unit/orm/test_prefetch.py tests/unit/orm/test_row_finder.py \
	tests/unit/tools tests/behaviour/test_related_filters.py
# Its modules, for coverage.
GATE = $$(.venv/bin/python -m tests.gate)
# What is measured stands in pyproject.toml.
COVERED_BY = tests/unit/protocol $(GATE_TESTS)

.PHONY: help demo test test-all test-quick lowest coverage gate installed lock chromium lint docs bench evals fuzz fixture-server clean

help:
	@echo "make demo            the example project with its data on http://127.0.0.1:$(PORT) (PORT=N)"
	@echo "make test            every test on Django 5.2, and the same modules on Django 6 with one of the databases"
	@echo "make test-all        every test on both, with SQLite, PostgreSQL and MariaDB"
	@echo "make test-quick      what to run while working: one Django, no servers"
	@echo "make lowest          some tests, on the lowest versions that pyproject.toml allows"
	@echo "make coverage        the tests of the protocol and of the gate, which run each of their lines and branches"
	@echo "make gate            the tests of the gate, and what of its modules they run: see docs/audit.md"
	@echo "make lock            renews the exact versions of the test environments, in requirements/"
	@echo "make chromium        installs the browser of the tests where it is missing (Debian, as root)"
	@echo "make lint            ruff and mypy"
	@echo "make docs            the documentation site, in build/docs; a link that leads nowhere is an error"
	@echo "make bench           measures, prints a table and writes it as JSON"
	@echo "make evals           asks the example shop 120 questions, and writes evals/RESULTS.md"
	@echo "make fuzz            sends the server 50,000 mutated messages of each era (MESSAGES=N)"
	@echo "make fixture-server  the project that the conformance suite runs against (PORT=N)"
	@echo "make clean           removes all that these made"

demo: .venv-demo/.installed
	@PORT=$(PORT) .venv-demo/bin/python manage.py demo

# PYTEST="-x -k oauth" are options of the long runs, in place of their own.
test: installed
	@.venv/bin/python -m tests.parts $(if $(PYTHON_DJANGO6),,--without-django6)

test-all: installed
	@.venv/bin/python -m tests.parts --all $(if $(PYTHON_DJANGO6),,--without-django6)

test-quick: .venv/.installed
	@.venv/bin/python -m tests.parts --quick

lowest: .venv-lowest/.installed
	@.venv-lowest/bin/python -m pytest -q $(LOWEST_TESTS)

coverage: .venv/.installed
	@rm -f .coverage .coverage.*
	@.venv/bin/python -m coverage run -m pytest -q -n 2 $(COVERED_BY)
	@.venv/bin/python -m coverage combine --quiet
	@.venv/bin/python -m coverage report

gate: .venv/.installed
	@rm -f .coverage .coverage.*
	@.venv/bin/python -m coverage run --include=$(GATE) -m pytest -q $(GATE_TESTS)
	@.venv/bin/python -m coverage combine --quiet
	@.venv/bin/python -m coverage report --include=$(GATE) --no-skip-covered

# In bare environments: those of the tests may refuse what is new in pyproject.toml until this is done.
lock:
	@"$(PYTHON)" -m venv --clear .venv-lock && .venv-lock/bin/python $(PIP_INSTALL) $(PIP)
	@.venv-lock/bin/python -m tests.lock django5.txt $(DJANGO5)
	@"$(PYTHON_DJANGO6)" -m venv --clear .venv-lock && .venv-lock/bin/python $(PIP_INSTALL) $(PIP)
	@.venv-lock/bin/python -m tests.lock django6.txt $(DJANGO6)
	@.venv-lock/bin/python -m tests.lock lowest.txt
	@rm -rf .venv-lock

# All that the tests need, installed at the same time.
installed:
	@if [ -n "$(PYTHON_DJANGO6)" ]; then \
		$(MAKE) --no-print-directory -j4 $(TEST_ENVIRONMENTS) .venv-django6/.installed; \
	elif [ -n "$$CI" ]; then \
		echo "Django 6 needs Python 3.12 or newer, and there is none." >&2; exit 1; \
	else \
		echo "== Skipped: Django 6 needs Python 3.12 or newer, and there is none."; \
		$(MAKE) --no-print-directory -j3 $(TEST_ENVIRONMENTS); \
	fi

lint: .venv/.installed
	@failed=; \
	.venv/bin/ruff check . || failed=1; \
	.venv/bin/ruff format --check . || failed=1; \
	.venv/bin/mypy || failed=1; \
	test -z "$$failed"

docs: .venv/.installed
	@.venv/bin/python -m sphinx --fail-on-warning --keep-going --quiet -d build/doctrees docs build/docs
	@echo "The documentation is in build/docs/index.html"

bench: .venv/.installed
	@.venv/bin/python -m benchmarks
	@.venv/bin/python -m benchmarks --database postgresql --json build/benchmarks-postgresql.json --only $(BENCH_POSTGRESQL)

evals: .venv/.installed tests/node_modules/.installed
	@.venv/bin/python -m evals

fuzz: .venv/.installed
	@FUZZ_MESSAGES=$(MESSAGES) .venv/bin/python -m pytest -v tests/fuzz/test_core.py tests/fuzz/test_http.py tests/fuzz/test_stdio.py

fixture-server: .venv/.installed
	@.venv/bin/python -m tests.conformance_project --port $(PORT)

# Only what the example needs, which is a third of what the tests need.
.venv-demo/.installed: pyproject.toml
	@test -n "$(PYTHON_DEMO)" || { echo "No Python 3.11 or newer was found; name one with PYTHON=..." >&2; exit 1; }
	@echo "== Installing Django and the packages of the demo into .venv-demo (about half a minute)"
	@"$(PYTHON_DEMO)" -m venv --clear .venv-demo
	@.venv-demo/bin/python $(PIP_INSTALL) $(PIP)
	@.venv-demo/bin/python $(PIP_INSTALL) -e . --group example
	@touch $@

.venv/.installed: pyproject.toml requirements/django5.txt
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer was found; name one with PYTHON=..." >&2; exit 1; }
	@echo "== Making .venv with $(PYTHON)"
	"$(PYTHON)" -m venv --clear .venv
	.venv/bin/python $(PIP_INSTALL) $(PIP)
	.venv/bin/python $(PIP_INSTALL) -c requirements/django5.txt -e $(DJANGO5)
	@touch $@

.venv-django6/.installed: pyproject.toml requirements/django6.txt
	@echo "== Making .venv-django6 with $(PYTHON_DJANGO6)"
	"$(PYTHON_DJANGO6)" -m venv --clear .venv-django6
	.venv-django6/bin/python $(PIP_INSTALL) $(PIP)
	.venv-django6/bin/python $(PIP_INSTALL) -c requirements/django6.txt -e $(DJANGO6)
	@touch $@

.venv-lowest/.installed: pyproject.toml requirements/lowest.txt
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer was found; name one with PYTHON=..." >&2; exit 1; }
	@echo "== Making .venv-lowest with $(PYTHON)"
	"$(PYTHON)" -m venv --clear .venv-lowest
	.venv-lowest/bin/python $(PIP_INSTALL) -c requirements/lowest.txt -e $(LOWEST)
	.venv-lowest/bin/python -m pip check
	@touch $@

# Warnings about the engine are no news: what needs the newer Node runs on the one installed here.
tests/node_modules/.installed: tests/package.json tests/package-lock.json
	@echo "== Installing the Node clients of the tests"
	npm ci --prefix tests --no-audit --no-fund --loglevel=error
	@touch $@

# Without it the tests of the pages are skipped, and fail in CI.
chromium:
	@if test -n "$$CHROMIUM" || { \
		command -v chromium || command -v chromium-browser || command -v google-chrome; \
	} >/dev/null; then \
		:; \
	elif test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
		echo "== Installing Chromium"; \
		apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null \
			|| echo "== Chromium could not be installed." >&2; \
	else \
		echo "== There is no Chromium for the tests of the pages: install it, or name one with CHROMIUM=..."; \
	fi

clean:
	rm -rf .venv .venv-clients .venv-demo .venv-django6 .venv-lock .venv-lowest tests/node_modules build dist media media-exports db.sqlite3* .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
