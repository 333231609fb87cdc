"""What annotations mean, which are refused, and output schemas that data cannot break."""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, TypedDict, Union
from uuid import UUID

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.db.models import QuerySet
from jsonschema import Draft202012Validator

from mcp_django.schema.annotations import (
    Header,
    Param,
    compile_annotation,
    first_sentence,
    is_wrapped,
    output_schema,
    parameter,
    parse_docstring,
    resolve_hint,
    unwrap,
)
from mcp_django.schema.container_types import AnyOf, Array, Dictionary, Nullable, Object, Row, Tuple
from mcp_django.schema.json_values import to_jsonable
from mcp_django.schema.value_types import PARSED, Anything, Boolean, Choice, DecimalNumber, Integer, Number, String
from tests.testapp.models import Author, Book

OrderNumber = NewType("OrderNumber", str)


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


@dataclass
class Line:
    """A line.

    Attributes:
        sku: What is bought.
    """

    sku: str
    quantity: Annotated[int, Param("How many", minimum=1)] = 1
    tags: list[str] = field(default_factory=list)
    cost: Decimal = field(default=Decimal("1.50"))
    total: int = field(init=False, default=0)


class Address(TypedDict):
    street: str
    city: NotRequired[Annotated[str, "Town"]]


@dataclass
class Node:
    children: "list[Node]"


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (str, String()),
        (int, Integer()),
        (float, Number()),
        (bool, Boolean()),
        (Decimal, DecimalNumber()),
        (date, PARSED[date]),
        (datetime, PARSED[datetime]),
        (time, PARSED[time]),
        (timedelta, PARSED[timedelta]),
        (UUID, PARSED[UUID]),
        (Any, Anything()),
        (object, Anything()),
        (OrderNumber, String()),
        (Annotated[int, "Text"], Integer()),
        (Annotated[int, Param(minimum=1)], Integer(1)),
        (Annotated[int | None, Param(minimum=1)], Nullable(Integer(1))),
        (Annotated[Annotated[int, Param(minimum=1, maximum=9)], Param(maximum=5)], Integer(1, 5)),
        (int | None, Nullable(Integer())),
        (Optional[int], Nullable(Integer())),  # noqa: UP045
        (Union[int, str], AnyOf((Integer(), String()))),  # noqa: UP007
        (int | str | None, Nullable(AnyOf((Integer(), String())))),
        (Literal["a", "b"], Choice((("a", "a"), ("b", "b")))),
        (Literal["a", None], Nullable(Choice((("a", "a"),)))),
        (Level, Choice(((1, Level.LOW), (2, Level.HIGH)))),
        (list, Array(Anything())),
        (list[int], Array(Integer())),
        (Sequence[int], Array(Integer())),
        (Iterable[int], Array(Integer())),
        (set[int], Array(Integer(), set)),
        (frozenset[int], Array(Integer(), frozenset)),
        (tuple, Array(Anything(), tuple)),
        (tuple[int, ...], Array(Integer(), tuple)),
        (tuple[int, str], Tuple((Integer(), String()))),
        (list[Annotated[int, Param(minimum=1)]], Array(Integer(1))),
        (dict, Dictionary(Anything())),
        (dict[str, int], Dictionary(Integer())),
        (Mapping[str, Any], Dictionary(Anything())),
        (Author, Row(Author)),
        (list[Author], Array(Row(Author))),
    ],
)
def test_an_annotation_is_a_type(annotation: Any, expected: Any) -> None:
    assert compile_annotation(annotation) == expected


def test_choices_of_django_carry_their_labels() -> None:
    found = compile_annotation(Book.Status)
    assert isinstance(found, Choice)
    assert found.schema() == {"type": "string", "enum": ["draft", "published", "withdrawn"]}
    assert found.words() == "draft = In preparation"
    assert found.convert("draft", None) is Book.Status.DRAFT  # type: ignore[arg-type]


def test_a_dataclass_is_an_object_that_is_built() -> None:
    found = compile_annotation(Line)
    assert isinstance(found, Object)
    assert found.convert({"sku": "a", "quantity": "2"}, None) == Line("a", 2)  # type: ignore[arg-type]
    assert found.schema() == {
        "type": "object",
        "properties": {
            "sku": {"type": "string", "description": "What is bought."},
            "quantity": {
                "type": "integer",
                "minimum": 1,
                "default": 1,
                "description": "How many (at least 1, default 1)",
            },
            "tags": {"type": "array", "items": {"type": "string"}},
            "cost": {
                "type": "string",
                "default": "1.50",
                "description": '(decimal number as text, such as 12.50, default "1.50")',
            },
        },
        "required": ["sku"],
        "additionalProperties": False,
    }


