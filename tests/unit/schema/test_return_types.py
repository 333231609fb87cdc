"""Output schemas that data cannot break."""

import enum
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NotRequired, TypedDict
from uuid import UUID

import pytest
from django.db.models import QuerySet
from jsonschema import Draft202012Validator

from mcp_django.schema.json_values import to_jsonable
from mcp_django.schema.return_types import ReturnType
from tests.testapp.models import Author, Book


class Rank(enum.Enum):
    LOW = 1


@dataclass
class Sale:
    """A line.

    Attributes:
        price: With tax.
    """

    price: Decimal
    day: date
    status: Book.Status
    note: Annotated[str | None, "Free text"] = None


class Place(TypedDict):
    street: str
    city: NotRequired[str]


@dataclass
class Tree:
    children: "list[Tree]"


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
    level: Rank
    kind: Literal["a", "b"]
    mixed: int | str
    author: Author
    lines: list[Sale]
    pair: tuple[int, str]
    by_name: Mapping[str, float]
    anything: Any


def nullable(*schemas: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [*schemas, {"type": "null"}]}


FREE = {"type": "object", "additionalProperties": True}
SALE = {
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
        (Sale, SALE),
        (dict, FREE),
        (dict[str, Any], FREE),
        (dict[str, int], {"type": "object", "additionalProperties": nullable({"type": "integer"}, {"type": "string"})}),
        (
            Place,
            {
                "type": "object",
                "properties": {"street": nullable({"type": "string"}), "city": nullable({"type": "string"})},
                "required": ["street"],
            },
        ),
        (str, wrapped(nullable({"type": "string"}))),
        (int, wrapped(nullable({"type": "integer"}, {"type": "string"}))),
        (list[Sale], wrapped(nullable({"type": "array", "items": nullable(SALE)}))),
        (list, wrapped(nullable({"type": "array", "items": {}}))),
        (QuerySet, wrapped(nullable({"type": "array", "items": {}}))),
        (Sale | None, wrapped(nullable(SALE))),
        (
            Author,
            {"type": "object", "properties": {"pk": {}, "label": {"type": "string"}}, "required": ["pk", "label"]},
        ),
        (
            Tree,
            {
                "type": "object",
                "properties": {"children": nullable({"type": "array", "items": {}})},
                "required": ["children"],
            },
        ),
    ],
)
def test_a_return_annotation_is_a_schema_of_an_object(annotation: Any, expected: Any) -> None:
    found = ReturnType(annotation).schema
    assert found == expected
    if found is not None:
        Draft202012Validator.check_schema(found)
        assert ReturnType(annotation).is_wrapped == ("result" in found.get("properties", {}))


def test_R21_no_data_can_break_the_schema() -> None:
    schema = ReturnType(Everything).schema
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
        *("not a status", Rank.LOW, "c", 1.5, Author(pk=2**63, name=""), [], (1, "a"), {"x": float("inf")}, object()),
    )
    for value in (nothing, odd):
        validator.validate(to_jsonable(value))


def generates() -> Generator[tuple[int, int], None, dict[str, int]]: ...
def unreadable() -> "Nothing": ...  # type: ignore[name-defined]  # noqa: F821
def returns() -> "dict[str, int]": ...
def says_nothing(): ...


@pytest.mark.parametrize(
    ("function", "annotation"),
    [
        (generates, dict[str, int]),
        (returns, dict[str, int]),
        (unreadable, None),
        (says_nothing, None),
    ],
)
def test_the_annotation_of_a_function_is_that_of_what_it_returns(function: Any, annotation: Any) -> None:
    assert ReturnType.of(function).annotation == annotation
