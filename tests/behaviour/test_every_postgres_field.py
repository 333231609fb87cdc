"""The types of fields that only PostgreSQL has, end to end."""

from typing import Any

import pytest
from django.db import connection

from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import CreateRecord, UpdateRecord
from tests.factories import make_superuser
from tests.library import reader
from tests.tool_calls import call, refusal, site_with

if connection.vendor != "postgresql":
    pytest.skip("The fields of PostgreSQL", allow_module_level=True)

from tests.postgresapp.models import PostgresSample

pytestmark = [pytest.mark.postgresql, pytest.mark.undivided, pytest.mark.django_db]

CREATE, UPDATE, GET, QUERY = CreateRecord(), UpdateRecord(), GetRecord(), QueryRecords()
LABEL = "postgresapp.postgressample"

VALUES: list[tuple[str, Any, Any, list[Any]]] = [
    ("words", ["a,b", "c"], ["a,b", "c"], [{"words__contains": ["c"]}, {"words__contains": "a,b"}]),
    ("words", '["a"]', ["a"], [{"words__len": 1}, {"words__overlap": ["a", "z"]}]),
    ("numbers", [1, 2], [1, 2], [{"numbers__contains": 2}, {"numbers__overlap": [2, "3"]}, {"numbers__len": "2"}]),
    ("days", ["2026-01-31"], ["2026-01-31"], [{"days__contains": "2026-01-31"}]),
    ("grid", [[1, 2], [3, 4]], [[1, 2], [3, 4]], [{"grid__contains": 3}]),
    ("span", [1, 5], [1, 5], [{"span__contains": 4}, {"span__overlap": [4, 9]}, {"span__overlap": [None, 2]}]),
    ("span", [None, 5], [None, 5], [{"span__contains": -9}]),
    ("wide", [2**40, 2**41], [2**40, 2**41], [{"wide__contains": 2**40}]),
    ("amounts", ["1.50", "2"], ["1.50", "2"], [{"amounts__contains": "1.75"}]),
    ("stay", ["2026-01-01", "2026-02-01"], ["2026-01-01", "2026-02-01"], [{"stay__contains": "2026-01-31"}]),
    (
        "open",
        ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"],
        ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"],
        [{"open__contains": "2026-01-01T12:00:00Z"}],
    ),
    ("extra", {"a": "1", "b": None}, {"a": "1", "b": None}, [{"extra__has_key": "a"}]),
]


@pytest.fixture
def asking() -> Any:
    return reader(make_superuser(), site_with(PostgresSample))


@pytest.mark.parametrize(
    ("name", "given", "expected", "filters"), VALUES, ids=[f"{name}-{i}" for i, (name, *_) in enumerate(VALUES)]
)
def test_what_is_written_is_shown_found_and_written_again(
    asking: Any, name: str, given: Any, expected: Any, filters: list[Any]
) -> None:
    made = call(CREATE, asking, model=LABEL, values={"name": "x", name: given})
    assert made["fields"][name] == expected
    assert call(GET, asking, model=LABEL, pk=made["pk"])["fields"][name] == expected
    PostgresSample.objects.create(name="other")
    for found in filters:
        page = call(QUERY, asking, model=LABEL, fields=["name", name], filters=found)
        assert [row[0] for row in page["rows"]] == [made["pk"]], found
        assert page["rows"][0][2] == expected
    before = PostgresSample.objects.filter(pk=made["pk"]).values().get()
    again = call(UPDATE, asking, model=LABEL, pk=made["pk"], values={name: expected})
    assert again["changed"] == []
    assert PostgresSample.objects.filter(pk=made["pk"]).values().get() == before


