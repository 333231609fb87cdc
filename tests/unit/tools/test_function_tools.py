"""Tools made of functions: their definition, their arguments, their results."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from decimal import Decimal
from types import SimpleNamespace
from typing import Annotated, Any, TypedDict

import orjson
import pytest
from django.core.exceptions import ImproperlyConfigured, ValidationError
from jsonschema import Draft202012Validator

from mcp_django.context.call_record import CallRecord
from mcp_django.context.tool_results import ToolResult
from mcp_django.exceptions import Cancelled, ToolError
from mcp_django.protocol.content import Audio, EmbeddedResource, Image, Text
from mcp_django.schema.annotations import Header
from mcp_django.tools.base import Tool
from mcp_django.tools.function_tools import FunctionTool
from tests.testapp.models import Author
from tests.tool_calls import request_of

REQUEST: Any = SimpleNamespace(
    mcp=SimpleNamespace(record=CallRecord(), approvals=None), user=SimpleNamespace(has_perms=lambda wanted: False)
)


@dataclass
class Month:
    month: int
    revenue: Decimal


class Totals(TypedDict):
    orders: int


def revenue_by_month(request: Any, year: int) -> list[Month]:
    """Revenue of each month.

    Args:
        year: Calendar year
    """
    return [Month(1, Decimal("9.90"))]


def wire(function: Callable[..., Any], arguments: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    options = {"name": "tool", "destructive": False, **options}
    result = FunctionTool(function, **options).call(REQUEST, arguments or {})
    assert isinstance(result, ToolResult)
    return result.to_wire()


def returning(value: Any, annotation: Any = None) -> Callable[..., Any]:
    def function(request: Any) -> Any:
        return value

    function.__annotations__["return"] = annotation
    if annotation is None:
        del function.__annotations__["return"]
    return function


def test_R27_a_definition_has_title_schemas_and_every_hint() -> None:
    tool = FunctionTool(revenue_by_month, read_only=True, meta={"example/key": 1})
    definition = tool.definition()
    assert definition == {
        "name": "revenue_by_month",
        "title": "Revenue by month",
        "description": "Revenue of each month.",
        "inputSchema": {
            "type": "object",
            "properties": {"year": {"type": "integer", "description": "Calendar year"}},
            "required": ["year"],
            "additionalProperties": False,
        },
        "outputSchema": tool.output_schema,
        "annotations": {
            "readOnlyHint": True,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": False,
        },
        "_meta": {"example/key": 1},
    }
    assert isinstance(tool, Tool)


def test_options_go_before_what_the_function_says() -> None:
    tool = FunctionTool(revenue_by_month, name="sales", title="Sales", description="Text", destructive=False)
    assert (tool.name, tool.title, tool.description, tool.destructive) == ("sales", "Sales", "Text", False)


@pytest.mark.parametrize(
    ("options", "scopes"),
    [
        ({}, {"mcp:write"}),
        ({"read_only": True}, {"mcp:read"}),
        ({"scopes": ["a", "b"]}, {"a", "b"}),
        ({"scopes": []}, set()),
    ],
)
def test_a_tool_that_may_write_needs_the_scope_to_write(options: dict[str, Any], scopes: set[str]) -> None:
    assert FunctionTool(revenue_by_month, **options).scopes == scopes


@pytest.mark.parametrize("name", ["", "Not A Name", "UPPER", "a-b", "a.b", "é", "x" * 65, "a\n"])
def test_a_name_that_clients_would_mangle_is_refused(name: str) -> None:
    function = returning("")
    function.__name__ = name
    with pytest.raises(ImproperlyConfigured, match="cannot name a tool"):
        FunctionTool(function, destructive=False)


def test_permissions_and_condition_decide_who_sees_the_tool() -> None:
    assert FunctionTool(revenue_by_month, destructive=False).has_permission(REQUEST)
    assert not FunctionTool(revenue_by_month, permissions=["shop.view_order"], destructive=False).has_permission(
        REQUEST
    )
    assert not FunctionTool(revenue_by_month, permission=lambda request: False, destructive=False).has_permission(
        REQUEST
    )


# Results


def test_R20_a_list_is_structured_and_the_text_is_the_same_json() -> None:
    found = wire(revenue_by_month, {"year": "2026"})
    assert orjson.dumps(found["structuredContent"]).decode() == '{"result":[{"month":1,"revenue":"9.90"}]}'
    assert found["content"] == [{"type": "text", "text": '{"result":[{"month":1,"revenue":"9.90"}]}'}]


@pytest.mark.parametrize(
    ("value", "annotation", "structured", "text"),
    [
        (Month(1, Decimal("1")), Month, True, '{"month":1,"revenue":"1"}'),
        (Month(1, Decimal("1")), None, True, '{"month":1,"revenue":"1"}'),
        ({"orders": 1}, Totals, True, '{"orders":1}'),
        ({"a": float("nan")}, dict, True, '{"a":null}'),
        ([1, 2], None, True, '{"result":[1,2]}'),
        ([], list[Month], True, '{"result":[]}'),
        (5, int, True, '{"result":5}'),
        (None, int | None, True, '{"result":null}'),
        (Month(1, Decimal("1")), Month | None, True, '{"result":{"month":1,"revenue":"1"}}'),
        (Author(pk=1, name="Ada"), None, True, '{"pk":1,"label":"Ada"}'),
        ("text", str, False, "text"),
        ("text", None, False, "text"),
        ("a\ud800", str, False, "a\ufffd"),
        ("", None, False, ""),
        (None, None, False, ""),
    ],
)
def test_what_a_function_returns_is_text_or_structure(value: Any, annotation: Any, structured: bool, text: str) -> None:
    found = wire(returning(value, annotation))
    assert found["content"] == [{"type": "text", "text": text}]
    assert ("structuredContent" in found) is structured


@pytest.mark.parametrize("value", ["x", None, 5, [Month(1, Decimal("1"))], {"a": 1}])
def test_structure_can_be_forced_and_forbidden(value: Any) -> None:
    assert "structuredContent" in wire(returning(value), structured=True)
    found = wire(returning(value, list), structured=False)
    assert "structuredContent" not in found
    assert found["content"][0]["type"] == "text"


def test_text_may_be_announced_as_structure() -> None:
    tool = FunctionTool(returning("x", str), name="tool", structured=True, destructive=False)
    assert tool.output_schema is not None
    assert FunctionTool(returning("x", str), name="tool", destructive=False).output_schema is None


PNG = Image(b"png")


@pytest.mark.parametrize(
    ("value", "types"),
    [
        (PNG, ["image"]),
        ([PNG, "text", Audio(b"a")], ["image", "text", "audio"]),
        ((Text("a"), EmbeddedResource("x://y", "z")), ["text", "resource"]),
        (ToolResult(content=[PNG]), ["image"]),
        (b"bytes", ["resource"]),
    ],
)
@pytest.mark.parametrize("annotation", [None, Image, list[Text | Image], ToolResult, str | Image])
def test_content_blocks_are_handed_on(value: Any, types: list[str], annotation: Any) -> None:
    tool = FunctionTool(returning(value, annotation), name="tool", destructive=False)
    assert tool.output_schema is None
    found = wire(returning(value, annotation))
    assert [block["type"] for block in found["content"]] == types
    assert "structuredContent" not in found


def test_R21_a_result_of_another_kind_than_announced_is_a_failure_of_the_tool() -> None:
    with pytest.raises(TypeError, match="announces an object"):
        wire(returning(None, Month))


def test_every_structured_result_fits_the_announced_schema() -> None:
    tool = FunctionTool(revenue_by_month, destructive=False)
    result = tool.call(REQUEST, {"year": 2026})
    assert isinstance(result, ToolResult)
    assert tool.output_schema is not None
    Draft202012Validator(dict(tool.output_schema)).validate(result.structured)


def test_an_annotation_that_cannot_be_read_announces_nothing() -> None:
    def function(request: Any) -> "Nowhere":  # type: ignore[name-defined]  # noqa: F821
        return 1

    assert FunctionTool(function, destructive=False).output_schema is None
    assert wire(function)["content"][0]["text"] == '{"result":1}'


# Calls


def test_R26_a_wrong_argument_is_a_text_for_the_model_and_nothing_runs() -> None:
    calls: list[int] = []

    def act(request: Any, number: int) -> None:
        calls.append(number)

    for arguments in (
        {},
        {"number": None},
        {"number": "1; DROP"},
        {"number": 1, "self": 2},
        {"number": 1, "request": 2},
    ):
        with pytest.raises(ToolError, match="Valid arguments: number"):
            FunctionTool(act, destructive=False).call(REQUEST, arguments)
    assert calls == []


def test_djangos_refusals_are_text_and_other_errors_pass() -> None:
    def invalid(request: Any) -> None:
        raise ValidationError("Too late.")

    def broken(request: Any) -> None:
        raise KeyError("secret")

    with pytest.raises(ToolError, match=r"Too late\."):
        FunctionTool(invalid, destructive=False).call(REQUEST, {})
    with pytest.raises(KeyError):
        FunctionTool(broken, destructive=False).call(REQUEST, {})


async def test_an_async_function_is_awaited_on_the_loop() -> None:
    async def greet(request: Any, name: str) -> dict[str, str]:
        return {"hello": name}

    tool = FunctionTool(greet, destructive=False)
    assert (tool.is_async, tool.slow) == (True, False)
    outcome: Any = tool.call(REQUEST, {"name": "Ada"})
    assert (await outcome).structured == {"hello": "Ada"}
    assert FunctionTool(revenue_by_month, destructive=False).slow


def test_a_schema_of_the_authors_own_is_sent_unchanged() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"a": {"$anchor": "b"}},
        "properties": {"name": {"$ref": "#/$defs/a"}},
        "allOf": [{"anyOf": [{"required": ["name"]}]}],
        "additionalProperties": False,
    }

    def take(request: Any, **contact: Any) -> str:
        return ",".join(contact)

    assert FunctionTool(take, input_schema=schema, destructive=False).definition()["inputSchema"] == schema
    assert wire(take, {"name": 1}, input_schema=schema)["content"][0]["text"] == "name"
    with pytest.raises(ToolError, match="other: unknown"):
        wire(take, {"other": 1}, input_schema=schema)


def test_a_parameter_can_be_mirrored_in_a_header() -> None:
    def act(request: Any, region: Annotated[str, Header("Region")]) -> str:
        return region

    assert (
        FunctionTool(act, destructive=False).definition()["inputSchema"]["properties"]["region"]["x-mcp-header"]
        == "Region"
    )


@pytest.mark.parametrize("value", ["x" * 50_000, {"text": "x" * 50_000}, [Text("x" * 30_000), Text("x" * 30_000)]])
def test_D83_a_result_that_no_client_could_show_is_refused_with_the_bound(value: Any) -> None:
    with pytest.raises(ToolError, match="at most 40000 are sent"):
        wire(returning(value))


def test_D83_a_picture_is_not_text() -> None:
    assert wire(returning(Image(b"x" * 50_000)))["content"][0]["type"] == "image"


def test_a_name_may_have_64_characters() -> None:
    function = returning("")
    function.__name__ = "x" * 64
    assert FunctionTool(function, destructive=False).name == "x" * 64


# Generators


def test_a_generator_reports_its_progress_and_returns_its_result() -> None:
    def steps(request: Any, count: int) -> Generator[tuple[int, int], None, dict[str, int]]:
        for number in range(1, count + 1):
            yield number, count
        return {"steps": count}

    tool = FunctionTool(steps, destructive=False)
    assert tool.output_schema == FunctionTool(returning({}, dict[str, int]), name="x", destructive=False).output_schema
    request, sent = request_of(None), []
    request.mcp.progress_token = "t"
    request.mcp.notify = lambda method, params: sent.append((params["progress"], params["total"]))
    result = tool.call(request, {"count": 1})
    assert isinstance(result, ToolResult)
    assert result.structured == {"steps": 1}
    assert sent == [(1, 1)]


def test_H154_a_generator_that_nobody_waits_for_ends() -> None:
    seen: list[str] = []

    def steps(request: Any) -> Any:
        yield "first"
        seen.append("went on")

    request = request_of(None)
    request.mcp.cancelled = True
    with pytest.raises(Cancelled):
        FunctionTool(steps, destructive=False).call(request, {})
    assert seen == []


def test_only_who_can_confirm_a_call_can_be_named():
    with pytest.raises(ImproperlyConfigured, match="confirm of the tool pay is 'user'"):
        FunctionTool(lambda request: "", name="pay", confirm="user")
    assert FunctionTool(lambda request: "", name="pay", confirm="person").only_person_confirms()
