# Every target makes what it needs. `make` alone says what there is.

PORT ?= 8000
MESSAGES ?= 50000
# Options of every pytest run, such as PYTEST="-x -k oauth".
PYTEST ?= -n 2 --dist loadfile
# The example project is tested with its own settings, all else with those of the tests.
EXAMPLE_TESTS = --ds=example_project.settings tests/test_example_project.py tests/test_example_stories.py
# The admin's verdicts and the endpoint's are compared there too, and on small admins beside it, in so many cases.
PARITY_CASES ?= 2000
PARITY_TESTS = -n 2 --ds=tests.parity.settings tests/test_parity.py
# So are the packages of other people, whose migrations take longer than all of their tests.
PACKAGES_TESTS = --ds=tests.packages_project.settings --nomigrations tests/test_packages.py tests/test_packages_databases.py tests/test_packages_signin.py
# And a project with several databases.
DATABASES_TESTS = --ds=tests.databases_project.settings --nomigrations tests/test_many_databases.py
OTHER_TESTS = --ignore=tests/test_example_project.py --ignore=tests/test_example_stories.py --ignore=tests/test_parity.py --ignore=tests/test_packages.py \
	--ignore=tests/test_packages_databases.py --ignore=tests/test_packages_signin.py --ignore=tests/test_many_databases.py

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

.PHONY: help demo test test-main test-django6 lint bench fuzz fixture-server clean

help:
	@echo "make demo            the example project with its data on http://127.0.0.1:$(PORT) (PORT=N)"
	@echo "make test            every test, on Django 5.2 and on Django 6"
	@echo "make lint            ruff and mypy"
	@echo "make bench           measures, prints a table and writes it as JSON"
	@echo "make fuzz            sends the server 50,000 mutated messages of each era (MESSAGES=N)"
	@echo "make fixture-server  the project that the conformance suite runs against (PORT=N)"
	@echo "make clean           removes all that these made"

demo: .venv-demo/.installed
	@PORT=$(PORT) .venv-demo/bin/python manage.py demo

# Django 6 first: the closing line is then that of the run that leaves nothing out.
test: .venv/.installed tests/node_modules/.installed
	@failed=; \
	$(MAKE) --no-print-directory test-django6 || failed=1; \
	$(MAKE) --no-print-directory test-main || failed=1; \
	test -z "$$failed"

test-main: .venv/.installed tests/node_modules/.installed
	@echo "== $$(.venv/bin/python --version), Django $$(.venv/bin/django-admin --version)"
	@failed=; \
	.venv/bin/python -m pytest $(EXAMPLE_TESTS) || failed=1; \
	PARITY_CASES=$(PARITY_CASES) .venv/bin/python -m pytest $(PARITY_TESTS) || failed=1; \
	.venv/bin/python -m pytest $(PACKAGES_TESTS) || failed=1; \
	.venv/bin/python -m pytest $(DATABASES_TESTS) || failed=1; \
	.venv/bin/python -m tests.postgresql || failed=1; \
	.venv/bin/python -m pytest $(PYTEST) $(OTHER_TESTS) || failed=1; \
	test -z "$$failed"

test-django6:
	@python="$(PYTHON_DJANGO6)"; \
	if [ -n "$$python" ]; then \
		$(MAKE) --no-print-directory PYTHON_DJANGO6="$$python" .venv-django6/.installed && \
		echo "== $$(.venv-django6/bin/python --version), Django $$(.venv-django6/bin/django-admin --version)" && \
		.venv-django6/bin/python -m pytest $(EXAMPLE_TESTS) && \
		PARITY_CASES=400 .venv-django6/bin/python -m pytest $(PARITY_TESTS) && \
		.venv-django6/bin/python -m pytest $(PACKAGES_TESTS) && \
		.venv-django6/bin/python -m pytest $(DATABASES_TESTS) && \
		.venv-django6/bin/python -m pytest $(PYTEST) $(OTHER_TESTS) -m "not e2e"; \
	elif [ -n "$$CI" ]; then \
		echo "Django 6 needs Python 3.12 or newer, and there is none." >&2; exit 1; \
	else \
		echo "== Skipped: Django 6 needs Python 3.12 or newer, and there is none."; \
	fi

lint: .venv/.installed
	@failed=; \
	.venv/bin/ruff check . || failed=1; \
	.venv/bin/ruff format --check . || failed=1; \
	.venv/bin/mypy || failed=1; \
	test -z "$$failed"

bench: .venv/.installed
	@.venv/bin/python -m benchmarks

fuzz: .venv/.installed
	@FUZZ_MESSAGES=$(MESSAGES) .venv/bin/python -m pytest -v tests/test_fuzz_core.py tests/test_fuzz_http.py tests/test_fuzz_stdio.py

fixture-server: .venv/.installed
	@.venv/bin/python -m tests.conformance_project --port $(PORT)

# Only what the example needs, which is a third of what the tests need.
.venv-demo/.installed: pyproject.toml
	@test -n "$(PYTHON_DEMO)" || { echo "No Python 3.11 or newer was found; name one with PYTHON=..." >&2; exit 1; }
	@echo "== Installing Django and the packages of the demo into .venv-demo (about half a minute)"
	@"$(PYTHON_DEMO)" -m venv --clear .venv-demo
	@.venv-demo/bin/python -m pip install --quiet --disable-pip-version-check -e ".[example]"
	@touch $@

.venv/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer was found; name one with PYTHON=..." >&2; exit 1; }
	@echo "== Making .venv with $(PYTHON)"
	"$(PYTHON)" -m venv --clear .venv
	.venv/bin/python -m pip install --progress-bar on -e ".[dev,example,packages,packages-django5]" "django~=5.2.0"
	@touch $@

.venv-django6/.installed: pyproject.toml
	@echo "== Making .venv-django6 with $(PYTHON_DJANGO6)"
	"$(PYTHON_DJANGO6)" -m venv --clear .venv-django6
	.venv-django6/bin/python -m pip install --progress-bar on -e ".[dev,example,packages]" "django>=6,<7"
	@touch $@

# Warnings about the engine are no news: what needs the newer Node runs on the one installed here.
tests/node_modules/.installed: tests/package.json tests/package-lock.json
	@echo "== Installing the Node clients of the tests"
	npm ci --prefix tests --no-audit --no-fund --loglevel=error
	@touch $@

clean:
	rm -rf .venv .venv-clients .venv-demo .venv-django6 tests/node_modules build dist media db.sqlite3* .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
