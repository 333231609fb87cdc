"""What annotations mean, and which are refused."""

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

from mcp_django.schema.annotations import Header, Param, compile_annotation, parameter, unwrap
from mcp_django.schema.container_types import AnyOf, Array, Dictionary, Nullable, Object, Row, Tuple
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
