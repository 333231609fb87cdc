"""Forms of elicitation by revision, and the answers to them in the form that was meant."""

from typing import Any

import pytest

from mcp_django.protocol.client_requests import ClientRequest, restore
from tests.protocol_messages import MODERN
from tests.protocol_schemas import check_wire

pytestmark = pytest.mark.one_django

# The revisions that know forms; the oldest of them knows less than the others.
OLD, NEW = "2025-06-18", ("2025-11-25", MODERN)
COLOURS = [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]
AS_TEXT = "Any of these, with ',' between them: "


def form(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


def field(definition: dict[str, Any], version: str) -> dict[str, Any]:
    """The field as the revision's clients get it; it is one of the revision's schema, and no more."""
    wire = ClientRequest.requested_schema(form(a=definition), version)
    found: dict[str, Any] = wire["properties"]["a"]
    check_wire(version, "PrimitiveSchemaDefinition", found)
    return found


PLAIN: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "string", "title": "T", "description": "d", "minLength": 1, "maxLength": 9},
    *({"type": "string", "format": name} for name in ("date", "date-time", "email", "uri")),
    {"type": "number", "minimum": 0.5, "maximum": 9},
    {"type": "integer", "title": "T", "minimum": 0},
    {"type": "boolean", "default": False},
    {"type": "string", "enum": ["a", "b"]},
]


@pytest.mark.parametrize("version", [OLD, *NEW])
@pytest.mark.parametrize("definition", PLAIN)
def test_what_every_revision_knows_stays_as_it_is(definition: dict[str, Any], version: str) -> None:
    assert field(definition, version) == definition


@pytest.mark.parametrize("version", [OLD, *NEW])
@pytest.mark.parametrize(
    ("definition", "wire"),
    [
        ({"type": "string", "pattern": "^a+$", "format": "time", "x": 1}, {"type": "string"}),
        ({"type": "integer", "exclusiveMinimum": 0, "multipleOf": 5, "format": "int32"}, {"type": "integer"}),
        ({"type": "boolean", "const": True}, {"type": "boolean"}),
        ({"type": "string", "enum": ["a"], "pattern": "a", "maxLength": 3}, {"type": "string", "enum": ["a"]}),
    ],
)
def test_keywords_that_no_form_has_are_left_out(definition: Any, wire: Any, version: str) -> None:
    assert field(definition, version) == wire


@pytest.mark.parametrize(
    "definition",
    [
        {"type": "string", "title": "T", "default": "a"},
        {"type": "integer", "default": 3},
        {"type": "number", "default": 0.5},
        {"type": "string", "enum": ["a", "b"], "default": "a"},
    ],
)
def test_defaults_are_for_those_who_know_them(definition: dict[str, Any]) -> None:
    for version in NEW:
        assert field(definition, version) == definition
    without = {keyword: value for keyword, value in definition.items() if keyword != "default"}
    assert field(definition, OLD) == without


def test_titles_of_choices_are_given_in_the_way_of_the_revision() -> None:
    definition = {"type": "string", "title": "T", "oneOf": COLOURS, "default": "r"}
    for version in NEW:
        assert field(definition, version) == definition
    older = {"type": "string", "title": "T", "enum": ["r", "g"], "enumNames": ["Red", "Green"]}
    assert field(definition, OLD) == older
    assert field(older, OLD) == older


@pytest.mark.parametrize("titled", [{"anyOf": COLOURS}, {"type": "string", "enum": ["r", "g"]}])
def test_several_choices_are_a_list_for_those_who_know_it(titled: dict[str, Any]) -> None:
    definition = {"type": "array", "title": "T", "minItems": 1, "maxItems": 2, "items": titled, "default": ["r"]}
    for version in NEW:
        assert field({**definition, "uniqueItems": True}, version) == definition


