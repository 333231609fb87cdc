"""Return annotations to output schemas that data cannot break."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NotRequired, TypedDict
from uuid import UUID

import pytest
from django.db.models import QuerySet
from jsonschema import Draft202012Validator

from mcp_django.schema.jsonable import to_jsonable
from mcp_django.schema.output import is_wrapped, output_schema
from tests.testapp.models import Author, Book


class Level(enum.Enum):
    LOW = 1


@dataclass
class Line:
    """A line.

    Attributes:
        price: With tax.
    """

    price: Decimal
    day: date
    status: Book.Status
    note: Annotated[str | None, "Free text"] = None


class Address(TypedDict):
    street: str
    city: NotRequired[str]


@dataclass
class Node:
    children: "list[Node]"


@dataclass
class Everything:
    text: str
    number: int
    share: float
    flag: bool
    amount: Decimal
    day: date
    moment: datetime
    hour: time
    duration: timedelta
    key: UUID
    status: Book.Status
    level: Level
    kind: Literal["a", "b"]
    mixed: int | str
    author: Author
    lines: list[Line]
    pair: tuple[int, str]
    by_name: Mapping[str, float]
    anything: Any


def nullable(*schemas: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [*schemas, {"type": "null"}]}


FREE = {"type": "object", "additionalProperties": True}
LINE = {
    "type": "object",
    "properties": {
        "price": {**nullable({"type": "string"}), "description": "With tax."},
        "day": nullable({"type": "string"}),
        "status": nullable({"type": "string"}),
        "note": {**nullable({"type": "string"}), "description": "Free text"},
    },
    "required": ["price", "day", "status", "note"],
}


def wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"result": schema}, "required": ["result"]}


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (None, None),
        (Any, None),
        (object, None),
        (bytearray, None),
        (int | str, None),
        (Line, LINE),
        (dict, FREE),
        (dict[str, Any], FREE),
        (dict[str, int], {"type": "object", "additionalProperties": nullable({"type": "integer"}, {"type": "string"})}),
        (
            Address,
            {
                "type": "object",
                "properties": {"street": nullable({"type": "string"}), "city": nullable({"type": "string"})},
                "required": ["street"],
            },
        ),
        (str, wrapped(nullable({"type": "string"}))),
        (int, wrapped(nullable({"type": "integer"}, {"type": "string"}))),
        (list[Line], wrapped(nullable({"type": "array", "items": nullable(LINE)}))),
        (list, wrapped(nullable({"type": "array", "items": {}}))),
        (QuerySet, wrapped(nullable({"type": "array", "items": {}}))),
        (Line | None, wrapped(nullable(LINE))),
        (
            Author,
            {"type": "object", "properties": {"pk": {}, "label": {"type": "string"}}, "required": ["pk", "label"]},
        ),
        (
            Node,
            {
                "type": "object",
                "properties": {"children": nullable({"type": "array", "items": {}})},
                "required": ["children"],
            },
        ),
    ],
)
def test_a_return_annotation_is_a_schema_of_an_object(annotation: Any, expected: Any) -> None:
    found = output_schema(annotation)
    assert found == expected
    if found is not None:
        Draft202012Validator.check_schema(found)
        assert is_wrapped(annotation) == ("result" in found.get("properties", {}))


def test_R21_no_data_can_break_the_schema() -> None:
    schema = output_schema(Everything)
    assert schema is not None
    text = str(schema)
    for keyword in (
        "format",
        "enum",
        "const",
        "pattern",
        "minimum",
        "maxLength",
        "additionalProperties': False",
        "$ref",
    ):
        assert keyword not in text
    validator = Draft202012Validator(schema)
    build: Any = Everything
    nothing = build(*[None] * 19)
    odd = build(
        *("", 2**80, float("nan"), True, Decimal("NaN"), date.min, datetime.max, time.max, timedelta.max, UUID(int=0)),
        *("not a status", Level.LOW, "c", 1.5, Author(pk=2**63, name=""), [], (1, "a"), {"x": float("inf")}, object()),
    )
    for value in (nothing, odd):
        validator.validate(to_jsonable(value))
