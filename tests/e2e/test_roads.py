"""The same requests on both roads of the transport, under each server: bytes in, bytes out, no client library."""

import asyncio
import json
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.cases import drawn, whole
from tests.e2e.browser import obtain_token
from tests.e2e.servers import run_example

LEGACY, MODERN = "2025-11-25", "2026-07-28"
STOPS_WITHIN = 2
DEADLINE = 10
# Bytes: over DATA_UPLOAD_MAX_MEMORY_SIZE.
TOO_LARGE = 3 * 2**20
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}
# Each road and each server once.
KINDS = [("fast", "uvicorn"), ("fast", "hypercorn"), ("plain", "daphne"), ("fast", "gunicorn-asgi")]
STREAMING = [*KINDS, *whole([("fast", "daphne"), ("plain", "uvicorn"), ("plain", "gunicorn-asgi")])]
ROADS = [*STREAMING, ("wsgi", "gunicorn")]
# For tests of what WSGI cannot do.
streaming = pytest.mark.parametrize("road", STREAMING, indirect=True, ids="-".join, scope="module")


class Road(NamedTuple):
    """One server that is running, and a token for it."""

    url: str
    token: str
    directory: Path
    http: httpx2.Client


@pytest.fixture(scope="module", params=ROADS, ids="-".join)
def road(request: pytest.FixtureRequest, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Road]:
    name, server = request.param
    directory = tmp_path_factory.mktemp("road")
    application = f"tests.e2e.roads.{name}:application"
    # Each request gets a connection of its own: some servers close one whose body they did not read.
    limits = httpx2.Limits(max_keepalive_connections=0)
    with (
        run_example(prepared, directory, server, application, "tests.e2e.roads.settings") as running,
        httpx2.Client(timeout=DEADLINE, limits=limits) as http,
    ):
        yield Road(running.url, obtain_token(running.origin, "admin"), directory, http)


def rpc(method: str, params: dict[str, Any] | None = None, *, modern: bool = False, meta: Any = None) -> dict[str, Any]:
    params = dict(params or {})
    envelope = (META if modern else {}) | (meta or {})
    if envelope:
        params["_meta"] = envelope
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


def headers_for(message: dict[str, Any]) -> dict[str, str]:
    """The headers that a client of the message's era sends."""
    found = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    if "_meta" in message["params"] and META.keys() <= message["params"]["_meta"].keys():
        found |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": message["method"]}
        if name := message["params"].get("name"):
            found["Mcp-Name"] = name
    elif message["method"] != "initialize":
        found["MCP-Protocol-Version"] = LEGACY
    return found


def post(road: Road, message: dict[str, Any], url: str | None = None, **headers: str) -> httpx2.Response:
    sent = headers_for(message) | {"Authorization": f"Bearer {road.token}"} | headers
    return road.http.post(url or road.url, json=message, headers=sent)


def result(response: httpx2.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    message = response.json()
    assert message["id"] == 7
    return message["result"]


def initialize(version: str) -> dict[str, Any]:
    client = {"name": "test", "version": "1"}
    return rpc("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": client})


# Answers


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_initialize_answers_with_the_version_that_was_asked_for(road: Road, version: str) -> None:
    answer = result(post(road, initialize(version)))
    assert answer["protocolVersion"] == version
    assert answer["serverInfo"]["name"]
    assert "tools" in answer["capabilities"]


def test_initialize_offers_another_version_for_an_unknown_one(road: Road) -> None:
    assert result(post(road, initialize("1999-01-01")))["protocolVersion"] == LEGACY


