"""What `make test`, `make test-all` and `make test-quick` run, three parts at a time.

`make test` runs every module on Django 5.2 with SQLite, the data side on Django 6 with PostgreSQL and with MariaDB, and
the rest on Django 6 with SQLite, each with some of the cases that are alike; of the data side each case runs on one of
the databases that are there; of the rest every case runs on Django 5.2 and half of them on Django 6. `make test-all` is
the product: everything on both, with all cases. `make test-quick` is what to run while working: one Django, no servers.

Which module belongs to which part is marked in the module. A part is one process: several would each import, collect
and migrate, and tell each other of each test. The tests of real servers wait for most of their time, and so these are
two. A part's output is printed when it is over; last comes that of the unit tests.
"""

import os
import re
import resource
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests import servers
from tests.servers import MYSQL, POSTGRESQL

ROOT = servers.ROOT
AT_ONCE, PROCESSORS = 3, 2
PYTHON, PYTHON_DJANGO6 = ".venv/bin/python", ".venv-django6/bin/python"
# Options of the long runs.
PYTEST = os.environ.get("PYTEST", "")
# The files go to the processes in their order.
SERVERS = f"-n 2 --dist loadfile --no-loadscope-reorder {PYTEST} tests/e2e"
# The example project is tested with its own settings, all else with those of the tests.
EXAMPLE_TOPICS = "approval asking evals exports project reach stories tasks texts trials writes"
EXAMPLE_FILES = [f"tests/project/test_example_{name}.py" for name in EXAMPLE_TOPICS.split()]
EXAMPLE = "--ds=example_project.settings " + " ".join(EXAMPLE_FILES)
# The admin's verdicts and the endpoint's are compared there too, and on small admins beside it, in so many cases.
PARITY = "--ds=tests.parity.settings --nomigrations tests/behaviour/test_parity.py"
# Of all cases those with which each kind is there, as tests/cases.py chooses them.
SOME = {"SOME_CASES": "1"}
# And of the data side each on one of the databases.
DIVIDED = SOME | {"DIVIDED_CASES": "data"}
# Of the rest half of those that run on Django 5.2.
HALF = SOME | {"DIVIDED_CASES": "every"}
# How many operations are drawn, to be done in the admin and through the endpoint.
PARITY_CASES = {PYTHON: "200", PYTHON_DJANGO6: "80"}
# So are the packages of other people, whose migrations take longer than all of their tests.
PACKAGES = f"{servers.PACKAGES} tests/behaviour/test_packages_signin.py"
# And a project with several databases.
DATABASES = servers.DATABASES
# And one with a user model of its own, whose middleware gives people their role.
ROLES = "--ds=tests.roles_project.settings --nomigrations tests/behaviour/test_roles.py"
# The data side without compiled queries, as far as they could give other answers than the ORM.
WITHOUT_COMPILED_QUERIES = "-p tests.without_compiled_queries"
DATA_TESTS = (
    "tests/behaviour/test_every_field.py tests/behaviour/test_every_relation.py "
    "tests/behaviour/test_drawn_questions.py tests/behaviour/test_composite_keys.py "
    "tests/unit/oauth/test_bearer.py tests/unit/server/test_sessions.py tests/unit/server/test_stored_streams.py "
    "tests/unit/orm/test_row_reading.py tests/unit/orm/test_undecodable_values.py "
    "tests/unit/orm/test_pagination_queries.py tests/unit/orm/test_permission_queries.py "
    "tests/unit/tools/test_query_records.py tests/unit/tools/test_get_record.py"
)
ELSEWHERE = re.findall(r"\S+\.py", f"{EXAMPLE} {PARITY} {PACKAGES} {DATABASES} {ROLES}")
ONE_DJANGO = servers.marked("one_django")
EXAMPLE_WITHOUT = "--ds=example_project.settings " + " ".join(name for name in EXAMPLE_FILES if name not in ONE_DJANGO)


def without(paths: Iterable[str]) -> str:
    return " ".join(f"--ignore={path}" for path in paths)


