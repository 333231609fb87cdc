"""Whatever a client sends over HTTP, no answer says that the server failed, its log is quiet, and nothing is left."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from tests.fuzz import budget
from tests.fuzz.mutations import bodies, headers
from tests.fuzz.shapes import Draw, chance, pick
from tests.fuzz.wire import Request, Target, Wire, eventually, post, serving
from tests.protocol_messages import LEGACY, META, MODERN, PARAMS

pytestmark = [
    pytest.mark.one_django,
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system does not tell what is open"),
]

TOGETHER = 20
VERSIONS = {"legacy": LEGACY, "modern": (MODERN,)}
# Stands for the id of a session that there is.
SESSION = "@session"
CONTENT_TYPES = ("application/json", "application/json; charset=utf-8", "text/plain", "", "application/json, x")
ACCEPTS = ("application/json, text/event-stream", "application/json", "text/event-stream", "*/*", "", "x;q=2")
# A mistake in how many headers there are, or a word too much, would only keep messages from being read.
MOSTLY = 40


@st.composite
def requests(draw: Draw, versions: tuple[str, ...]) -> Request:
    """A request that is nearly right."""
    version = pick(draw, versions)
    message, body = draw(bodies(version))
    found = list(draw(headers(message, version)))
    if version != MODERN and chance(draw, 2):
        found.insert(0, ("mcp-session-id", SESSION))
    found.append(("content-type", pick(draw, CONTENT_TYPES) if chance(draw, MOSTLY) else CONTENT_TYPES[0]))
    found.append(("accept", pick(draw, ACCEPTS) if chance(draw, MOSTLY) else ACCEPTS[0]))
    if chance(draw, MOSTLY):
        extra = [("origin", "http://evil.example"), ("content-encoding", "gzip"), ("authorization", "Bearer x")]
        found.append(pick(draw, extra))
    method = pick(draw, ("GET", "PUT", "OPTIONS", "HEAD")) if chance(draw, MOSTLY) else "POST"
    return Request(method, tuple(found), body if method == "POST" else b"")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with serving(tmp_path_factory.mktemp("fuzz")) as running:
        yield running
    assert not running.bad_lines()


class Fuzzing:
    """Sends requests, in the name of sessions of all revisions."""

    def __init__(self, target: Target) -> None:
        self.wire = Wire(target.port)
        self.sessions: list[str] = []

    async def open_sessions(self) -> None:
        for version in LEGACY:
            params = {**PARAMS["initialize"], "protocolVersion": version, "capabilities": {"elicitation": {}}}
            answer = await self.wire.send(post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}))
            self.sessions.append(answer.headers["mcp-session-id"])

    def in_session(self, number: int, request: Request) -> Request:
        session = self.sessions[number % len(self.sessions)]
        found = [(name, session if value == SESSION else value) for name, value in request.headers]
        return Request(request.method, found, request.body)

    async def send(self, batch: list[Request]) -> None:
        ready = [self.in_session(number, request) for number, request in enumerate(batch)]
        for request, answer in zip(ready, await self.wire.send_all(ready), strict=True):
            if answer.status >= 500:
                note(f"{request}\n{answer}")
            assert answer.status < 500


@contextmanager
def ended(runner: asyncio.Runner, wire: Wire) -> Iterator[None]:
    """Close all connections at the end of the block."""
    try:
        yield
    finally:
        runner.run(wire.close())


async def is_well(wire: Wire) -> bool:
    """Whether a right request is answered."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    answer = await wire.send(post(message, ("mcp-protocol-version", MODERN), ("mcp-method", "tools/list")))
    return answer.status == 200 and b"query_records" in answer.body


@pytest.fixture(scope="module")
def before(target: Target) -> tuple[int, int]:
    """The tasks and the open files of the server when it has done everything once and nobody is connected."""
    tasks = target.tasks()

    async def warm_up() -> None:
        fuzzing = Fuzzing(target)
        await fuzzing.open_sessions()
        await is_well(fuzzing.wire)
        call = {"name": "write_note", "arguments": {"title": "x"}, "_meta": META}
        names = [("mcp-protocol-version", MODERN), ("mcp-method", "tools/call"), ("mcp-name", "write_note")]
        await fuzzing.wire.send(post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}, *names))
        stream = {"notifications": {"toolsListChanged": True}, "_meta": META}
        names = [("mcp-protocol-version", MODERN), ("mcp-method", "subscriptions/listen")]
        message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": stream}
        assert (await fuzzing.wire.send(post(message, *names))).status == 200
        await fuzzing.wire.close()

    asyncio.run(warm_up())
    assert eventually(target.tasks, tasks) <= tasks
    return tasks, target.files()


@pytest.mark.parametrize("era", VERSIONS)
def test_no_request_makes_the_server_fail_or_leaves_something_behind(
    era: str, target: Target, before: tuple[int, int]
) -> None:
    tasks, files = before
    fuzzing = Fuzzing(target)
    with asyncio.Runner() as runner, ended(runner, fuzzing.wire):
        runner.run(fuzzing.open_sessions())

        @budget(together=TOGETHER)
        @given(st.lists(requests(VERSIONS[era]), min_size=TOGETHER, max_size=TOGETHER))
        def run(batch: list[Request]) -> None:
            runner.run(fuzzing.send(batch))

        run()
        assert runner.run(is_well(fuzzing.wire))
    assert eventually(target.tasks, tasks) <= tasks
    assert eventually(target.files, files) <= files
    assert not target.bad_lines()
