"""The manifest of what the specification demands of a server, held against the tests.

`tests/requirements/*.toml` has each MUST and SHOULD of the five revisions that binds a server, or the authorization
server that the app brings: one file for each area, one table for each requirement, whose name is its id.

    ["transports.session.ended"]
    level = "MUST"                       # or MUST NOT, SHOULD, SHOULD NOT
    text = "What is demanded, in words of our own."
    source = ["page of the specification: heading"]
    since = "2025-03-26"                 # the first revision that demands it
    until = "2025-11-25"                 # the last one; left out where the newest still does
    tests = ["tests/unit/test_x.py::test_y"]  # what proves it, as pytest would be told to run it, without parameters
    divergence = "Why it is not kept to, or does not apply."

A requirement has tests, or a divergence, or both where a test shows what is done instead. Names are checked both ways:
a test that the manifest names must exist and be run, and a test in a module `tests/requirements/test_*.py`, which are
there for the manifest alone, must be named by it. Other tests need no requirement.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.one_django

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ROOT / "tests" / "requirements"
AREAS = sorted(path for path in MANIFEST.glob("*.toml") if path.name != "pages.toml")
# Tests that exist for the manifest alone.
OWN = "requirements/test_*.py"
REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
LEVELS = {"MUST", "MUST NOT", "SHOULD", "SHOULD NOT"}
KEYS = {"level", "text", "source", "since", "until", "tests", "divergence"}
ID = re.compile(r"[a-z]+(\.[a-z0-9-]+)+")
LONGEST_TEXT = 200


@dataclass(frozen=True)
class Requirement:
    """One table of the manifest."""

    id: str
    area: str
    level: str
    text: str
    source: list[str]
    since: str
    until: str = REVISIONS[-1]
    tests: tuple[str, ...] = ()
    divergence: str = ""

    @property
    def revisions(self) -> list[str]:
        """The revisions that demand it."""
        return REVISIONS[REVISIONS.index(self.since) : REVISIONS.index(self.until) + 1]

    @property
    def pages(self) -> list[str]:
        """The pages that it comes from."""
        return [source.partition(": ")[0] for source in self.source]


def tables(path: Path) -> dict[str, dict[str, Any]]:
    """The tables of a file; a text may go over several lines."""
    found = tomllib.loads(path.read_text())
    for table in found.values():
        table.update({key: " ".join(value.split()) for key, value in table.items() if isinstance(value, str)})
    return found


def read(path: Path) -> Iterator[Requirement]:
    for identifier, table in tables(path).items():
        yield Requirement(**{**table, "id": identifier, "area": path.stem, "tests": tuple(table.get("tests", ()))})


REQUIREMENTS = [requirement for path in AREAS for requirement in read(path)]
PAGES = tables(MANIFEST / "pages.toml")


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The tests of a module that are run: functions at its top that no decorator skips or expects to fail."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
            if not re.search(r"\bmark\.(skip|skipif|xfail)\b", decorators):
                yield node


def names(pattern: str) -> set[str]:
    return {
        f"{path.relative_to(ROOT)}::{node.name}"
        for path in (ROOT / "tests").glob(pattern)
        if "node_modules" not in path.parts
        for node in functions(path)
    }


def test_the_manifest_has_every_area() -> None:
    areas = "authorization base client lifecycle patterns prompts resources stdio tasks tools transports utilities"
    assert [path.stem for path in AREAS] == areas.split()


@pytest.mark.parametrize("path", AREAS, ids=lambda path: path.stem)
def test_requirements_are_complete(path: Path) -> None:
    for identifier, table in tables(path).items():
        assert table.keys() <= KEYS, identifier
        assert {"level", "text", "source", "since"} <= table.keys(), identifier
        assert ID.fullmatch(identifier), identifier
        assert identifier.startswith(f"{path.stem}."), f"{identifier} belongs into another file"
        assert table["level"] in LEVELS, identifier
        assert 0 < len(table["text"]) <= LONGEST_TEXT, f"{identifier}: {len(table['text'])} characters"
        assert table["text"].endswith("."), identifier
        assert "until" not in table or table["until"] != REVISIONS[-1], f"{identifier}: the newest revision is no end"


def test_revisions_are_in_order() -> None:
    for requirement in REQUIREMENTS:
        assert {requirement.since, requirement.until} <= set(REVISIONS), requirement.id
        assert requirement.revisions, f"{requirement.id} ends before it begins"


def test_each_revision_has_a_page_of_the_specification_that_demands_it() -> None:
    for requirement in REQUIREMENTS:
        assert set(requirement.pages) <= set(PAGES), requirement.id
        for revision in requirement.revisions:
            found = [page for page in requirement.pages if PAGES[page]["since"] <= revision <= until(page)]
            assert found, f"{requirement.id}: none of its pages is of {revision}"


def until(page: str) -> str:
    return str(PAGES[page].get("until", REVISIONS[-1]))


def test_each_page_that_binds_a_server_has_requirements() -> None:
    assert set(PAGES) == {page for requirement in REQUIREMENTS for page in requirement.pages}


def test_each_requirement_has_a_test_or_the_reason_why_not() -> None:
    bare = [requirement.id for requirement in REQUIREMENTS if not requirement.tests and not requirement.divergence]
    assert not bare, "\n".join(bare)


def test_a_divergence_is_a_reason() -> None:
    for requirement in REQUIREMENTS:
        assert not requirement.divergence or requirement.divergence.endswith("."), requirement.id
        assert len(requirement.divergence) >= 20 or not requirement.divergence, requirement.id


def test_each_test_that_the_manifest_names_exists() -> None:
    existing = names("**/test_*.py")
    missing = [
        f"{requirement.id}: {name}"
        for requirement in REQUIREMENTS
        for name in requirement.tests
        if name not in existing
    ]
    assert not missing, "\n".join(missing)


def test_no_requirement_names_a_test_twice() -> None:
    twice = [requirement.id for requirement in REQUIREMENTS if len(set(requirement.tests)) < len(requirement.tests)]
    assert not twice


def test_each_test_that_is_there_for_the_manifest_is_named_by_it() -> None:
    named = {name for requirement in REQUIREMENTS for name in requirement.tests}
    unnamed = names(OWN) - named
    assert not unnamed, "\n".join(sorted(unnamed))


def test_what_is_not_run_is_no_test(tmp_path: Path) -> None:
    source = """
def test_a(): ...
async def test_b(): ...
@pytest.mark.parametrize("x", [1])
def test_c(x): ...
@pytest.mark.skip
def test_d(): ...
@pytest.mark.xfail(reason="x")
def test_e(): ...
def helper():
    def test_f(): ...
"""
    path = tmp_path / "test_example.py"
    path.write_text(source)
    assert [node.name for node in functions(path)] == ["test_a", "test_b", "test_c"]
