"""What `make test`, `make test-all` and `make test-quick` run, two parts at a time.

`make test` runs every module on Django 5.2 with SQLite, the data side on Django 6 with PostgreSQL, and the rest on
Django 6 with SQLite. `make test-all` is the product: everything on both. `make test-quick` is what to run while
working: one Django, no servers.

The tests of real servers wait for most of their time, and small parts use one processor: beside others they cost next
to nothing. A part's output is printed when it is over; last comes that of the run that leaves nothing out.
"""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

from tests import postgresql

ROOT = postgresql.ROOT
AT_ONCE = 2
PYTHON, PYTHON_DJANGO6 = ".venv/bin/python", ".venv-django6/bin/python"
# The options of the long runs. Files go to the processes in their order: those of the servers, the longest, first.
PYTEST = os.environ.get("PYTEST", "-n 2 --dist loadfile --no-loadscope-reorder")
# The example project is tested with its own settings, all else with those of the tests.
EXAMPLE = "--ds=example_project.settings " + " ".join(
    f"tests/project/test_example_{name}.py" for name in ("asking", "evals", "project", "reach", "stories", "trials")
)
# The admin's verdicts and the endpoint's are compared there too, and on small admins beside it, in so many cases.
PARITY = "-n 2 --ds=tests.parity.settings --nomigrations tests/behaviour/test_parity.py"
CASES, CASES_DJANGO6 = os.environ.get("PARITY_CASES", "2000"), "400"
# So are the packages of other people, whose migrations take longer than all of their tests.
PACKAGES = f"{postgresql.PACKAGES} tests/behaviour/test_packages_signin.py"
# And a project with several databases.
DATABASES = postgresql.DATABASES
ELSEWHERE = re.findall(r"\S+\.py", f"{EXAMPLE} {PARITY} {PACKAGES} {DATABASES}")
OTHER = f"{PYTEST} {' '.join(f'--ignore={path}' for path in ELSEWHERE)}"
# What touches no Django, and what is about the files of the repository: the run that leaves nothing out has it, on one
# Python, and no other run needs it.
WITHOUT_DJANGO = {
    "unit/protocol": "client_requests content elicitation eras errors headers http inbound legacy legacy_results "
    "messages modern sse subscriptions uri_templates versions wire",
    "fuzz": "core",
    "project": "architecture lock parts reach requirements",
}
ONCE = [f"tests/{room}/test_{name}.py" for room, names in WITHOUT_DJANGO.items() for name in names.split()]
OTHER_DJANGO6 = f"{OTHER} -m 'not e2e' {' '.join(f'--ignore={path}' for path in ONCE)}"
WITHOUT_DATA = f"{OTHER_DJANGO6} {' '.join(f'--ignore={path}' for path in postgresql.FILES)}"
# While working: without servers, packages and what walks over every model or case.
QUICK = f"{PYTEST} -m 'not e2e' tests/unit tests/behaviour tests/requirements tests/project/test_architecture.py"
# The dots of pytest, which tell nothing once a run is over.
PROGRESS = re.compile(r"^[.sxX]*\s*(\[ *\d+%\])?$")


@dataclass(frozen=True)
class Part:
    """A command of its own, with what it adds to the environment."""

    name: str
    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    part: Part
    passed: bool
    output: str
    seconds: float


def pytest(name: str, python: str, options: str, **environment: str) -> Part:
    return Part(name, [python, "-m", "pytest", *shlex.split(options)], environment)


def parts(with_django6: bool, everything: bool = False) -> Iterator[Part]:
    """Give the run that leaves nothing out, and then the others, long ones first."""
    newest = PYTHON_DJANGO6 if with_django6 else PYTHON
    pythons = {"Django 5.2": PYTHON, "Django 6": newest} if with_django6 else {"Django 5.2": PYTHON}
    yield pytest("Django 5.2", PYTHON, OTHER)
    if with_django6:
        yield pytest("Django 6", newest, OTHER_DJANGO6 if everything else WITHOUT_DATA)
    for name in postgresql.PARTS:
        for django, python in pythons.items():
            if python == newest or everything:
                yield Part(f"PostgreSQL, {name}, {django}", [python, "-m", "tests.postgresql", name])
    for django, python in pythons.items():
        cases = CASES if python == PYTHON else CASES_DJANGO6
        yield pytest(f"Parity, {django}", python, PARITY, PARITY_CASES=cases)
        yield pytest(f"Example project, {django}", python, EXAMPLE)
        if python == PYTHON or everything:
            yield pytest(f"Packages, {django}", python, PACKAGES)
            yield pytest(f"Several databases, {django}", python, DATABASES)


def quick() -> Iterator[Part]:
    """Give what runs in a few minutes."""
    ignored = " ".join(f"--ignore={path}" for path in ELSEWHERE)
    yield pytest("Django 5.2, no servers", PYTHON, f"{QUICK} {ignored}")


def run(part: Part) -> Outcome:
    """Run a part to its end, or until it has taken too long."""
    started = time.monotonic()
    # Hundreds of processes import the same modules: what one of them compiles the others read.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with subprocess.Popen(
        part.command,
        cwd=ROOT,
        env=environment | part.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            output, _ = process.communicate(timeout=postgresql.TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            output += f"\n== Not done after {postgresql.TIMEOUT} s\n"
    return Outcome(part, process.returncode == 0, output, time.monotonic() - started)


def show(outcome: Outcome) -> None:
    lines = [line for line in outcome.output.splitlines() if not PROGRESS.match(line)]
    verdict = "passed" if outcome.passed else "FAILED"
    print(f"\n== {outcome.part.name}: {verdict} in {outcome.seconds:.0f} s", *lines, sep="\n", flush=True)


def main(chosen: Iterable[Part]) -> int:
    """Run these parts, whatever becomes of the others, and return the exit status."""
    last, *others = chosen
    print(f"== {len(others) + 1} parts, {AT_ONCE} at a time; the output of each is shown when it is over:", flush=True)
    print(*(f"   {part.name}" for part in (last, *others)), sep="\n", flush=True)
    outcomes = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        closing = pool.submit(run, last)
        try:
            for done in as_completed([pool.submit(run, part) for part in others]):
                outcomes.append(done.result())
                show(outcomes[-1])
            outcomes.append(closing.result())
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    failed = [outcome.part.name for outcome in outcomes if not outcome.passed]
    if failed:
        print(f"\n== Failed: {'; '.join(failed)}", flush=True)
    show(outcomes[-1])
    return 1 if failed else 0


if __name__ == "__main__":
    with_django6 = "--without-django6" not in sys.argv
    sys.exit(main(quick() if "--quick" in sys.argv else parts(with_django6, "--all" in sys.argv)))
