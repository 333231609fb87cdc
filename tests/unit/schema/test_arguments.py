"""Arguments of a function: its signature as a schema, and validation as keyword arguments."""

import functools
from datetime import date
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from jsonschema import Draft202012Validator

from mcp_django.context.call_record import CallRecord
from mcp_django.exceptions import NotFound, ToolError
from mcp_django.schema.annotations import Header, Param
from mcp_django.schema.arguments import ArgumentSchema
from tests.testapp.models import Author, Book

if TYPE_CHECKING:
    from django.http import HttpRequest


def find(
    self: Any,
    request: "HttpRequest",
    queryset: Any,
    year: Annotated[int, Param("Calendar year", minimum=2000, maximum=2100)],
    *,
    status: Book.Status = Book.Status.DRAFT,
    since: date | None = None,
    tags: list[str] | None = None,
    limit: int = 20,
) -> None:
    """Find books.

    Args:
        limit: Rows.
        since: First day
    """


class Site:
    def get_object(self, request: Any, model: Any, pk: Any) -> Any:
        if pk != 7:
            raise NotFound
        return Author(pk=7)


REQUEST: Any = SimpleNamespace(mcp=SimpleNamespace(site=Site(), record=CallRecord()))


def refused(schema: ArgumentSchema, arguments: dict[str, Any]) -> str:
    with pytest.raises(ToolError) as caught:
        schema.validate(arguments, REQUEST)
    return caught.value.message


def test_R18_the_schema_of_a_signature_is_flat_and_speaks_in_words() -> None:
    schema = ArgumentSchema.of_signature(find).schema
    Draft202012Validator.check_schema(dict(schema))
    assert schema == {
        "type": "object",
        "properties": {
            "year": {
                "type": "integer",
                "minimum": 2000,
                "maximum": 2100,
                "description": "Calendar year (2000 to 2100)",
            },
            "status": {
                "type": "string",
                "enum": ["draft", "published", "withdrawn"],
                "default": "draft",
                "description": '(draft = In preparation, default "draft")',
            },
            "since": {
                "type": "string",
                "description": "First day (ISO 8601 date, such as 2026-07-28)",
            },
            "tags": {"type": "array", "items": {"type": "string"}},
            "limit": {"type": "integer", "default": 20, "description": "Rows. (default 20)"},
        },
        "required": ["year"],
        "additionalProperties": False,
    }


def test_R18_properties_are_there_even_when_there_are_none() -> None:
    def nothing(request: Any) -> None: ...

    assert ArgumentSchema.of_signature(nothing).schema == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }


def test_R19_what_models_write_is_read() -> None:
    found = ArgumentSchema.of_signature(find).validate(
        {"year": "2026", "since": "2026-07-28", "tags": '["a"]', "wait_for_previous": True}, REQUEST
    )
    assert found == {"year": 2026, "since": date(2026, 7, 28), "tags": ["a"]}


def test_what_is_left_out_is_left_to_the_functions_defaults() -> None:
    assert ArgumentSchema.of_signature(find).validate({"year": 2026}, REQUEST) == {"year": 2026}
    found = ArgumentSchema.of_signature(find).validate({"year": 2026, "limit": None, "since": None}, REQUEST)
    assert found == {"year": 2026, "since": None}


def test_a_parameter_of_that_name_is_not_ignored() -> None:
    def act(request: Any, wait_for_previous: bool) -> None: ...

    assert ArgumentSchema.of_signature(act).validate({"wait_for_previous": "true"}, REQUEST) == {
        "wait_for_previous": True
    }


def test_R26_a_refusal_names_every_wrong_argument_and_the_valid_ones() -> None:
    assert refused(ArgumentSchema.of_signature(find), {"yeer": 2026, "limit": "many", "status": "gone"}) == (
        "Invalid arguments. yeer: unknown, did you mean year?. year: missing. "
        'status: expected one of "draft", "published", "withdrawn", got "gone". '
        'limit: expected an integer, got "many". '
        "Valid arguments: year (required), status, since, tags, limit."
    )


def test_a_function_without_arguments_says_so() -> None:
    assert refused(ArgumentSchema([]), {"a": 1}).endswith(" There are no arguments.")


@pytest.mark.parametrize(
    "name", ["__proto__", "__class__", "constructor", "self", "request", "cls", "args", "kwargs", "queryset", ""]
)
def test_43_no_name_reaches_the_functions_own_parameters(name: str) -> None:
    assert f"{name or repr(name)}: unknown".replace("'", '"') in refused(
        ArgumentSchema.of_signature(find), {"year": 2026, name: 1}
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"year": 2026, **{f"x{number}" * 100: number for number in range(5_000)}},
        {"year": 2026, "tags": [1] * 10_000},
        {"year": "y" * 1_000_000},
    ],
)
def test_R26_a_refusal_stays_short(arguments: dict[str, Any]) -> None:
    message = refused(ArgumentSchema.of_signature(find), arguments)
    assert len(message) < 1_500
    assert message.endswith("limit.")