@pytest.mark.parametrize(
    "filters",
    [
        {"words__contains": {"a": 1}},
        {"words__contains": []},
        {"words__contains": ["a"] * 21},
        {"words__contains": [["a"]]},
        {"numbers__contains": "a"},
        {"numbers__contains": 2**70},
        {"numbers__len": "x"},
        {"words__0": "a"},
        {"words__contained_by": ["a"]},
        {"words": ["a"]},
        {"days__contains": "infinity"},
        {"span__contains": [1, 2]},
        {"span__contains": "a"},
        {"span__overlap": [1]},
        {"span__overlap": [5, 1]},
        {"span__startswith": 1},
        {"span__fully_lt": [1, 2]},
        {"stay__contains": 5},
        {"extra__has_key": {"a": 1}},
        {"extra__has_key": ["a"]},
        {"extra__has_key": "a\0"},
        {"extra__a": "1"},
        {"extra__contains": {"a": "1"}},
        {"search": "a"},
        {"search__isnull": "x"},
    ],
)
def test_row_132_lookups_of_containers_take_values_of_their_items_only(asking: Any, filters: Any) -> None:
    assert "SELECT" not in refusal(QUERY, asking, model=LABEL, filters=filters)


def test_what_the_fields_take_is_said_in_words(asking: Any) -> None:
    described = call(DescribeModel(), asking, model=LABEL, detail=True)
    lines = {line.partition(":")[0]: line for line in described["fields"]}
    assert lines["words"].startswith("words: list or null")
    assert lines["span"].startswith("span: range or null")
    assert lines["extra"].startswith("extra: mapping or null")
    taken = described["input_schema"]["properties"]
    assert taken["numbers"]["items"] == {"type": "integer"}
    assert taken["stay"]["minItems"] == 2
    assert taken["extra"]["type"] == "object"


@pytest.mark.parametrize(
    ("name", "sql"),
    [
        ("days", "'{2026-01-31,infinity}'"),
        ("stay", "'[2026-01-01,infinity)'"),
        ("open", "'[-infinity,2026-01-01)'"),
    ],
)
def test_row_211_what_python_cannot_hold_costs_one_value(asking: Any, name: str, sql: str) -> None:
    rows = [PostgresSample.objects.create(name=f"s{i}", words=["w"]) for i in range(3)]
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE postgresapp_postgressample SET {name} = {sql} WHERE id = %s", [rows[1].pk])
    page = call(QUERY, asking, model=LABEL, fields=["name", "words", name])
    assert page["rows"] == [[row.pk, row.name, ["w"], None] for row in rows]
    found = call(GET, asking, model=LABEL, pk=rows[1].pk)
    assert (found["fields"]["words"], found["fields"][name]) == (["w"], None)
    assert f"{name}: a value could not be computed and is null" in found["hint"]


@pytest.mark.parametrize("text", ["empty", "(1.5,2]", "[1,1]"])
def test_a_range_of_other_bounds_is_shown_as_text(asking: Any, text: str) -> None:
    row = PostgresSample.objects.create(name="s")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE postgresapp_postgressample SET amounts = %s::numrange WHERE id = %s", [text, row.pk])
    shown = call(GET, asking, model=LABEL, pk=row.pk)["fields"]["amounts"]
    assert shown.replace(" ", "") == text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("words", {"a": 1}),
        ("words", "x" * 21),
        ("words", ["x" * 21]),
        ("words", ["a\0"]),
        ("words", [["a"]]),
        ("numbers", ["a"]),
        ("numbers", [1] * 6),
        ("numbers", [2**40]),
        ("grid", [[1], [1, 2]]),
        ("span", [5, 1]),
        ("span", [1]),
        ("span", ["a", "b"]),
        ("span", [1, 2**40]),
        ("span", {"lower": 1}),
        ("stay", ["soon", "later"]),
        ("extra", "text"),
        ("extra", ["a"]),
        ("extra", {"a\0": "b"}),
        ("search", "x"),
    ],
)
def test_row_149_what_does_not_fit_is_refused(asking: Any, name: str, value: Any) -> None:
    said = refusal(CREATE, asking, model=LABEL, values={"name": "x", name: value})
    assert "INSERT" not in said
    assert not PostgresSample.objects.exists()