def test_a_typed_dict_is_an_object_of_its_keys() -> None:
    found = compile_annotation(Address)
    assert found.convert({"street": "a"}, None) == {"street": "a"}  # type: ignore[arg-type]
    assert found.schema()["required"] == ["street"]
    assert found.schema()["properties"]["city"] == {"type": "string", "description": "Town"}


@pytest.mark.parametrize(
    "annotation",
    [
        bytes,
        complex,
        type,
        type(None),
        Callable,
        Callable[[int], int],
        models.Model,
        models.QuerySet,
        Node,
        Literal[b"x"],
        dict[int, str],
        list[bytes],
        enum.Enum("Empty", {}),
        enum.Enum("Pairs", {"A": (1, 2)}),
        "not resolved",
        Annotated[int, Param(max_length=1)],
        Annotated[str, Param(minimum=1)],
    ],
)
def test_an_annotation_without_a_json_form_is_refused_at_registration(annotation: Any) -> None:
    with pytest.raises(ImproperlyConfigured):
        compile_annotation(annotation)


def test_the_outermost_word_counts() -> None:
    found = unwrap(Annotated[Annotated[str, "inner", Header("A")], Param("outer", max_length=3)])
    assert found.annotation is str
    assert (found.description, found.limits, found.header) == ("outer", {"max_length": 3}, "A")


def test_a_description_in_the_annotation_goes_before_the_docstrings() -> None:
    assert parameter("a", Annotated[int, "mine"], "other").description == "mine"
    assert parameter("a", int, "other").description == "other"


def test_a_header_is_an_annotation_of_the_schema() -> None:
    assert parameter("region", Annotated[str, Header("Region")]).schema() == {
        "type": "string",
        "x-mcp-header": "Region",
    }


@pytest.mark.parametrize("annotation", [float, str | None, list[str], Decimal | int, Any])
def test_only_a_primitive_that_is_never_null_has_a_header(annotation: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match="region: only a string"):
        parameter("region", Annotated[annotation, Header("Region")])


def test_a_default_that_is_no_json_is_shown_as_one() -> None:
    assert parameter("day", date, default=date(2026, 1, 2)).schema()["default"] == "2026-01-02"
    assert parameter("level", Level, default=Level.HIGH).schema()["default"] == 2
    assert "default" not in parameter("author", Author, default=Author(name="x")).schema()


def test_names_are_looked_up_where_the_function_is_defined() -> None:
    assert resolve_hint("list[Thing]", {"Thing": int}) == list[int]
    with pytest.raises(ImproperlyConfigured, match="Nothing"):
        resolve_hint("Nothing", {})


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
        *("not a status", Rank.LOW, "c", 1.5, Author(pk=2**63, name=""), [], (1, "a"), {"x": float("inf")}, object()),
    )
    for value in (nothing, odd):
        validator.validate(to_jsonable(value))


GOOGLE = """Find orders.

    Over all years.

    Args:
        year: Calendar year,
            four digits: no less.
        status (str, optional): One of the states.
        **rest: The others.

    Returns:
        orders: A list.
    """

SPHINX = """Find orders.

    :param year: Calendar year,
        four digits
    :param str status: One of the states
    :type year: int
    :returns: orders
    """

PLAIN = """Find orders.

    Parameters:
        year -- Calendar year
        status -- One of the states
    """


@pytest.mark.parametrize(
    ("text", "description", "parameters"),
    [
        (None, "", {}),
        ("", "", {}),
        ("One line.", "One line.", {}),
        (
            GOOGLE,
            "Find orders.\n\nOver all years.",
            {
                "year": "Calendar year, four digits: no less.",
                "status": "One of the states.",
                "rest": "The others.",
            },
        ),
        (SPHINX, "Find orders.", {"year": "Calendar year, four digits", "status": "One of the states"}),
        (PLAIN, "Find orders.", {"year": "Calendar year", "status": "One of the states"}),
        ("Note that: this is prose\nNot a section: either", "Note that: this is prose\nNot a section: either", {}),
    ],
)
def test_the_text_before_the_sections_is_the_description(
    text: str | None, description: str, parameters: dict[str, str]
) -> None:
    found = parse_docstring(text)
    assert (found.description, found.parameters) == (description, parameters)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("What one customer ordered at one time.", "What one customer ordered at one time."),
        ("An order\n    over two lines. And more.\n\n    Not this.", "An order over two lines."),
        ("Things, e.g. orders. More.", "Things, e.g. orders."),
        ("Version 2.5 of it! More.", "Version 2.5 of it!"),
        ("No end\n\nAnother paragraph.", "No end"),
        ("Order(id, number)", ""),
        ("x" * 300, f"{'x' * 200}…"),
        ("", ""),
        (None, ""),
    ],
)
def test_the_first_sentence_of_a_class_is_its_own(text, sentence):
    order = type("Order", (), {"__doc__": text})
    assert first_sentence(order) == sentence
    # What is inherited says what something else is.
    assert first_sentence(type("Sub", (order,), {})) == ""