EVERYTHING = f"{PYTEST} {without(['tests/e2e', *ELSEWHERE])}"
# On Django 5.2 these are two parts, so that none is still running when all others are over.
UNIT, NOT_UNIT = f"{PYTEST} tests/unit", f"{EVERYTHING} {without(['tests/unit'])}"
EVERYTHING_DJANGO6 = f"{EVERYTHING} -m 'not e2e'"
WITHOUT_DATA = f"{EVERYTHING_DJANGO6} {without(ONE_DJANGO)} {without(servers.FILES)}"
# While working: without servers, packages and what walks over every model or case.
QUICK = (
    f"{PYTEST} {without(ELSEWHERE)} {without(servers.marked('walk'))} -m 'not e2e' "
    "tests/unit tests/behaviour tests/requirements tests/project/test_architecture.py"
)
# The dots of pytest, which tell nothing once a run is over, and how far it is.
PROGRESS = re.compile(r"^[.sxX]*\s*(\[ *\d+%\])?$")
PERCENT = re.compile(r"\[ *(\d+)%\]$")
# Seconds from one line about the progress to the next one.
SPOKEN_EVERY = 30


@dataclass(frozen=True)
class Part:
    """A command of its own, with what it adds to the environment, and about how many processor minutes it takes."""

    name: str
    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    minutes: float = 0.0


@dataclass(frozen=True)
class Outcome:
    part: Part
    passed: bool
    output: str
    seconds: float


def pytest(name: str, python: str, options: str, minutes: float, environment: Mapping[str, str]) -> Part:
    return Part(name, [python, "-m", "pytest", *shlex.split(options)], environment, minutes)


def parts(
    with_django6: bool, everything: bool = False, there: Collection[servers.Server] = (POSTGRESQL, MYSQL)
) -> Iterator[Part]:
    """Give the unit tests, and then the others, long ones first. The cases are divided among the servers `there`."""
    newest = PYTHON_DJANGO6 if with_django6 else PYTHON
    pythons = {"Django 5.2": PYTHON, "Django 6": newest} if with_django6 else {"Django 5.2": PYTHON}
    among = " ".join(["sqlite", *(urlsplit(server.url).scheme for server in there)])
    cases: Mapping[str, str] = {}
    if not everything:
        cases = DIVIDED | {"DIVIDED_AMONG": among} if there else SOME
    yield pytest("Unit tests, Django 5.2", PYTHON, UNIT, 6 if everything else 4.5, cases)
    yield pytest("Servers, Django 5.2", PYTHON, SERVERS, 11 if everything else 5, cases)
    yield pytest("Other tests, Django 5.2", PYTHON, NOT_UNIT, 6 if everything else 3.5, cases)
    if with_django6:
        rest = (EVERYTHING_DJANGO6, 10, cases) if everything else (WITHOUT_DATA, 2.2, HALF)
        yield pytest("Django 6", newest, *rest)
    data, packages = (4.5, 1.1) if everything else (2.5, 0.6)
    for name, minutes in (("data", data), ("packages", packages), ("databases", 0.2)):
        for django, python in pythons.items():
            if python == newest or everything:
                command = [python, "-m", "tests.servers", "postgresql", name]
                yield Part(f"PostgreSQL, {name}, {django}", command, cases, minutes)
    for django, python in pythons.items():
        if python == newest or everything:
            command = [python, "-m", "tests.servers", "mysql"]
            # Without what is the same on every server.
            yield Part(f"MariaDB, data, {django}", [*command, "data"], cases, data if everything else 1.8)
            yield Part(f"MariaDB, example, {django}", [*command, "example"], cases, 0.3)
    for django, python in pythons.items():
        drawn = {} if everything else {"PARITY_CASES": PARITY_CASES[python]}
        yield pytest(f"Parity, {django}", python, PARITY, 1.5 if everything else 0.4, {**cases, **drawn})
        is_whole = python == PYTHON or everything
        example = (EXAMPLE, 1.3 if everything else 0.9) if is_whole else (EXAMPLE_WITHOUT, 0.6)
        yield pytest(f"Example project, {django}", python, *example, cases)
        if is_whole:
            yield pytest(f"Packages, {django}", python, PACKAGES, 1.1 if everything else 0.6, cases)
            yield pytest(f"Several databases, {django}", python, DATABASES, 0.1, cases)
            yield pytest(f"Roles, {django}", python, ROLES, 0.2, cases)
    off = f"{PYTEST} {WITHOUT_COMPILED_QUERIES}"
    yield pytest("Without compiled queries", PYTHON, f"{off} {DATA_TESTS}", 0.8 if everything else 0.3, cases)
    drawn = {} if everything else {"PARITY_CASES": "40"}
    minutes = 1.5 if everything else 0.2
    yield pytest("Parity without compiled queries", PYTHON, f"{off} {PARITY}", minutes, {**cases, **drawn})