def test_a_notification_is_accepted_without_a_body(road: Road) -> None:
    message = {"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}}
    response = post(road, message)
    assert (response.status_code, response.content) == (202, b"")


def test_discover_needs_no_handshake(road: Road) -> None:
    answer = result(post(road, rpc("server/discover", modern=True)))
    assert answer["resultType"] == "complete"
    assert MODERN in answer["supportedVersions"]
    assert answer["_meta"]["io.modelcontextprotocol/serverInfo"]["name"]


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
@pytest.mark.parametrize("slash", ["", "/"], ids=["bare", "slash"])
def test_tools_are_listed_with_and_without_a_slash(road: Road, modern: bool, slash: str) -> None:
    answer = result(post(road, rpc("tools/list", modern=modern), road.url + slash))
    names = [tool["name"] for tool in answer["tools"]]
    assert {"query_records", "get_record", "wait_async"} <= set(names)
    assert ("ttlMs" in answer) is modern


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
def test_a_call_is_answered_in_json(road: Road, modern: bool) -> None:
    arguments = {"model": "places.continent", "count": True}
    answer = result(post(road, rpc("tools/call", {"name": "query_records", "arguments": arguments}, modern=modern)))
    assert answer["structuredContent"]["count"] == 7
    assert json.loads(answer["content"][0]["text"]) == answer["structuredContent"]


@pytest.mark.parametrize("tool", ["wait_async", "wait_sync"])
def test_tools_of_the_project_run(road: Road, tool: str) -> None:
    arguments = {"name": uuid.uuid4().hex, "seconds": 0.1}
    answer = result(post(road, rpc("tools/call", {"name": tool, "arguments": arguments})))
    assert answer["content"][0]["text"] == "waited"


def test_an_unknown_method_is_an_error_of_each_era(road: Road) -> None:
    old, new = post(road, rpc("no/such")), post(road, rpc("no/such", modern=True))
    assert (old.status_code, old.json()["error"]["code"]) == (200, -32601)
    assert (new.status_code, new.json()["error"]["code"]) == (404, -32601)


CLIENTS, ROUNDS = 8, drawn(12)
NOTE = {"note": "Changed by many."}


@streaming
async def test_each_call_of_many_clients_is_answered_once(road: Road) -> None:
    calls = [
        rpc("ping"),
        rpc("tools/list", modern=True),
        rpc("tools/call", {"name": "query_records", "arguments": {"model": "places.continent"}}),
        rpc("tools/call", {"name": "count_to", "arguments": {"number": 3}}, meta={"progressToken": "abc"}),
        rpc("tools/call", {"name": "update_record", "arguments": {"model": "shop.order", "pk": "1", "values": NOTE}}),
    ]

    async def ask(http: httpx2.AsyncClient, number: int) -> None:
        for position in range(len(calls) * ROUNDS):
            message = calls[(number + position) % len(calls)] | {"id": f"{number}-{position}"}
            headers = headers_for(message) | {"Authorization": f"Bearer {road.token}"}
            response = await http.post(road.url, json=message, headers=headers)
            assert response.status_code == 200, response.text
            found = events(response.text) or [response.json()]
            assert [one["id"] for one in found if "result" in one] == [message["id"]], response.text

    async with httpx2.AsyncClient(timeout=DEADLINE) as http:
        await asyncio.gather(*[ask(http, number) for number in range(CLIENTS)])


# Progress


@streaming
@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
def test_progress_comes_as_events_before_the_answer(road: Road, modern: bool) -> None:
    call = {"name": "count_to", "arguments": {"number": 5}}
    response = post(road, rpc("tools/call", call, modern=modern, meta={"progressToken": "abc"}))
    assert response.headers["content-type"].startswith("text/event-stream")
    *told, answer = events(response.text)
    # What follows too fast is left out, but never the first or the end.
    steps = [message["params"]["progress"] for message in told]
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (1, 5)
    assert {message["params"]["progressToken"] for message in told} == {"abc"}
    assert answer["id"] == 7
    assert answer["result"]["content"][0]["text"] == "counted to 5"


@streaming
@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
def test_progress_of_a_session_comes_as_events_before_the_answer(road: Road, version: str) -> None:
    session = post(road, initialize(version)).headers["mcp-session-id"]
    sent = {"Mcp-Session-Id": session, "MCP-Protocol-Version": version}
    call = {"name": "count_to", "arguments": {"number": 5}}
    response = post(road, rpc("tools/call", call, meta={"progressToken": "abc"}), **sent)
    *told, answer = events(response.text)
    assert {message["method"] for message in told} == {"notifications/progress"}
    assert answer["result"]["content"][0]["text"] == "counted to 5"


def test_without_a_token_nothing_is_told(road: Road) -> None:
    call = {"name": "count_to", "arguments": {"number": 5}}
    assert result(post(road, rpc("tools/call", call)))["content"][0]["text"] == "counted to 5"


def test_a_client_that_takes_no_events_gets_the_answer_alone(road: Road) -> None:
    call = {"name": "count_to", "arguments": {"number": 5}}
    message = rpc("tools/call", call, meta={"progressToken": "abc"})
    assert result(post(road, message, Accept="application/json"))["content"][0]["text"] == "counted to 5"


@streaming
def test_events_arrive_while_the_tool_is_at_work(road: Road) -> None:
    name = uuid.uuid4().hex
    call = {"name": "wait_sync", "arguments": {"name": name, "seconds": 1}}
    message = rpc("tools/call", call, meta={"progressToken": "abc"})
    headers = headers_for(message) | {"Authorization": f"Bearer {road.token}"}
    with road.http.stream("POST", road.url, json=message, headers=headers) as response:
        lines = response.iter_lines()
        first = next(line for line in lines if line.startswith("data: "))
        assert not (road.directory / f"{name}.finished").exists()
        rest = [line for line in lines if line.startswith("data: ")]
    assert json.loads(first.removeprefix("data: "))["method"] == "notifications/progress"
    assert json.loads(rest[-1].removeprefix("data: "))["result"]["content"][0]["text"] == "waited"


def events(text: str) -> list[dict[str, Any]]:
    """The JSON of each event of a stream."""
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: {")]


# Refusals


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("slash", ["", "/"], ids=["bare", "slash"])
def test_without_a_token_the_answer_says_how_to_get_one(road: Road, method: str, slash: str) -> None:
    response = road.http.request(method, road.url + slash)
    assert response.status_code == 401
    challenge = response.headers["www-authenticate"]
    metadata = road.http.get(challenge.partition('resource_metadata="')[2].partition('"')[0])
    assert metadata.json()["resource"] == road.url + slash
    assert challenge.startswith("Bearer ")
    assert "error=" not in challenge


def test_a_bad_token_is_called_so(road: Road) -> None:
    response = post(road, rpc("ping"), Authorization="Bearer nonsense")
    assert response.status_code == 401
    assert 'error="invalid_token"' in response.headers["www-authenticate"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_with_a_token_other_methods_are_named_as_not_allowed(road: Road, method: str) -> None:
    headers = {"Authorization": f"Bearer {road.token}", "Accept": "text/event-stream"}
    response = road.http.request(method, road.url, headers=headers)
    assert response.status_code == 405
    assert "POST" in response.headers["allow"]


def test_a_body_that_announces_too_much_is_refused(road: Road) -> None:
    assert send(road, b" " * TOO_LARGE).status_code == 413


@streaming
def test_a_body_that_announces_nothing_and_grows_too_large_is_refused(road: Road) -> None:
    assert send(road, iter([b" " * 65536] * (TOO_LARGE // 65536))).status_code == 413


def test_no_answer_waits_for_an_acknowledgement_where_workers_share_a_socket(prepared: Path, tmp_path: Path) -> None:
    application = "tests.e2e.roads.fast:application"
    shared = run_example(prepared, tmp_path, "uvicorn-workers", application, "tests.e2e.roads.settings")
    with shared as running, httpx2.Client(timeout=DEADLINE) as http:
        times = [http.post(running.url, json=rpc("ping")).elapsed.total_seconds() for _ in range(60)]
    # Nagle's algorithm and a delayed acknowledgement take 40 ms of each, once the connection has been used for a while.
    assert min(times[30:]) < 0.03


@pytest.mark.parametrize("road", [("fast", "uvicorn")], indirect=True, ids="-".join, scope="module")
def test_who_has_no_good_token_is_refused_before_a_long_body_is_sent(road: Road) -> None:
    address = urlsplit(road.url)
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer nonsense\r\n"
        "Content-Type: application/json\r\nContent-Length: 2000000\r\n\r\n"
    )
    with ExitStack() as stack:
        opened = [
            stack.enter_context(socket.create_connection((address.hostname, address.port), DEADLINE)) for _ in range(40)
        ]
        for connection in opened:
            connection.sendall(head.encode() + b"[" * 1000)
        assert all(connection.recv(65536).startswith(b"HTTP/1.1 401") for connection in opened)
        # What the client sends all the same stands in nobody's way.
        for connection in opened[:5]:
            connection.sendall(b"[" * (2_000_000 - 1000))
        assert result(post(road, rpc("ping"))) == {}


def send(road: Road, body: bytes | Iterator[bytes], **headers: str) -> httpx2.Response:
    """Post a body that is no message."""
    sent = headers_for(rpc("ping")) | {"Authorization": f"Bearer {road.token}"} | headers
    return road.http.post(road.url, content=body, headers=sent)


def test_a_page_of_another_origin_is_refused(road: Road) -> None:
    assert post(road, rpc("ping"), Origin="https://evil.example").status_code == 403


def test_a_page_of_the_same_origin_is_served(road: Road) -> None:
    assert result(post(road, rpc("ping"), Origin=road.url.removesuffix("/mcp"))) == {}


def test_another_host_is_refused(road: Road) -> None:
    assert post(road, rpc("ping"), Host="evil.example").status_code == 400


def test_a_body_that_is_not_json_is_refused(road: Road) -> None:
    response = send(road, b"{")
    assert (response.status_code, response.json()["error"]["code"]) == (400, -32700)


def test_another_content_type_is_refused(road: Road) -> None:
    assert post(road, rpc("ping"), **{"Content-Type": "text/plain"}).status_code == 415


# Closing the connection


@streaming
@pytest.mark.parametrize("token", [None, "abc"], ids=["quiet", "streaming"])
@pytest.mark.parametrize("tool", ["wait_async", "wait_sync"])
def test_closing_the_connection_stops_a_modern_call(road: Road, tool: str, token: str | None) -> None:
    name = uuid.uuid4().hex
    call = {"name": tool, "arguments": {"name": name}}
    message = rpc("tools/call", call, modern=True, meta={"progressToken": token} if token else None)
    leave_after_start(road, message, name)
    started = time.monotonic()
    wait_for(road.directory / f"{name}.cancelled")
    assert time.monotonic() - started < STOPS_WITHIN


@streaming
@pytest.mark.parametrize("token", [None, "abc"], ids=["quiet", "streaming"])
@pytest.mark.parametrize("tool", ["wait_async", "wait_sync"])
def test_closing_the_connection_does_not_stop_a_legacy_call(road: Road, tool: str, token: str | None) -> None:
    name = uuid.uuid4().hex
    call = {"name": tool, "arguments": {"name": name, "seconds": 0.5}}
    leave_after_start(road, rpc("tools/call", call, meta={"progressToken": token} if token else None), name)
    wait_for(road.directory / f"{name}.finished")
    assert not (road.directory / f"{name}.cancelled").exists()


def leave_after_start(road: Road, message: dict[str, Any], name: str) -> None:
    """Send a call and close the connection once the tool has begun to work."""
    body = json.dumps(message).encode()
    with closing(connect(road)) as connection:
        connection.sendall(head(road, headers_for(message) | {"Content-Length": str(len(body))}) + body)
        wait_for(road.directory / f"{name}.started")


def connect(road: Road) -> socket.socket:
    parts = urlsplit(road.url)
    assert parts.hostname
    assert parts.port
    return socket.create_connection((parts.hostname, parts.port), timeout=DEADLINE)


def head(road: Road, headers: dict[str, str]) -> bytes:
    sent = headers | {"Host": urlsplit(road.url).netloc, "Authorization": f"Bearer {road.token}"}
    lines = ["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + DEADLINE
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not happen"
        time.sleep(0.01)
