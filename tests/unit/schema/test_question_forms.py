"""Kinds of answers as forms of plain fields, and what is read from them."""

import enum
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import pytest
from django import forms
from django.core.exceptions import ImproperlyConfigured
from django.db import models
from mcp_types import ElicitRequestFormParams

from mcp_django.exceptions import Declined
from mcp_django.protocol.client_requests import ClientRequest
from mcp_django.schema.annotations import Param
from mcp_django.schema.question_forms import question_form
from tests.testapp.models import Author


class Colour(enum.Enum):
    RED = "red"
    GREEN = 2


class Size(models.TextChoices):
    SMALL = "s", "Small one"
    LARGE = "l", "Large one"


@dataclass
class Parcel:
    """A parcel.

    Attributes:
        weight: In kilograms
    """

    weight: Annotated[float, Param(minimum=0.1, maximum=30)]
    sizes: list[Size] = field(default_factory=list)
    fragile: bool = False
    ready: date | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if self.fragile and self.weight > 20:
            raise ValueError("Fragile parcels weigh 20 kg at most.")


class Place(TypedDict):
    city: str
    floor: int | None


def only(kind: Any, key: str = "", **options: Any) -> dict[str, Any]:
    [found] = question_form(kind, key, **options).schema["properties"].values()
    assert isinstance(found, dict)
    return found


def refusal(kind: Any, content: dict[str, Any], key: str = "") -> str:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        question_form(kind, key).read(content)
    return str(error.value)


@pytest.mark.parametrize(
    ("kind", "schema", "entered", "value"),
    [
        (bool, {"type": "boolean"}, True, True),
        (bool, {"type": "boolean"}, False, False),
        (str, {"type": "string"}, "", ""),
        (int, {"type": "integer"}, 7, 7),
        (float, {"type": "number"}, 7, 7.0),
        (Decimal, {"type": "number"}, 0.1, Decimal("0.1")),
        (Decimal, {"type": "number"}, "12.50", Decimal("12.50")),
        (date, {"type": "string", "format": "date"}, "2026-07-28", date(2026, 7, 28)),
        (time, {"type": "string", "description": "(time of day, such as 14:30:00)"}, "14:30", time(14, 30)),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "b", "b"),
        (Literal[1, 2], {"type": "string", "enum": ["1", "2"]}, "2", 2),
        (Literal[True, "x"], {"type": "string", "enum": ["true", "x"]}, "true", True),
        (Colour, {"type": "string", "enum": ["red", "2"]}, "2", Colour.GREEN),
        (Size, {"type": "string", "oneOf": [{"const": "s", "title": "Small one"},
                                            {"const": "l", "title": "Large one"}]}, "l", Size.LARGE),
        (["a", 2], {"type": "string", "enum": ["a", "2"]}, "2", 2),
        ([("a", "Ä"), (2, "Two")], {"type": "string", "oneOf": [{"const": "a", "title": "Ä"},
                                                                {"const": "2", "title": "Two"}]}, "2", 2),
        (list[Literal["a", "b"]], {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, ["b"], ["b"]),
        (set[Size], {"type": "array", "items": {"anyOf": [{"const": "s", "title": "Small one"},
                                                          {"const": "l", "title": "Large one"}]}},
         ["s", "s"], {Size.SMALL}),
        (Annotated[int, Param("Pieces", minimum=1, maximum=9)],
         {"type": "integer", "minimum": 1, "maximum": 9, "description": "Pieces"}, 9, 9),
        (Annotated[Decimal, Param(minimum=Decimal("0.5"))], {"type": "number", "minimum": 0.5}, 1, Decimal(1)),
        (Annotated[str, Param(min_length=2, max_length=3)], {"type": "string", "minLength": 2, "maxLength": 3},
         "abc", "abc"),
        (Annotated[list[Literal["a"]], Param(min_items=1)],
         {"type": "array", "items": {"type": "string", "enum": ["a"]}, "minItems": 1}, ["a"], ["a"]),
    ],
    ids=str,
)  # fmt: skip
def test_a_single_value_is_one_field(kind: Any, schema: Any, entered: Any, value: Any) -> None:
    found = question_form(kind)
    assert found.schema["properties"] == {"value": {**schema, "title": "Answer"}}
    assert found.schema["required"] == ["value"]
    assert found.read({"value": entered}) == value
    assert type(found.read({"value": entered})) is type(value)
    ElicitRequestFormParams.model_validate(
        {"message": "?", "requestedSchema": ClientRequest.requested_schema(found.schema, "2026-07-28")}
    )


def test_a_moment_has_the_time_zone_that_fields_expect() -> None:
    assert only(datetime)["format"] == "date-time"
    assert question_form(datetime).read({"value": "2026-07-28T10:00:00"}).tzinfo is not None


def test_a_key_names_the_field() -> None:
    assert only(str, "ship_to") == {"type": "string", "title": "Ship to"}
    assert question_form(UUID, "id").read({"id": "123e4567-e89b-12d3-a456-426614174000"}).version == 1


def test_what_may_be_left_out_is_not_required() -> None:
    found = question_form(int | None)
    assert "required" not in found.schema
    assert [found.read(content) for content in ({}, {"value": ""}, {"value": 7})] == [None, None, 7]


