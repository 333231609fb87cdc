"""Right messages of every method of every revision, drawn from the schemas of the protocol's own types."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from hypothesis import strategies as st
from mcp_types.methods import CLIENT_NOTIFICATIONS, CLIENT_REQUESTS

from mcp_django.protocol.tasks import EXTENSION
from mcp_django.protocol.tasks import METHODS as TASK_METHODS
from tests.protocol_messages import CAPABILITIES_KEY, CLIENT_KEY, LEGACY, LOG_LEVEL_KEY, MODERN, VERSION_KEY

Draw = Callable[[st.SearchStrategy[Any]], Any]

MAX_DEPTH = 4
TEXT = st.text(max_size=8)
# Names that lead into the project under test, where made up ones would end at the door.
TOOLS = (
    "list_models",
    "describe_model",
    "query_records",
    "get_record",
    "aggregate_records",
    "create_record",
    "update_record",
    "delete_record",
    "undo_change",
    "run_action",
    "test_simple_text",
    "test_error_handling",
    "test_x_mcp_header",
    "json_schema_2020_12_tool",
    "write_note",
    "change_note",
    "look_for_cancellation",
    "test_tool_with_logging",
    "test_tool_with_progress",
    "test_structured",
    "test_elicitation",
    "test_elicitation_sep1330_enums",
    "test_sampling",
    "test_input_required_result_elicitation",
    "test_input_required_result_multi_round",
    "greet",
    "confirm_delete",
    "multi_input",
    "failing_job",
)
PROMPTS = ("test_simple_prompt", "test_prompt_with_arguments", "test_prompt_with_embedded_resource")
URIS = (
    "test://static-text",
    "test://watched-resource",
    "test://template/1/data",
    "test://template/{id}/data",
    "django://conformance/note",
    "django://conformance/note/1",
    "django://conformance/note/schema",
    "django://conformance/note?cursor=x&search=%00",
    "django://auth/user/1",
    "file:///etc/passwd",
)
KNOWN: Mapping[str, tuple[Any, ...]] = {
    "name": (*TOOLS, *PROMPTS),
    "uri": URIS,
    "cursor": ("", "x", "eyJ", "\N{SNOWMAN}"),
    "protocolVersion": (*LEGACY, MODERN, "1900-01-01"),
    "level": ("debug", "info", "emergency"),
    "progressToken": ("p", 1, 0, -1),
    "requestState": ("", "sealed:state", "a" * 300),
    "requestId": (1, "1", 0, -7),
    "taskId": ("0" * 32, "x", "", "\x00", "\N{SNOWMAN}" * 300),
    "resourceSubscriptions": ([URIS[0]], list(URIS), []),
}
ARGUMENTS: Mapping[str, tuple[Any, ...]] = {
    "model": ("conformance.note", "auth.user", "conformance.Note", "x.y", ""),
    "pk": (1, "1", 0, -1, 2**63, "x", None),
    "values": ({"title": "x"}, {"id": 1}, {}, []),
    "filters": ({"title": "x"}, {"title__in": ["x"]}, {"title__regex": "(x+)+$"}, {"pk__gte": "x"}),
    "ordering": (["-title"], ["?"], ["pk", "pk"]),
    "fields": (["title"], ["password"], []),
    "search": ("x", "\x00", "%_\\"),
    "limit": (1, 0, 201, "5"),
    "cursor": ("x", "", None),
    "aggregates": ({"n": "count"}, {"n": "sum:id"}),
    "group_by": (["title"], ["title__x"]),
    "title": ("x", "", "\x00", "x" * 1000),
    "name": ("fuzz", ""),
    "note": (1, "django://conformance/note/1"),
    "action": ("delete_selected", "x"),
    "pks": ([1], [], ["x"]),
    "message": ("Who are you?", ""),
    "prompt": ("x",),
    "city": ("Kassel",),
    "region": ("eu", "\N{SNOWMAN}"),
    "confirm_token": ("x", "x:y:z"),
    "confirm": (True, "yes"),
}


@cache
def _up_to(most: int) -> st.SearchStrategy[int]:
    return st.integers(0, most)


def below(draw: Draw, number: int) -> int:
    """A number from 0 that is less than `number`."""
    return draw(_up_to(number - 1))


def chance(draw: Draw, one_in: int) -> bool:
    """Whether something happens that happens so often. The first and the last number are drawn far more often."""
    return below(draw, one_in) == one_in // 2


def pick(draw: Draw, values: Sequence[Any]) -> Any:
    """One of the values. Strategies are dear to make, and these are all the same."""
    return values[below(draw, len(values))]


@cache
def methods(version: str) -> list[str]:
    """The requests of a revision."""
    own = TASK_METHODS if version == MODERN else frozenset()
    return sorted([*own, *(method for method, known in CLIENT_REQUESTS if known == version)])


@cache
def notifications(version: str) -> list[str]:
    """The notifications of a revision."""
    return sorted(method for method, known in CLIENT_NOTIFICATIONS if known == version)


@cache
def schema_of(method: str, version: str) -> dict[str, Any]:
    """The JSON Schema of the parameters, with the definitions that it refers to."""
    if method in TASK_METHODS:
        # The protocol's own types know no extensions.
        call = schema_of("tools/call", version)
        properties = {"taskId": {"type": "string"}}
        if method == "tasks/update":
            properties["inputResponses"] = schema_object(call)["properties"]["inputResponses"]
        return {"type": "object", "properties": properties, "required": list(properties), "$defs": call["$defs"]}
    model = (CLIENT_REQUESTS if (method, version) in CLIENT_REQUESTS else CLIENT_NOTIFICATIONS)[method, version]
    schema = model.model_json_schema(by_alias=True)
    params = schema.get("properties", {}).get("params", {"type": "object"})
    return {**params, "$defs": schema.get("$defs", {})}


def draw_value(
    draw: Draw, schema: Mapping[str, Any], definitions: Mapping[str, Any], name: str = "", depth: int = 0
) -> Any:
    """A value that fits a schema, as far as that matters here."""
    if name == "arguments":
        return draw_arguments(draw)
    if name in KNOWN and not chance(draw, 10):
        return pick(draw, KNOWN[name])
    if "$ref" in schema:
        target = definitions[schema["$ref"].rsplit("/", 1)[-1]]
        return draw_value(draw, target, definitions, name, depth + 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return pick(draw, schema["enum"])
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return draw_value(draw, pick(draw, options), definitions, name, depth)
    match schema.get("type"):
        case "object":
            return draw_object(draw, schema, definitions, depth)
        case "array" if depth < MAX_DEPTH:
            items = schema.get("items", {})
            return [draw_value(draw, items, definitions, "", depth + 1) for _ in range(below(draw, 3))]
        case "array":
            return []
        case "integer" | "number":
            return below(draw, 10) - 5
        case "boolean":
            return chance(draw, 2)
        case "null":
            return None
    return draw(TEXT)


def draw_object(draw: Draw, schema: Mapping[str, Any], definitions: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """An object with what it needs and some of what it may have."""
    required = schema.get("required", [])
    found = {}
    for name, member in schema.get("properties", {}).items():
        if name in required or (depth < MAX_DEPTH and name != "_meta" and chance(draw, 3)):
            found[name] = draw_value(draw, member, definitions, name, depth + 1)
    return found


def draw_arguments(draw: Draw) -> dict[str, Any]:
    """Arguments of some tool or prompt."""
    names = dict.fromkeys(pick(draw, tuple(ARGUMENTS)) for _ in range(below(draw, 5)))
    return {name: pick(draw, ARGUMENTS[name]) for name in names}


def draw_meta(draw: Draw, version: str) -> dict[str, Any]:
    """The `_meta` of a request."""
    meta: dict[str, Any] = {}
    if version == MODERN:
        meta = {VERSION_KEY: MODERN, CAPABILITIES_KEY: pick(draw, CAPABILITIES)}
        if chance(draw, 2):
            meta[CLIENT_KEY] = {"name": "fuzz", "version": "1"}
        if chance(draw, 5):
            meta[LOG_LEVEL_KEY] = pick(draw, ["debug", "error"])
    if chance(draw, 5):
        meta["progressToken"] = pick(draw, KNOWN["progressToken"])
    if chance(draw, 10):
        meta["traceparent"] = pick(draw, [f"00-{'1' * 32}-{'2' * 16}-01", "x"])
    return meta


CAPABILITIES: tuple[dict[str, Any], ...] = (
    {},
    {"elicitation": {"form": {}}},
    {"sampling": {}, "roots": {}},
    {"elicitation": {"form": {}}, "extensions": {EXTENSION: {}}},
)


@st.composite
def messages(draw: Draw, version: str) -> dict[str, Any]:
    """A right message of a client of the revision: mostly a request, sometimes a notification or a response."""
    if chance(draw, 12):
        return {"jsonrpc": "2.0", **pick(draw, RESPONSES)}
    is_notification = chance(draw, 12)
    known = notifications(version) if is_notification else methods(version)
    method = pick(draw, known)
    schema = schema_of(method, version)
    params = draw_object(draw, schema_object(schema), schema["$defs"], 0)
    if meta := draw_meta(draw, version):
        params["_meta"] = meta
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if not is_notification:
        message["id"] = pick(draw, [1, 2, "a", "", 2**53 - 1, -1])
    return message | ({"params": params} if params or chance(draw, 2) else {})


RESPONSES: tuple[dict[str, Any], ...] = (
    {"id": 1, "result": {}},
    {"id": "x.y.0", "result": {"action": "accept", "content": {}}},
    {"id": "x", "error": {"code": -1, "message": "no"}},
)


def schema_object(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object among the forms that parameters may have."""
    if "$ref" in schema:
        return schema_object(schema["$defs"][schema["$ref"].rsplit("/", 1)[-1]])
    for option in schema.get("anyOf", []):
        if option.get("type") != "null":
            return schema_object({"$defs": schema["$defs"], **option})
    return schema


def as_text(message: Any) -> bytes:
    """The JSON of a message that is right."""
    return json.dumps(message).encode()
