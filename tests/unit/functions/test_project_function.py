"""A project function: its signature as a schema, and a call as keyword arguments."""

import functools
from collections.abc import Generator
from datetime import date
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from django.core.exceptions import ImproperlyConfigured, PermissionDenied, ValidationError
from django.http import Http404
from django.utils.asyncio import async_unsafe
from jsonschema import Draft202012Validator

from mcp_django.context.call_record import CallRecord
from mcp_django.exceptions import Cancelled, NotFound, ToolError
from mcp_django.functions.project_function import (
    ArgumentSchema,
    ProjectFunction,
    raw_schema,
    result_annotation,
    signature_schema,
    speaking_plainly,
)
from mcp_django.schema.annotations import Header, Param
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
    schema = signature_schema(find).schema
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

    assert signature_schema(nothing).schema == {"type": "object", "properties": {}, "additionalProperties": False}


def test_R19_what_models_write_is_read() -> None:
    found = signature_schema(find).validate(
        {"year": "2026", "since": "2026-07-28", "tags": '["a"]', "wait_for_previous": True}, REQUEST
    )
    assert found == {"year": 2026, "since": date(2026, 7, 28), "tags": ["a"]}


def test_what_is_left_out_is_left_to_the_functions_defaults() -> None:
    assert signature_schema(find).validate({"year": 2026}, REQUEST) == {"year": 2026}
    found = signature_schema(find).validate({"year": 2026, "limit": None, "since": None}, REQUEST)
    assert found == {"year": 2026, "since": None}


def test_a_parameter_of_that_name_is_not_ignored() -> None:
    def act(request: Any, wait_for_previous: bool) -> None: ...

    assert signature_schema(act).validate({"wait_for_previous": "true"}, REQUEST) == {"wait_for_previous": True}


