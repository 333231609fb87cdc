"""What `make test` runs: nothing is left out, a failure anywhere fails the whole, the summary stands at the end."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import cases, parts, servers
from tests.parts import Part

pytestmark = pytest.mark.one_django

TESTS = Path(__file__).parents[1]


def program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


LONGEST = Part("longest", program("print('..s. [ 50%]\\n... [100%]\\n== 7 passed ==')"), minutes=9)
FAILING = Part("failing", program("print('E  assert 0'); raise SystemExit(1)"))
PASSING = Part("passing", program("import os; print(os.environ['GREETING'])"), {"GREETING": "hello"}, 1.5)


def test_what_runs_and_how_long_it_takes_is_told_first_and_the_longest_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert parts.main([LONGEST, PASSING]) == 0
    head, *lines = capsys.readouterr().out.partition("\n\n")
    assert head.split("\n") == [
        "== 2 parts, 3 at a time; the output of each is shown when it is over:",
        "   longest (9 min)",
        "   passing (1.5 min)",
        "   About 10 processor minutes: 5 minutes on two processors.",
    ]
    lines = "".join(lines).split("\n")[1:]
    assert lines[1].startswith("== passing: passed in ")
    assert lines[2] == "hello"
    assert lines[4].endswith(" processor minutes")
    assert lines[6].startswith("== longest: passed in ")
    assert lines[7:] == ["== 7 passed ==", ""]


def test_how_far_the_parts_are_is_told_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(parts, "SPOKEN_EVERY", 0.01)
    told = tmp_path / "told"
    os.mkfifo(told)
    half = Part("half", program(f"print('...s. [ 50%]', flush=True); open({str(told)!r}).read()"))

    class Spoken(parts.Progress):
        def line(self) -> str:
            line = super().line()
            if line.endswith("0 of 1 done; half 50 %"):
                told.write_text("go on")
            return line

    monkeypatch.setattr(parts, "Progress", Spoken)
    assert parts.main([half]) == 0
    assert "   0:00  0 of 1 done; half 50 %\n" in capsys.readouterr().out


@pytest.mark.parametrize("some", [[LONGEST, FAILING, PASSING], [FAILING, LONGEST, PASSING]])
def test_a_failure_anywhere_fails_the_whole(some: list[Part], capsys: pytest.CaptureFixture[str]) -> None:
    assert parts.main(some) == 1
    told = capsys.readouterr().out
    assert "== Failed: failing\n" in told
    assert "E  assert 0" in told
    assert "hello" in told


def test_a_part_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.servers.TIMEOUT", 0.1)
    hanging = Part("hanging", program("import threading; threading.Event().wait()"))
    outcome = parts.run(hanging, parts.Progress(1))
    assert not outcome.passed
    assert "== Not done after 0.1 s" in outcome.output


def test_what_is_compiled_is_kept_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    outcome = parts.run(Part("compiling", program("import sys; print(sys.dont_write_bytecode)")), parts.Progress(1))
    assert outcome.output == "False\n"


@pytest.mark.parametrize("with_django6", [True, False])
def test_every_file_of_tests_belongs_to_a_part(with_django6: bool) -> None:
    commands = [part.command for part in parts.parts(with_django6)]
    assert len({part.name for part in parts.parts(with_django6)}) == len(commands)
    everything = next(part.command for part in parts.parts(with_django6) if part.name == "Other tests, Django 5.2")
    left_out = {word.partition("=")[2] for word in everything if word.startswith("--ignore=")}
    assert left_out
    assert all((parts.ROOT / name).exists() for name in left_out)
    named = {word for command in commands for word in command if word.startswith("tests/")}
    assert left_out <= named
    assert any(".venv-django6" in command[0] for command in commands) is with_django6


def test_the_protocol_and_its_tests_work_without_django() -> None:
    free = [name for name in parts.ONE_DJANGO if name.startswith(("tests/unit/protocol/", "tests/fuzz/"))]
    assert free
    named = [name.removesuffix(".py").replace("/", ".") for name in free]
    code = f"import sys; sys.modules['django'] = None; [__import__(name) for name in {named}]"
    done = subprocess.run([sys.executable, "-c", code], cwd=servers.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_runs_on_one_django_alone_runs_on_the_other_one_with_everything() -> None:
    made = {
        everything: {part.name: part.command for part in parts.parts(True, everything)} for everything in (True, False)
    }
    ignored = {f"--ignore={name}" for name in parts.ONE_DJANGO if name not in parts.EXAMPLE_FILES}
    assert ignored <= {*made[False]["Django 6"]}
    whole = [command for made_of in made.values() for name, command in made_of.items() if "Django 5.2" in name]
    assert not ignored & {word for command in [made[True]["Django 6"], *whole] for word in command}
    for everything, on_one in ((False, {*parts.EXAMPLE_FILES} & {*parts.ONE_DJANGO}), (True, set())):
        named = [word for command in made[everything].values() for word in command]
        times = {name: 1 if name in on_one else 2 for name in parts.EXAMPLE_FILES}
        assert {name: named.count(name) for name in parts.EXAMPLE_FILES} == times


def test_cases_that_are_alike_are_left_out_by_all_but_the_run_of_everything() -> None:
    assert all(part.environment == parts.SOME for part in parts.quick())
    assert not any(part.environment for part in parts.parts(True, everything=True))


def test_the_data_side_also_runs_without_compiled_queries() -> None:
    [command] = [part.command for part in parts.parts(True) if part.name == "Without compiled queries"]
    plugin = command[command.index("-p") + 1]
    code = (
        f"import {plugin}; from mcp_django.conf.defaults import SETTINGS; print(SETTINGS['COMPILED_QUERIES'].default)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=parts.ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
    named = [word for word in command if word.startswith("tests/")]
    assert named
    assert all((parts.ROOT / name).exists() for name in named)


@pytest.mark.parametrize(
    ("there", "among"),
    [
        ([servers.POSTGRESQL, servers.MYSQL], "sqlite postgres mysql"),
        ([servers.POSTGRESQL], "sqlite postgres"),
        ([servers.MYSQL], "sqlite mysql"),
    ],
)
def test_cases_are_divided_among_the_databases_that_are_there(there: list[servers.Server], among: str) -> None:
    divided = parts.DIVIDED | {"DIVIDED_AMONG": among}
    for part in parts.parts(True, there=there):
        assert part.environment.items() >= (parts.HALF if part.name == "Django 6" else divided).items()
    alone = parts.parts(True, there=[])
    assert {part.name for part in alone if "DIVIDED_CASES" in part.environment} == {"Django 6"}


MANY, FEW = {one + two for one in "ab" for two in "cdef"}, {*"ghi"}
# Of cases that are for one database each runs on all: the others skip it.
OF_ONE_DATABASE = {*"jklm"}
CASES = """
import pytest
pytestmark = [{marks}]
@pytest.mark.parametrize('one', 'ab')
@pytest.mark.parametrize('two', 'cdef')
def test_many(one, two): print('ran', '{name}', one + two)
@pytest.mark.parametrize('one', 'ghi')
def test_few(one): print('ran', '{name}', one)
@pytest.mark.skipif(False, reason='')
@pytest.mark.parametrize('one', 'jklm')
def test_of_one_database(one): print('ran', '{name}', one)
"""


def ran(directory: Path, asked: str, among: str, **modules: str) -> list[dict[str, set[str]]]:
    """Return which cases of modules with these marks run on each of the databases, where they are divided so."""
    for name, marks in modules.items():
        marked = ", ".join(f"pytest.mark.{mark}" for mark in marks.split())
        (directory / f"test_{name}.py").write_text(CASES.format(name=name, marks=marked))
    command = [sys.executable, "-m", "pytest", "-qs", "-p", "tests.conftest", "-p", "no:cacheprovider", str(directory)]
    seen = []
    for scheme in among.split():
        url = f"{scheme}://nobody@nowhere/nothing" if scheme != "sqlite" else ""
        divided = {"DIVIDED_CASES": asked, "DIVIDED_AMONG": among, "TEST_DATABASE_URL": url}
        environment = os.environ | parts.SOME | divided
        done = subprocess.run(command, cwd=parts.ROOT, env=environment, capture_output=True, text=True)
        found: dict[str, set[str]] = {name: set() for name in modules}
        for name, case in re.findall("ran (.*) (.*)", done.stdout):
            found[name].add(case)
        seen.append(found)
    return seen


@pytest.mark.parametrize(
    ("asked", "among", "marks"),
    [
        ("data", "sqlite postgres mysql", {"plain": "postgresql", "other": "divided"}),
        ("data", "sqlite mysql", {"plain": "postgresql"}),
        ("every", "sqlite postgres", {"plain": "walk"}),
    ],
)
def test_each_case_runs_on_one_database_and_each_test_on_all(
    asked: str, among: str, marks: dict[str, str], tmp_path: Path
) -> None:
    whole = {"whole": "postgresql undivided"} if asked == "data" else {}
    one_server = {"server": "postgresql one_server"} if asked == "data" else {}
    seen = ran(tmp_path, asked, among, **marks, **whole, **one_server)
    for name in [*marks, *whole]:
        on_each = [found[name] for found in seen]
        assert set.union(*on_each) == MANY | FEW | OF_ONE_DATABASE
        everywhere = OF_ONE_DATABASE | (MANY | FEW if name in whole else set())
        # Of a test of few cases all are run, on SQLite and on one of the servers.
        if asked == "data" and len(seen) == 2:
            everywhere |= FEW
        assert set.intersection(*on_each) == everywhere
        if asked == "data" and name not in whole:
            assert [bool(cases & FEW) for cases in on_each].count(True) == 2
            assert all(cases & FEW in (FEW, set()) for cases in on_each)
            assert on_each[0] >= FEW
        # And each value of each parameter, where there are enough of them.
        if len(seen) == 2:
            assert {*"abcdef"} <= {*"".join(on_each[0])} & {*"".join(on_each[1])}
    for name in one_server:
        first, second, *others = (found[name] for found in seen)
        assert first | second == MANY | FEW | OF_ONE_DATABASE
        assert first & second == FEW | OF_ONE_DATABASE
        assert not any(others)


def test_drawn_cases_are_shared_among_the_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "DIVIDED", "")
    assert [*cases.shared(range(8))] == [*range(8)]
    monkeypatch.setattr(cases, "DIVIDED", "data")
    monkeypatch.setattr(cases, "AMONG", ["sqlite", "postgres", "mysql"])
    made = []
    for name in cases.AMONG:
        monkeypatch.setattr(cases, "HERE", name)
        made.append([*cases.shared(range(8))])
    assert made == [[0, 3, 6], [1, 4, 7], [2, 5]]


@pytest.mark.parametrize("chosen", ["all", "some"])
def test_a_module_whose_cases_are_alike_runs_with_some_of_them_at_least(chosen: str, tmp_path: Path) -> None:
    (tmp_path / "test_alike.py").write_text(
        "import pytest\n"
        "from tests.cases import drawn, some, whole\n"
        "@pytest.mark.parametrize('case', ['a', *whole(['b', 'c'])])\n"
        "def test_it(case): print('ran', case, drawn(8), some('uvwxyz', 4))\n"
    )
    command = [sys.executable, "-m", "pytest", "-qs", "-p", "tests.conftest", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if name != "SOME_CASES"}
    if chosen == "some":
        environment |= parts.SOME
    done = subprocess.run(command, cwd=parts.ROOT, env=environment, capture_output=True, text=True)
    seen = re.findall("ran (.*)", done.stdout)
    assert seen == (["a 2 ['u', 'y']"] if chosen == "some" else [f"{name} 8 {[*'uvwxyz']}" for name in "abc"])


@pytest.mark.parametrize("mark", ["postgresql", "one_django", "walk"])
def test_a_mark_is_that_of_a_whole_module(mark: str) -> None:
    # Written as an attribute of `pytest`, which is how the files with a mark are found.
    marked = re.compile(rf"\bmark\.{mark}\b")
    holding = {str(path.relative_to(parts.ROOT)) for path in TESTS.rglob("*.py") if marked.search(path.read_text())}
    assert holding == {*servers.marked(mark)}


def test_the_data_side_runs_on_django_6_with_servers_where_it_does_not_with_sqlite() -> None:
    made = {part.name: part.command for part in parts.parts(True)}
    assert made["MariaDB, data, Django 6"][0] == parts.PYTHON_DJANGO6
    assert {f"--ignore={name}" for name in servers.FILES} <= {*made["Django 6"]}
    assert made["PostgreSQL, data, Django 6"][0] == parts.PYTHON_DJANGO6
    everything = {part.name: part.command for part in parts.parts(True, everything=True)}
    assert not {f"--ignore={name}" for name in servers.FILES} & {*everything["Django 6"]}
    assert {*made} < {*everything}
    assert "PostgreSQL, data, Django 5.2" in {part.name for part in parts.parts(False)}
