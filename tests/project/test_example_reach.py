"""Every form of SQL of `evals/forms.toml`: the calls give what the SQL gives, on the example shop."""

import io
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection, transaction

if not apps.is_installed("example_project.shop"):
    pytest.skip("needs the settings of the example project", allow_module_level=True)

from evals import report, surface
from evals.forms import FORMS, REACHES, Form, docs_table
from evals.questions import filled, plain, same
from evals.shop import Endpoint, quiet

pytestmark = pytest.mark.django_db
PAGE = (Path(__file__).parents[2] / "docs" / "asking.md").read_text()
NUMBER_OF_CALLS = {"one call": 1, "one call and arithmetic": 1, "two calls": 2, "none": 0}


@pytest.fixture(scope="module", autouse=True)
def shop(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The data of the example, loaded once and rolled back after the last test."""
    with quiet(), django_db_blocker.unblock(), transaction.atomic():
        call_command("load_places", min_population=200_000, stdout=io.StringIO(), stderr=io.StringIO())
        call_command("load_shop", orders=300, stdout=io.StringIO(), stderr=io.StringIO())
        get_user_model().objects.create_superuser("admin")
        yield
        transaction.set_rollback(True)


def rows_of_sql(form: Form) -> list[list[Any]]:
    with connection.cursor() as cursor:
        cursor.execute(form.sql)
        return [[plain(value) for value in row] for row in cursor.fetchall()]


def answers_of(form: Form) -> list[dict[str, Any]]:
    """What the calls return, one after the other."""
    endpoint, answers = Endpoint(), []
    for tool, arguments in form.calls:
        result = endpoint.answer(tool, filled(arguments, answers))
        assert not result.get("isError"), result["content"]
        answers.append(result["structuredContent"])
        assert "next_cursor" not in answers[-1] or arguments["limit"] < 200, "more rows than a page has"
    return answers


def computed(form: Form, answers: list[dict[str, Any]]) -> list[list[Any]]:
    """What a caller makes of the first rows of the answers."""
    values = {
        f"c{position}_{name}": value for position, answer in enumerate(answers, 1) for name, value in first(answer)
    }
    values |= dict(first(answers[-1]))
    names = ", ".join(f'? AS "{name}"' for name in values)
    with closing(sqlite3.connect(":memory:")) as database:
        lines = [f"SELECT {line} FROM (SELECT {names})" for line in form.then]
        return [[plain(value) for value in database.execute(line, list(values.values())).fetchone()] for line in lines]


def first(answer: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name, plain(value)) for name, value in zip(answer["columns"], answer["rows"][0], strict=True)]


def rows_of_calls(form: Form) -> list[list[Any]]:
    answers = answers_of(form)
    if form.then:
        return computed(form, answers)
    last, asked = answers[-1], form.calls[-1][1].get("fields", [])
    names = form.columns or [name.replace(".", "__") for name in asked] or last["columns"]
    positions = [last["columns"].index(name) for name in names]
    keyed = (lambda value: value[0] if isinstance(value, list) else value) if form.keys else (lambda value: value)
    return [[plain(keyed(row[position])) for position in positions] for row in last["rows"][form.skip :]]


@pytest.mark.parametrize("form", FORMS.values(), ids=str)
def test_the_calls_give_what_the_sql_gives(form: Form) -> None:
    assert len(form.calls) == NUMBER_OF_CALLS[form.reach]
    assert form.then or form.skip or "arithmetic" not in form.reach
    if form.sqlite and connection.vendor != "sqlite":
        return
    expected = rows_of_sql(form)
    assert expected, "the example finds nothing"
    if form.reach == "none":
        assert form.because.endswith(".")
        return
    found = rows_of_calls(form)
    if form.distinct:
        found, expected = ([list(row) for row in {*map(tuple, rows)}] for rows in (found, expected))
    assert same(found, expected, ordered=form.ordered), (found[:5], expected[:5])


def test_the_page_has_the_table() -> None:
    assert len(FORMS) > 50
    assert docs_table() in PAGE, docs_table()


def test_the_page_of_results_knows_the_forms_and_the_limits_of_today() -> None:
    """Its figures are those of `make evals`; this tells when to run it again."""
    lines = report.PAGE.read_text().splitlines()
    assert [*report.reach_rows()] == [line for line in lines if line.startswith(tuple(f"| {one} |" for one in REACHES))]
    limits = dict(re.findall(r"^\| (\w+) \| \d+ \| (\d+) \|$", "\n".join(lines[-6:]), re.MULTILINE))
    assert {role: int(limit) for role, limit in limits.items()} == surface.bounds()