def test_R26_of_many_problems_the_first_are_named_and_the_others_counted() -> None:
    message = refused(ArgumentSchema.of_signature(find), {"year": 2026, "tags": [1] * 10_000})
    assert "tags[7]" in message
    assert "tags[8]" not in message
    assert "and 9992 more" in message


def test_42_references_in_arguments_are_plain_data() -> None:
    def act(request: Any, data: dict[str, Any]) -> None: ...

    data = {"$ref": "http://evil.example/schema", "$schema": "http://evil.example/dialect"}
    assert ArgumentSchema.of_signature(act).validate({"data": data}, REQUEST) == {"data": data}


def test_a_hidden_row_is_a_refusal_that_the_model_can_read() -> None:
    def act(request: Any, author: Author, others: list[Author] | None = None) -> None: ...

    schema = ArgumentSchema.of_signature(act)
    assert schema.needs_database
    assert schema.validate({"author": 7}, REQUEST)["author"].pk == 7
    assert "others[1]: no author with pk 8" in refused(schema, {"author": 7, "others": [7, 8]})


def test_a_type_is_guessed_from_a_plain_default_or_taken_from_the_caller() -> None:
    def act(request: Any, number=5, word="x"): ...  # type: ignore[no-untyped-def]
    def text(request: Any, word): ...  # type: ignore[no-untyped-def]

    assert ArgumentSchema.of_signature(act).schema["properties"]["number"]["type"] == "integer"
    assert ArgumentSchema.of_signature(text, untyped=str).schema["properties"]["word"] == {"type": "string"}
    with pytest.raises(ImproperlyConfigured, match="word needs a type annotation"):
        ArgumentSchema.of_signature(text)


def test_decorated_functions_keep_their_signature() -> None:
    @functools.wraps(find)
    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    assert ArgumentSchema.of_signature(wrapper).schema == ArgumentSchema.of_signature(find).schema


def positional(request: Any, number: int, /) -> None: ...
def several(request: Any, *numbers: int) -> None: ...
def anything(request: Any, **options: int) -> None: ...
def unreadable(request: Any, number: "Nothing") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def no_json(request: Any, number: bytes) -> None: ...
def two_headers(request: Any, a: Annotated[str, Header("X")], b: Annotated[str, Header("x")]) -> None: ...
def bad_header(request: Any, a: Annotated[str, Header("X Y")]) -> None: ...


@pytest.mark.parametrize(
    "function", [positional, several, anything, unreadable, no_json, two_headers, bad_header], ids=lambda f: f.__name__
)
def test_a_signature_that_clients_cannot_fill_is_refused_with_its_name(function: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match=function.__name__):
        ArgumentSchema.of_signature(function)


# Schemas of the author's own

OWN: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"$anchor": "a", "type": "object"}},
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 200},
        "kind": {"enum": ["a", 1]},
        "address": {"$ref": "#/$defs/address"},
        "request": {"type": ["string", "null"]},
    },
    "required": ["name"],
    "additionalProperties": False,
}


def own(**changes: Any) -> dict[str, Any]:
    properties = {key: value for key, value in OWN["properties"].items() if key != "request"}
    return {**OWN, "properties": properties, **changes}


def take(request: Any, **values: Any) -> None: ...


def test_a_schema_of_the_authors_own_is_sent_unchanged_and_checked_shallowly() -> None:
    schema = ArgumentSchema.of_author(own(), take)
    assert schema.schema == own()
    given = {"name": "x", "age": "5", "kind": 1, "address": {"any": "thing"}, "wait_for_previous": True}
    assert schema.validate(given, REQUEST) == {**{k: v for k, v in given.items() if k != "wait_for_previous"}, "age": 5}
    message = refused(schema, {"age": "x", "kind": "b", "other": 1})
    assert "name: missing" in message
    assert "age: expected an integer" in message
    assert "kind: expected one of" in message
    assert "other: unknown" in message


def test_43_an_open_schema_admits_other_names_but_never_the_functions_own() -> None:
    schema = ArgumentSchema.of_author({"type": "object"}, take)
    assert schema.schema == {"type": "object", "properties": {}}
    assert schema.validate({"anything": 1, "__proto__": 2}, REQUEST) == {"anything": 1, "__proto__": 2}
    assert "request: unknown" in refused(schema, {"request": 1})


def test_a_required_name_without_a_property_is_required_too() -> None:
    assert "z: missing" in refused(ArgumentSchema.of_author({"type": "object", "required": ["z"]}, take), {})


def narrow(request: Any, name: str, age: int = 0) -> None: ...


@pytest.mark.parametrize(
    ("schema", "function", "message"),
    [
        ({"properties": {}}, take, '"type": "object"'),
        ({"type": "object", "properties": []}, take, '"type": "object"'),
        (OWN, take, "cannot take every property"),
        (own(), narrow, "cannot take every property"),
        ({"type": "object", "properties": {"name": {}}}, narrow, "name has no default"),
        ({"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}, take, "x-mcp-header"),
    ],
)
def test_a_schema_that_the_function_cannot_take_is_refused(schema: Any, function: Any, message: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=message):
        ArgumentSchema.of_author(schema, function)
