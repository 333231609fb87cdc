"""Every official client, in every revision that it speaks, on a walk through the fixture project.

A program does the whole walk with the client's own package and tells what it saw; the tests judge that.
"""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from mcp_django.resources.model_resources import LIST_PAGE
from tests.cases import whole
from tests.e2e.fixture_project import run_conformance_project
from tests.e2e.matrix.clients import CASES, KINDS, Case, Walk, send
from tests.e2e.servers import ROOT, Server, manage

AT_ONCE = 4
USER = "walker"
AUDIO_SINCE, STRUCTURED_SINCE = "2025-03-26", "2025-06-18"
CHOICES_SINCE = RESUMED_SINCE = "2025-11-25"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
LOGGED = ["Tool execution started", "Tool processing data", "Tool execution completed"]
LOGGED_ONCE = ["A message of the logging tool"]


@pytest.fixture(scope="module")
def server(redis: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two workers, which know of each other through the database and Redis alone; there is a user for stdio."""
    with run_conformance_project(tmp_path_factory.mktemp("matrix"), "uvicorn", workers=2, redis=redis) as server:
        manage(server, "createsuperuser", "--noinput", "--username", USER, "--email", "walker@example.com")
        yield server


def way(server: Server, transport: str) -> dict[str, Any]:
    """How a client reaches the server over a transport."""
    if transport == "stdio":
        command = [sys.executable, str(ROOT / "manage.py"), "mcp_stdio", "--user", USER]
        return {"command": command, "env": dict(server.environment)}
    return {"url": server.url if transport == "http" else f"{server.origin}/sse"}


@pytest.fixture(scope="module")
def walks(request: pytest.FixtureRequest, node: str, server: Server) -> Iterator[dict[Case, "Future[Walk]"]]:
    """All walks that the chosen tests look at, some of them at the same time."""
    chosen = [item.callspec.params["walk"] for item in request.session.items if "walks" in item.fixturenames]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {case: pool.submit(send, case, node, way(server, case.transport)) for case in dict.fromkeys(chosen)}


@pytest.fixture(scope="module", params=[*KINDS, *whole(case for case in CASES if case not in KINDS)], ids=str)
def walk(request: pytest.FixtureRequest, walks: dict[Case, "Future[Walk]"]) -> Walk:
    return walks[request.param].result()


def text(result: dict[str, Any]) -> str:
    """The text of a tool's result that is no error."""
    assert not result.get("isError"), result
    return result["content"][0]["text"]


# Connecting


def test_it_agrees_on_the_revision(walk: Walk) -> None:
    hello = walk["hello"]
    assert hello["version"] == walk.case.revision
    assert hello["server"] == "mcp-django-conformance"
    assert hello["instructions"].startswith("Everything here is made up.")


def test_it_learns_what_the_server_can(walk: Walk) -> None:
    capabilities = walk["hello"]["capabilities"]
    assert capabilities["tools"] == {"listChanged": True}
    assert capabilities["prompts"] == {"listChanged": True}
    assert capabilities["resources"] == {"listChanged": True, "subscribe": True}
    assert capabilities["logging"] == {}
    # The oldest revision has completion and no word for it.
    assert capabilities.get("completions") == ({} if walk.case.knows("2025-03-26") else None)


def test_it_gets_a_session_in_the_older_era_alone(walk: Walk) -> None:
    assert bool(walk["first_visit"]["session"]) is walk.case.has_session


def test_it_is_answered_a_ping(walk: Walk) -> None:
    assert walk["ping"] == {}


def test_nothing_troubles_it(walk: Walk) -> None:
    assert walk["first_visit"]["troubles"] == []


# Lists and contents


def test_it_reads_every_page_of_every_list(walk: Walk) -> None:
    lists = walk["lists"]
    assert {"test_simple_text", "list_models", "query_records"} <= set(lists["tools"])
    assert len(lists["resources"]) == len(set(lists["resources"])) > 2 * LIST_PAGE
    assert {"test://static-text", "django://conformance/note", "django://conformance/shelf099"} <= set(
        lists["resources"]
    )
    assert "test://template/{id}/data" in lists["resourceTemplates"]
    assert {"test_simple_prompt", "test_prompt_with_arguments"} <= set(lists["prompts"])


def test_it_gets_content_of_every_kind(walk: Walk) -> None:
    found = {name: result["content"] for name, result in walk["results"].items()}
    audio = {"type": "audio", "data": WAV, "mimeType": "audio/wav"}
    described = {"type": "text", "text": "[audio, audio/wav]"}
    assert found["simple_text"] == [{"type": "text", "text": "This is a simple text response for testing."}]
    assert found["image_content"] == [IMAGE]
    assert found["audio_content"] == [audio if walk.case.knows(AUDIO_SINCE) else described]
    assert found["embedded_resource"][0]["resource"]["text"] == "This is an embedded resource content."
    assert [block["type"] for block in found["multiple_content_types"]] == ["text", "image", "resource"]


def test_it_gets_links_where_they_are_known(walk: Walk) -> None:
    [block] = walk["results"]["resource_link"]["content"]
    if walk.case.knows(STRUCTURED_SINCE):
        assert (block["type"], block["uri"]) == ("resource_link", "test://static-text")
    else:
        assert block == {"type": "text", "text": "static_text: test://static-text"}


def test_it_gets_objects_as_text_and_where_they_are_known_as_structure(walk: Walk) -> None:
    result = walk["results"]["structured"]
    weather = {"city": "Kiel", "degrees": 21.5, "words": ["sunny", "windy"]}
    assert json.loads(text(result)) == weather
    assert result.get("structuredContent") == (weather if walk.case.knows(STRUCTURED_SINCE) else None)


def test_it_tells_an_error_of_a_tool_from_a_result(walk: Walk) -> None:
    result = walk["results"]["error_handling"]
    assert result["isError"] is True
    assert result["content"][0]["text"] == "This tool intentionally returns an error for testing"


def test_it_hears_of_progress(walk: Walk) -> None:
    assert walk["progress"] == [[0, 100], [50, 100], [100, 100]]


def test_it_reads_resources(walk: Walk) -> None:
    found = walk["resources"]
    assert found["text"]["text"] == "This is the content of the static text resource."
    assert (found["binary"]["blob"], found["binary"]["mimeType"]) == (PNG, "image/png")
    assert json.loads(found["template"]["text"])["id"] == "123"
    assert found["page"]["rows"] == []
    # The second generation in TypeScript gives the error of all revisions the code of the newest one.
    newest = walk.case.modern or walk.case.client.name == "typescript-2.4"
    assert found["missing"] == (-32602 if newest else -32002)


def test_it_gets_prompts(walk: Walk) -> None:
    found = walk["prompts"]
    assert found["test_simple_prompt"][0]["content"]["text"] == "This is a simple prompt for testing."
    assert "arg1='one', arg2='two'" in found["test_prompt_with_arguments"][0]["content"]["text"]
    assert found["test_prompt_with_embedded_resource"][0]["content"]["resource"]["uri"] == "test://x"
    assert found["test_prompt_with_image"][0]["content"] == IMAGE
    assert found["missing"] == -32602


def test_it_gets_completions(walk: Walk) -> None:
    assert walk["completions"] == {"prompt": ["Kassel", "Kiel"], "template": ["conformance"]}


# What the server says of its own accord


def test_it_hears_the_log_messages_that_it_wants(walk: Walk) -> None:
    assert walk["logs"] == {"before": [], "info": LOGGED, "after": LOGGED_ONCE}


def test_it_hears_of_changes_for_as_long_as_it_is_subscribed(walk: Walk) -> None:
    assert walk["updates"] == {"title": "changed again", "updates": 1, "unasked": 0}


def test_it_hears_that_lists_have_changed(walk: Walk) -> None:
    assert walk["list_changes"] == {"tools": True, "prompts": True}


# Questions


def test_it_asks_its_user(walk: Walk) -> None:
    found = walk["questions"]
    answered = found["accepted"] if walk.case.asks_its_user else found["by_hand"]
    assert json.loads(text(answered).partition(": ")[2]) == {"username": "ada", "email": "ada@example.com"}
    if walk.case.asks_its_user:
        assert found["declined"]["isError"] is True
        assert found["cancelled"]["isError"] is True
        assert text(found["several"]) == "Ada was greeted with 'Paris.' in 1 roots."
        assert text(found["rounds"]) == "Ada likes something."
        assert found["prompt"]["messages"][0]["content"]["text"] == "Please write about a walk."


def test_it_is_asked_nothing_that_it_cannot_answer(walk: Walk) -> None:
    if walk.case.asks_its_user:
        return
    found = walk["questions"]
    assert not any(asked["method"] == "elicitation/create" for asked in found["asked"])
    # What is no form for the user alone cannot be asked by a result.
    assert found["several"]["code"] == found["prompt"]["code"] == -32602


def test_it_asks_its_model_and_itself(walk: Walk) -> None:
    found = walk["questions"]
    if walk.case.is_asked:
        assert text(found["sampled"]) == "LLM response: Paris."
        assert text(found["roots"]) == "Roots: file:///srv/notes"
    else:
        assert found["asked"] == []
        assert found["sampled"]["code"] == found["roots"]["code"] == -32602


def test_it_gets_forms_that_its_revision_knows(walk: Walk) -> None:
    forms = [
        asked["params"]["requestedSchema"]["properties"]
        for asked in walk["questions"]["asked"]
        if "params" in asked and "requestedSchema" in asked["params"]
    ]
    choices = [form for form in forms if "titledSingle" in form]
    assert len(choices) == (1 if walk.case.asks_its_user else 0)
    for form in choices:
        assert ("oneOf" in form["titledSingle"]) is walk.case.knows(CHOICES_SINCE)
        assert form["titledMulti"]["type"] == ("array" if walk.case.knows(CHOICES_SINCE) else "string")


# Connections that end


def test_it_stops_a_call_that_it_no_longer_wants(walk: Walk) -> None:
    assert walk["cancellation"] == {"became": "cancelled"}


def test_it_gets_a_result_whose_stream_was_closed(walk: Walk) -> None:
    found = walk["reconnection"]
    assert text(found["result"]) == "The stream was closed and the call went on."
    if walk.case.has_session and walk.case.knows(RESUMED_SINCE):
        assert found["gets"] > 0


def test_it_finds_its_session_as_it_left_it(walk: Walk) -> None:
    if not walk.case.has_session:
        assert "return_visit" not in walk.steps
        return
    assert walk["return_visit"] == {"logged": LOGGED_ONCE}
    assert walk["second_visit"]["troubles"] == []


def test_it_ends_its_session_when_it_says_so(walk: Walk, server: Server) -> None:
    if not walk.case.has_session:
        assert "last_visit" not in walk.steps
        return
    kept, ended = walk["first_visit"]["session"], walk["last_visit"]["session"]
    assert kept != ended
    assert status(server.url, kept, walk.case.revision) == 200
    assert status(server.url, ended, walk.case.revision) == 404


def status(url: str, session: str, revision: str) -> int:
    headers = {"Accept": "application/json, text/event-stream", "Mcp-Session-Id": session}
    if revision >= "2025-06-18":
        headers["MCP-Protocol-Version"] = revision
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    return httpx2.post(url, json=message, headers=headers, timeout=30).status_code