def quick() -> Iterator[Part]:
    """Give what runs in a few minutes."""
    yield pytest("Django 5.2, no servers", PYTHON, QUICK, 5, SOME)


class Progress:
    """The parts that run, with how far each is."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.percent: dict[str, str] = {}
        self.started = time.monotonic()
        self.over = threading.Event()

    def line(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self.started), 60)
        running = ", ".join(f"{name} {percent} %" for name, percent in self.percent.items())
        return f"   {minutes}:{seconds:02}  {self.done} of {self.total} done; {running}"

    def speak(self) -> None:
        """Print how far the parts are, until all are over."""
        while not self.over.wait(SPOKEN_EVERY):
            print(self.line(), flush=True)


def run(part: Part, progress: Progress) -> Outcome:
    """Run a part to its end, or until it has taken too long."""
    started, output, in_time = time.monotonic(), "", True
    progress.percent[part.name] = "0"
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

        def end() -> None:
            nonlocal in_time
            in_time = False
            process.kill()

        late = threading.Timer(servers.TIMEOUT, end)
        late.start()
        assert process.stdout
        for line in process.stdout:
            output += line
            if far := PERCENT.search(line.rstrip()):
                progress.percent[part.name] = far[1]
        late.cancel()
    if not in_time:
        output += f"\n== Not done after {servers.TIMEOUT} s\n"
    del progress.percent[part.name]
    progress.done += 1
    return Outcome(part, process.returncode == 0, output, time.monotonic() - started)


def show(outcome: Outcome) -> None:
    lines = [line for line in outcome.output.splitlines() if not PROGRESS.match(line)]
    verdict = "passed" if outcome.passed else "FAILED"
    print(f"\n== {outcome.part.name}: {verdict} in {outcome.seconds:.0f} s", *lines, sep="\n", flush=True)


def announce(chosen: list[Part]) -> None:
    """Print what is going to run, and about how long that takes."""
    minutes = sum(part.minutes for part in chosen)
    print(f"== {len(chosen)} parts, {AT_ONCE} at a time; the output of each is shown when it is over:")
    print(*(f"   {part.name} ({part.minutes:g} min)" for part in chosen), sep="\n")
    print(
        f"   About {minutes:.0f} processor minutes: {minutes / PROCESSORS:.0f} minutes on two processors.", flush=True
    )


def main(chosen: Iterable[Part]) -> int:
    """Run these parts, whatever becomes of the others, and return the exit status."""
    last, *others = chosen
    announce([last, *others])
    outcomes, progress = [], Progress(len(others) + 1)
    threading.Thread(target=progress.speak, daemon=True).start()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        closing = pool.submit(run, last, progress)
        try:
            for done in as_completed([pool.submit(run, part, progress) for part in others]):
                outcomes.append(done.result())
                show(outcomes[-1])
            outcomes.append(closing.result())
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    progress.over.set()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"\n== {(used.ru_utime + used.ru_stime) / 60:.1f} processor minutes", flush=True)
    failed = [outcome.part.name for outcome in outcomes if not outcome.passed]
    if failed:
        print(f"\n== Failed: {'; '.join(failed)}", flush=True)
    show(outcomes[-1])
    return 1 if failed else 0


if __name__ == "__main__":
    with_django6 = "--without-django6" not in sys.argv
    if "--quick" in sys.argv:
        sys.exit(main(quick()))
    there = [server for server in (POSTGRESQL, MYSQL) if server.is_there()]
    sys.exit(main(parts(with_django6, "--all" in sys.argv, there)))