@pytest.mark.parametrize(
    ("definition", "description"),
    [
        ({"items": {"type": "string", "enum": ["r", "g"]}}, f"{AS_TEXT}r, g"),
        ({"items": {"anyOf": COLOURS}, "description": "Colours."}, f"Colours. {AS_TEXT}Red, Green"),
        ({"items": {"type": "string", "enum": ["r, s", "g"]}}, "Any of these, with ';' between them: r, s; g"),
        ({"items": {"type": "string", "enum": ["a,b;c|d", "g"]}}, "Any of these, with '\\n' between them: a,b;c|d\n g"),
    ],
)
def test_several_choices_are_a_text_for_those_who_do_not(definition: dict[str, Any], description: str) -> None:
    wire = field({"type": "array", "title": "T", "minItems": 1, "default": ["r"], **definition}, OLD)
    assert wire == {"type": "string", "title": "T", "description": description}


@pytest.mark.parametrize("version", [OLD, *NEW])
@pytest.mark.parametrize(
    "definition",
    [
        {},
        {"type": "object"},
        {"type": "null"},
        {"type": ["string", "null"]},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"type": "array"},
        {"type": "array", "items": {"type": "string"}},
        {"type": "array", "items": {"type": "object"}},
        {"$ref": "#/$defs/a"},
    ],
)
def test_what_is_no_field_of_a_form_is_refused(definition: dict[str, Any], version: str) -> None:
    with pytest.raises(ValueError, match="'a' is not a form field"):
        ClientRequest.requested_schema(form(a=definition), version)


@pytest.mark.parametrize("version", [OLD, *NEW])
def test_numbers_are_texts_with_a_pattern_for_those_who_show_none(version: str) -> None:
    asked = form(
        age={"type": "integer", "title": "Age", "description": "In years", "minimum": 1, "maximum": 120, "default": 5},
        size={"type": "number"},
        name={"type": "string"},
    )
    assert ClientRequest.requested_schema(asked, version, as_text=True)["properties"] == {
        "age": {
            "type": "string",
            "title": "Age",
            "description": "In years (whole number from 1 to 120)",
            "pattern": "^-?[0-9]+$",
        },
        "size": {"type": "string", "description": "(number)", "pattern": r"^-?[0-9]+(\.[0-9]+)?$"},
        "name": {"type": "string"},
    }


@pytest.mark.parametrize("version", [OLD, *NEW])
def test_a_form_is_an_object_that_says_what_it_needs(version: str) -> None:
    schema = {**form(a={"type": "string"}), "required": ["a"], "additionalProperties": False, "$defs": {}, "title": "T"}
    assert ClientRequest.requested_schema(schema, version) == {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
    }
    assert ClientRequest.requested_schema(form(), version) == {"type": "object", "properties": {}}


# Answers


SEVERAL = form(
    a={"type": "array", "items": {"anyOf": COLOURS}},
    b={"type": "array", "items": {"type": "string", "enum": ["x, y", "z"]}},
    c={"type": "string"},
)


@pytest.mark.parametrize(
    ("content", "restored"),
    [
        ({"a": "r"}, {"a": ["r"]}),
        ({"a": "Red, Green"}, {"a": ["r", "g"]}),
        ({"a": " g ,Red,"}, {"a": ["g", "r"]}),
        ({"a": ""}, {"a": []}),
        ({"a": "Blue, r"}, {"a": ["Blue", "r"]}),
        ({"b": "x, y; z"}, {"b": ["x, y", "z"]}),
        ({"c": "r, g"}, {"c": "r, g"}),
        ({"a": 1, "d": "r, g"}, {"a": 1, "d": "r, g"}),
        ({}, {}),
    ],
)
def test_a_text_of_choices_is_a_list_again(content: dict[str, Any], restored: dict[str, Any]) -> None:
    given = dict(content)
    assert restore(content, SEVERAL, OLD) == restored
    assert content == given


@pytest.mark.parametrize("version", NEW)
def test_those_who_know_lists_answer_with_lists(version: str) -> None:
    assert restore({"a": "Red, Green", "b": ["z"]}, SEVERAL, version) == {"a": "Red, Green", "b": ["z"]}


def test_a_choice_that_is_declared_in_the_older_form_is_asked_in_it() -> None:
    declared = {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]}
    for version in (*NEW, OLD):
        assert field(declared, version) == declared