def test_R26_a_refusal_names_every_wrong_argument_and_the_valid_ones() -> None:
    assert refused(signature_schema(find), {"yeer": 2026, "limit": "many", "status": "gone"}) == (
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
        signature_schema(find), {"year": 2026, name: 1}
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
    message = refused(signature_schema(find), arguments)
    assert len(message) < 1_500
    assert message.endswith("limit.")


def test_R26_of_many_problems_the_first_are_named_and_the_others_counted() -> None:
    message = refused(signature_schema(find), {"year": 2026, "tags": [1] * 10_000})
    assert "tags[7]" in message
    assert "tags[8]" not in message
    assert "and 9992 more" in message


def test_42_references_in_arguments_are_plain_data() -> None:
    def act(request: Any, data: dict[str, Any]) -> None: ...

    data = {"$ref": "http://evil.example/schema", "$schema": "http://evil.example/dialect"}
    assert signature_schema(act).validate({"data": data}, REQUEST) == {"data": data}


def test_a_hidden_row_is_a_refusal_that_the_model_can_read() -> None:
    def act(request: Any, author: Author, others: list[Author] | None = None) -> None: ...

    schema = signature_schema(act)
    assert schema.needs_database
    assert schema.validate({"author": 7}, REQUEST)["author"].pk == 7
    assert "others[1]: no author with pk 8" in refused(schema, {"author": 7, "others": [7, 8]})


def test_a_type_is_guessed_from_a_plain_default_or_taken_from_the_caller() -> None:
    def act(request: Any, number=5, word="x"): ...  # type: ignore[no-untyped-def]
    def text(request: Any, word): ...  # type: ignore[no-untyped-def]

    assert signature_schema(act).schema["properties"]["number"]["type"] == "integer"
    assert signature_schema(text, untyped=str).schema["properties"]["word"] == {"type": "string"}
    with pytest.raises(ImproperlyConfigured, match="word needs a type annotation"):
        signature_schema(text)


def test_decorated_functions_keep_their_signature() -> None:
    @functools.wraps(find)
    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    assert signature_schema(wrapper).schema == signature_schema(find).schema


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
        signature_schema(function)


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
    schema = raw_schema(own(), take)
    assert schema.schema == own()
    given = {"name": "x", "age": "5", "kind": 1, "address": {"any": "thing"}, "wait_for_previous": True}
    assert schema.validate(given, REQUEST) == {**{k: v for k, v in given.items() if k != "wait_for_previous"}, "age": 5}
    message = refused(schema, {"age": "x", "kind": "b", "other": 1})
    assert "name: missing" in message
    assert "age: expected an integer" in message
    assert "kind: expected one of" in message
    assert "other: unknown" in message


def test_43_an_open_schema_admits_other_names_but_never_the_functions_own() -> None:
    schema = raw_schema({"type": "object"}, take)
    assert schema.schema == {"type": "object", "properties": {}}
    assert schema.validate({"anything": 1, "__proto__": 2}, REQUEST) == {"anything": 1, "__proto__": 2}
    assert "request: unknown" in refused(schema, {"request": 1})


def test_a_required_name_without_a_property_is_required_too() -> None:
    assert "z: missing" in refused(raw_schema({"type": "object", "required": ["z"]}, take), {})


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
        raw_schema(schema, function)


class SyncSite:
    @async_unsafe
    def get_object(self, request: Any, model: Any, pk: Any) -> Any:
        """Like a query, not to be called where the event loop runs."""
        return model(pk=pk, name="Ada")


def request_of(*permissions: str) -> Any:
    user = SimpleNamespace(has_perms=lambda wanted: set(wanted) <= set(permissions))
    return SimpleNamespace(user=user, mcp=SimpleNamespace(site=SyncSite(), record=CallRecord()))


def double(request: Any, number: int = 1) -> int:
    """Double a number.

    Args:
        number: Any.
    """
    return 2 * number


async def name_of(request: Any, author: Author) -> str:
    return author.name


def test_a_function_has_its_name_texts_and_arguments() -> None:
    function = ProjectFunction(double)
    assert (function.name, function.description, function.is_async) == ("double", "Double a number.", False)
    assert ProjectFunction(double, name="twice", description="Text").name == "twice"
    assert function.arguments.schema["properties"]["number"]["description"] == "Any. (default 1)"


def test_a_call_validates_and_finishes() -> None:
    assert ProjectFunction(double).call(request_of(), {"number": "4"}, str) == "8"
    with pytest.raises(ToolError, match="numbr: unknown, did you mean number"):
        ProjectFunction(double).call(request_of(), {"numbr": 4}, str)


async def test_an_async_function_gets_its_rows_without_blocking_the_loop() -> None:
    outcome: Any = ProjectFunction(name_of).call(request_of(), {"author": 7}, str.upper)
    assert await outcome == "ADA"


async def test_what_an_async_function_returns_may_take_a_query_to_show() -> None:
    async def some(request: Any) -> list[int]:
        return [1]

    outcome: Any = ProjectFunction(some).call(request_of(), {}, async_unsafe(str))
    assert await outcome == "[1]"


async def test_an_async_function_refuses_like_any_other() -> None:
    async def refuse(request: Any) -> str:
        raise PermissionDenied

    outcome: Any = ProjectFunction(refuse).call(request_of(), {}, str)
    with pytest.raises(ToolError, match="Permission denied"):
        await outcome


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValidationError("Too late."), "Invalid: Too late."),
        (ValidationError({"name": ["Empty.", "Odd."], "age": ["Old."]}), "Invalid: name: Empty. Odd.; age: Old."),
        (ValidationError("%(n)s is odd", params={"n": 3}), "Invalid: 3 is odd"),
        (PermissionDenied(), "Permission denied."),
        (PermissionDenied("Ask the owner."), "Ask the owner."),
        (Author.DoesNotExist("Author matching query does not exist."), "Author matching query does not exist."),
        (Http404(), "Not found."),
    ],
)
def test_R26_djangos_refusals_are_text_for_the_model(error: Exception, message: str) -> None:
    with pytest.raises(ToolError) as caught, speaking_plainly():
        raise error
    assert caught.value.message == message


@pytest.mark.parametrize("error", [ToolError("x"), NotFound(), RuntimeError("secret"), Cancelled()])
def test_everything_else_passes(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, speaking_plainly():
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    ("held", "needed", "condition", "expected"),
    [
        ((), (), None, True),
        ((), ("shop.view_order",), None, False),
        (("shop.view_order",), ("shop.view_order",), None, True),
        (("shop.view_order",), ("shop.view_order", "shop.add_order"), None, False),
        ((), (), False, False),
        (("shop.view_order",), ("shop.view_order",), False, False),
        (("shop.view_order",), ("shop.view_order",), True, True),
    ],
)
def test_permissions_and_condition_both_count(held: Any, needed: Any, condition: bool | None, expected: bool) -> None:
    permission = None if condition is None else lambda request: condition
    function = ProjectFunction(double, permissions=needed, permission=permission)
    assert function.has_permission(request_of(*held)) is expected


@pytest.mark.parametrize("permissions", ["shop.view_order", ["view_order"]])
def test_permissions_that_would_never_hold_are_refused(permissions: Any) -> None:
    with pytest.raises(ImproperlyConfigured, match="permissions"):
        ProjectFunction(double, permissions=permissions)


def test_the_request_comes_first() -> None:
    for function in (lambda: 1, lambda number: 1, lambda *, request: 1, lambda number, request: 1):
        with pytest.raises(ImproperlyConfigured, match="request"):
            ProjectFunction(function)


def test_the_result_of_a_generator_is_what_it_returns():
    assert result_annotation(Generator[tuple[int, int], None, dict[str, int]]) == dict[str, int]
    assert result_annotation(dict[str, int]) == dict[str, int]
