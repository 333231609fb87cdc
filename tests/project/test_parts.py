"""What `make test` runs: nothing is left out, a failure anywhere fails the whole, the summary stands at the end."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import parts, postgresql
from tests.parts import Part

TESTS = Path(__file__).parents[1]


def program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


LONGEST = Part("longest", program("print('..s. [ 50%]\\n... [100%]\\n== 7 passed ==')"))
FAILING = Part("failing", program("print('E  assert 0'); raise SystemExit(1)"))
PASSING = Part("passing", program("import os; print(os.environ['GREETING'])"), {"GREETING": "hello"})


def test_each_part_is_told_and_the_longest_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert parts.main([LONGEST, PASSING]) == 0
    head, *lines = capsys.readouterr().out.partition("\n\n")
    assert head.split("\n") == [
        "== 2 parts, 2 at a time; the output of each is shown when it is over:",
        "   longest",
        "   passing",
    ]
    lines = "".join(lines).split("\n")[1:]
    assert lines[1].startswith("== passing: passed in ")
    assert lines[2] == "hello"
    assert lines[4].startswith("== longest: passed in ")
    assert lines[5:] == ["== 7 passed ==", ""]


@pytest.mark.parametrize("some", [[LONGEST, FAILING, PASSING], [FAILING, LONGEST, PASSING]])
def test_a_failure_anywhere_fails_the_whole(some: list[Part], capsys: pytest.CaptureFixture[str]) -> None:
    assert parts.main(some) == 1
    told = capsys.readouterr().out
    assert "== Failed: failing\n" in told
    assert "E  assert 0" in told
    assert "hello" in told


def test_a_part_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.postgresql.TIMEOUT", 0.1)
    outcome = parts.run(Part("hanging", program("import threading; threading.Event().wait()")))
    assert not outcome.passed
    assert "== Not done after 0.1 s" in outcome.output


def test_what_is_compiled_is_kept_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    outcome = parts.run(Part("compiling", program("import sys; print(sys.dont_write_bytecode)")))
    assert outcome.output == "False\n"


@pytest.mark.parametrize("with_django6", [True, False])
def test_every_file_of_tests_belongs_to_a_part(with_django6: bool) -> None:
    commands = [part.command for part in parts.parts(with_django6)]
    assert len({part.name for part in parts.parts(with_django6)}) == len(commands)
    left_out = {Path(word.partition("=")[2]).name for word in commands[0] if word.startswith("--ignore=")}
    assert left_out
    assert left_out <= {path.name for path in TESTS.rglob("test_*.py")}
    named = {Path(word).name for command in commands[1:] for word in command if word.startswith("tests/")}
    assert left_out <= named
    assert any(".venv-django6" in command[0] for command in commands) is with_django6


def test_what_runs_on_one_django_alone_is_there_and_works_without_django() -> None:
    assert [name for name in parts.ONCE if not (postgresql.ROOT / name).exists()] == []
    named = [name.removesuffix(".py").replace("/", ".") for name in parts.ONCE if not name.startswith("tests/project/")]
    code = f"import sys; sys.modules['django'] = None; [__import__(name) for name in {named}]"
    done = subprocess.run([sys.executable, "-c", code], cwd=postgresql.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("everything", [True, False])
def test_what_runs_on_one_django_alone_is_left_out_on_the_other_one(everything: bool) -> None:
    first, second, *_ = (part.command for part in parts.parts(True, everything))
    assert {*second} - {*first} >= {f"--ignore={name}" for name in parts.ONCE}
    assert not {*first} & {f"--ignore={name}" for name in parts.ONCE}


def test_every_file_for_postgresql_is_there() -> None:
    assert [name for name in postgresql.FILES if not (postgresql.ROOT / name).exists()] == []


def test_the_data_side_runs_on_django_6_with_postgresql_where_it_does_not_with_sqlite() -> None:
    made = {part.name: part.command for part in parts.parts(True)}
    assert {f"--ignore={name}" for name in postgresql.FILES} <= {*made["Django 6"]}
    assert made["PostgreSQL, data, Django 6"][0] == parts.PYTHON_DJANGO6
    everything = {part.name: part.command for part in parts.parts(True, everything=True)}
    assert not {f"--ignore={name}" for name in postgresql.FILES} & {*everything["Django 6"]}
    assert {*made} < {*everything}
    assert "PostgreSQL, data, Django 5.2" in {part.name for part in parts.parts(False)}
