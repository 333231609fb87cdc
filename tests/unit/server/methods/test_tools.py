import logging
from dataclasses import dataclass

import pytest
from django.core.exceptions import PermissionDenied
from mcp_types.methods import validate_server_result

from mcp_django import MCPSite, ToolError, task
from mcp_django.exceptions import NotFound
from mcp_django.protocol.errors import MissingClientCapability
from mcp_django.protocol.tasks import EXTENSION
from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_superuser, make_user

pytestmark = pytest.mark.django_db
ALL = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]


@dataclass
class Greeting:
    text: str


def greet(request, name: str) -> Greeting:
    """Say hello."""
    return Greeting(f"Hello {name}")


@pytest.mark.parametrize("version", ALL)
def test_the_list_is_one_page_that_validates_in_every_revision(version):
    result = MCPClient(make_superuser(), version=version).request("tools/list")
    validate_server_result("tools/list", version, result)
    assert "nextCursor" not in result
    assert all(tool["inputSchema"]["type"] == "object" for tool in result["tools"])


def test_R18_no_schema_of_ours_has_what_model_providers_refuse():
    for tool in MCPClient(make_superuser()).tools():
        schema = tool["inputSchema"]
        assert not {"oneOf", "anyOf", "allOf", "$ref", "$defs"} & set(schema)
        assert "properties" in schema


def test_D68_a_cursor_that_this_list_never_gave_is_refused():
    with pytest.raises(MCPError) as caught:
        MCPClient(make_superuser()).request("tools/list", cursor="x")
    assert caught.value.code == -32602


@pytest.mark.parametrize("version", ALL)
def test_a_call_gives_a_result_that_validates_in_every_revision(version, tools):
    tools(greet, read_only=True)
    result = MCPClient(make_superuser(), version=version).request("tools/call", name="greet", arguments={"name": "Ada"})
    validate_server_result("tools/call", version, result)
    assert "Hello Ada" in result["content"][0]["text"]
    assert ("structuredContent" in result) == (version >= "2025-06-18")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("update_record", "Unknown tool: update_record. You can only read here."),
        ("run_action", "Unknown tool: run_action. You can only read here."),
        ("count_records", "Unknown tool: count_records. The nearest are aggregate_records, "),
    ],
)
def test_who_calls_a_tool_that_is_not_there_learns_of_those_that_are(name, told):
    client = MCPClient(make_user("viewer", "testapp.view_author"))
    with pytest.raises(MCPError) as error:
        client.call(name)
    assert told in str(error.value)
    assert "update_record" not in str(error.value).partition("nearest")[2]


def test_an_unknown_tool_and_a_hidden_one_are_answered_alike():
    client = MCPClient(make_user("viewer", "testapp.view_author"))
    answers = []
    for name in ("no_such_tool", "publish_testapp_book"):
        response = client.send("tools/call", {"name": name, "arguments": {}})
        answers.append((response.status_code, response.json()["error"]["message"].replace(name, "…")))
    assert answers[0] == answers[1] == (400, "Unknown tool: …")


@pytest.mark.parametrize("version", ALL)
def test_an_unknown_tool_is_told_with_the_nearest_that_the_caller_has(version, tools):
    client = MCPClient(make_user("viewer", "testapp.view_author"), version=version)
    for name in ("query_record", "Query-Records", "mcp__shop__query_records"):
        with pytest.raises(MCPError, match=r"Did you mean query_records\?") as caught:
            client.call(name)
        assert caught.value.code == -32602
    # A tool that is there for others is no alternative.
    for name in ("delete_records", "publish_testapp_books"):
        with pytest.raises(MCPError) as caught:
            client.call(name)
        assert "Did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ToolError("Give a year."), "Give a year."),
        (NotFound(), "Not found."),
        (PermissionDenied(), "Permission denied."),
    ],
)
def test_R26_what_a_model_can_mend_is_a_result_with_the_flag(error, text, tools):
    def fail(request) -> str:
        """Fail."""
        raise error

    tools(fail, read_only=True)
    found = MCPClient(make_superuser()).call("fail")
    assert (found.is_error, found.text) == (True, text)


def test_K190_an_exception_reaches_the_model_as_an_opaque_id_and_the_log_in_full(tools, caplog):
    def fail(request) -> str:
        """Fail."""
        raise RuntimeError("SELECT secret FROM table")

    tools(fail, read_only=True)
    with caplog.at_level(logging.ERROR, "mcp_django"):
        found = MCPClient(make_superuser()).call("fail")
    assert found.is_error
    assert "secret" not in found.text
    identifier = found.text.rstrip(".").split()[-1]
    assert identifier in caplog.text


def test_a_missing_client_capability_is_an_error_for_the_program(tools):
    def ask(request) -> str:
        """Ask."""
        raise MissingClientCapability({"sampling": {}})

    tools(ask, read_only=True)
    response = MCPClient(make_superuser()).send("tools/call", {"name": "ask", "arguments": {}})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == -32021
    assert response.json()["error"]["data"] == {"requiredCapabilities": {"sampling": {}}}


def test_an_async_tool_is_called_like_any_other(tools):
    async def greet_later(request, name: str) -> Greeting:
        """Say hello."""
        return Greeting(f"Hello {name}")

    tools(greet_later, read_only=True)
    assert MCPClient(make_superuser()).call("greet_later", name="Ada").structured == {"text": "Hello Ada"}


def test_arguments_may_be_left_out_or_null(tools):
    def now(request) -> str:
        """Tell the time."""
        return "noon"

    tools(now, read_only=True)
    client = MCPClient(make_superuser(), version="2025-11-25")
    assert client.request("tools/call", name="now")["content"][0]["text"] == "noon"


def test_a_site_without_models_lists_its_functions_alone():
    own = MCPSite("own")
    own.add_tool(greet, read_only=True)
    assert [tool.name for tool in own.function_tools()] == ["greet"]


# Tools that only clients with tasks can call

TAKES_TASKS = {"extensions": {EXTENSION: {}}}


def required(request):
    """Work."""
    return "done"


def test_a_tool_that_is_always_a_task_refuses_clients_that_take_none(tools):
    tools(required, task=task(required=True))
    with pytest.raises(MCPError) as refused:
        MCPClient(make_superuser()).call("required")
    assert refused.value.code == MissingClientCapability.code == -32021
    assert refused.value.data == {"requiredCapabilities": TAKES_TASKS}


@pytest.mark.parametrize("version", ALL[:-1])
def test_a_tool_that_is_always_a_task_refuses_clients_of_older_revisions(tools, version):
    tools(required, task=task(required=True))
    with pytest.raises(MCPError, match="required needs a client that supports"):
        MCPClient(make_superuser(), version=version, capabilities=TAKES_TASKS).call("required")