def test_a_default_stands_in_for_what_is_left_out() -> None:
    assert only(Size, "size", default=Size.LARGE)["default"] == "l"
    assert only(int, default=3)["default"] == 3
    assert only(Decimal, default=Decimal("2.50"))["default"] == 2.5
    assert only([1, 2], default=2)["default"] == "2"
    found = question_form(Size, "size", Size.LARGE)
    assert (found.read({}), found.read({"size": ""}), found.read({"size": "s"})) == (Size.LARGE, Size.LARGE, Size.SMALL)


def test_78_consent_is_a_yes() -> None:
    found = question_form(None)
    assert found.schema["required"] == ["_confirm"]
    assert found.read({"_confirm": "yes"}) is True
    for content in ({}, {"_confirm": "no"}, {"_confirm": ""}, {"other": "yes"}):
        with pytest.raises(Declined):
            found.read(content)


def test_a_dataclass_is_a_form_and_its_instance_the_answer() -> None:
    found = question_form(Parcel)
    assert found.schema["required"] == ["weight"]
    assert list(found.schema["properties"]) == ["weight", "sizes", "fragile", "ready", "note"]
    assert found.schema["properties"]["weight"]["description"] == "In kilograms"
    assert found.schema["properties"]["fragile"] == {"type": "boolean", "title": "Fragile", "default": False}
    entered = {"weight": 2, "sizes": ["l"], "ready": "", "note": "", "unknown": 1}
    assert found.read(entered) == Parcel(2.0, [Size.LARGE])


def test_78_everything_wrong_is_told_at_once() -> None:
    text = refusal(Parcel, {"weight": 31, "ready": "soon", "fragile": "perhaps"})
    assert "Weight: must be 0.1 to 30, got 31." in text
    assert "Ready: expected an ISO 8601 date" in text
    assert "Fragile: expected true or false" in text
    assert refusal(Parcel, {}) == "Weight: This field is required."
    assert refusal(bool, {}) == "This field is required."
    assert refusal(Parcel, {"weight": 25, "fragile": True}) == "Fragile parcels weigh 20 kg at most."


def test_a_typed_dict_is_a_form() -> None:
    found = question_form(Place)
    assert found.schema["required"] == ["city"]
    assert found.read({"city": "Rome"}) == {"city": "Rome", "floor": None}


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (bool, {"value": "perhaps"}),
        (bool, {"value": 1}),
        (int, {"value": True}),
        (int, {"value": 1.5}),
        (str, {"value": 5}),
        (str, {}),
        (Literal["a"], {"value": "b"}),
        (list[Literal["a"]], {"value": "a"}),
        (list[Literal["a"]], {"value": ["b"]}),
        (Annotated[list[Literal["a"]], Param(min_items=1)], {"value": []}),
    ],
    ids=str,
)
def test_78_what_does_not_fit_is_refused(kind: Any, content: dict[str, Any]) -> None:
    assert refusal(kind, content)


@pytest.mark.parametrize(
    "kind",
    [Author, list[str], dict[str, int], list[Parcel], int | str, Any, object, [], complex, len],
    ids=str,
)
def test_what_no_form_can_ask_is_a_mistake_of_the_project(kind: Any) -> None:
    with pytest.raises(ImproperlyConfigured):
        question_form(kind)


# Schemas


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "one": {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
        "titled": {"type": "string", "oneOf": [{"const": "c", "title": "C"}]},
        "many": {"type": "array", "items": {"type": "string", "enum": ["d", "e"]}, "maxItems": 1},
        "names": {"type": "array", "items": {"anyOf": [{"const": "f", "title": "F"}]}},
        "count": {"type": "integer", "minimum": 1},
        "size": {"type": "number", "maximum": 2},
        "sure": {"type": "boolean"},
        "text": {"type": "string", "maxLength": 3},
    },
    "required": ["text"],
}


def test_a_schema_is_sent_as_it_is_and_its_content_is_checked() -> None:
    found = question_form(SCHEMA)
    assert found.schema is SCHEMA
    assert found.read({"text": "abc", "one": "b", "many": ["e"], "count": 2, "x": 1}) == {
        **{"one": "b", "many": ["e"], "count": 2, "text": "abc"}
    }


@pytest.mark.parametrize(
    "wrong",
    [{"text": "abcd"}, {"one": "c"}, {"titled": "C"}, {"many": ["d", "e"]}, {"many": ["x"]}, {"names": ["F"]},
     {"count": 0}, {"size": 3}, {"sure": "no?"}],
    ids=str,
)  # fmt: skip
def test_78_what_the_schema_does_not_admit_is_refused(wrong: Any) -> None:
    assert refusal(SCHEMA, {"text": "abc", **wrong}).startswith(f"{next(iter(wrong)).capitalize()}: ")
    assert refusal(SCHEMA, {}) == "Text: This field is required."


@pytest.mark.parametrize(
    "field_",
    [{"type": "object"}, {}, {"type": "array", "items": {"type": "string"}}, {"type": "null"}, {"type": ["string"]}],
    ids=str,
)
def test_a_schema_of_no_form_is_a_mistake_of_the_project(field_: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match="not one of a form"):
        question_form({"type": "object", "properties": {"x": field_}})


class NameForm(forms.Form):
    name = forms.CharField(max_length=3)


@pytest.mark.parametrize("form", [NameForm, NameForm(initial={"name": "Ada"})], ids=["class", "instance"])
def test_a_django_form_is_a_form(form: Any) -> None:
    assert "maxLength" in question_form(form).schema["properties"]["name"]
    assert question_form(form).read({"name": "Bob"}) == {"name": "Bob"}
    assert refusal(form, {"name": "Robert"}).startswith("Name: Ensure this value has at most 3 characters")
