"""What counts the news of streams does not take anything else for them."""

import asyncio

import pytest

from benchmarks.holding import KINDS, LISTEN, SESSION, result_of
from benchmarks.load import BadAnswer
from benchmarks.streamreport import stream_lines, stream_targets
from benchmarks.streams import ACKNOWLEDGED, HEAD_END, Streams, handshake, listen, streams

pytestmark = pytest.mark.one_django

TIMEOUT = 10
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
ACK = b'data: {"method":"' + ACKNOWLEDGED + b'"}\n\n'
NEWS = b'data: {"method":"notifications/resources/updated"}\n\n'


class Server:
    """Answers each connection's requests with what the test says, and then with what it is told to send."""

    def __init__(self, *answers):
        self.answers, self.requests, self.writers = answers, [], []

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.server.close()
        for writer in self.writers:
            writer.close()

    async def serve(self, reader, writer):
        self.writers.append(writer)
        for answer in self.answers:
            head = await reader.readuntil(b"\r\n\r\n")
            length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
            self.requests.append(head + body)
            writer.write(answer)

    def send(self, data):
        for writer in self.writers:
            writer.write(data)


def plain(body, *headers):
    return b"\r\n".join([b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), *headers, b"", body])


async def test_a_stream_is_open_when_it_is_acknowledged_and_counts_what_comes():
    async with Server(HEAD + ACK[:20]) as server:
        opening = asyncio.ensure_future(first(streams(server.port, [listen(server.port, "x:1", "t")], ACKNOWLEDGED)))
        while not server.requests:
            await asyncio.sleep(0)
        assert not opening.done()
        server.send(ACK[20:] + NEWS + NEWS[:10])
        manager, held = await asyncio.wait_for(opening, TIMEOUT)
        assert b"subscriptions/listen" in server.requests[0]
        async with asyncio.timeout(TIMEOUT):
            while not held.all[0].changes:
                await asyncio.sleep(0)
        async with held.next_change():
            server.send(NEWS[10:] + b": keep-alive\n\n")
        assert held.all[0].changes == 2
        held.check()
        await manager.__aexit__(None, None, None)


async def first(manager):
    return manager, await manager.__aenter__()


async def test_the_stream_of_a_session_comes_after_its_handshake():
    hello = plain(b'{"result":{}}', b"mcp-session-id: abc")
    answers = [hello, plain(b""), plain(b'{"result":{}}'), HEAD]
    async with Server(*answers) as server:
        async with streams(server.port, [handshake(server.port, "x:1", "t")], HEAD_END) as held:
            held.check()
        methods = [request.split(b" ")[0] for request in server.requests]
        assert methods == [b"POST", b"POST", b"POST", b"GET"]
        assert all(b"Mcp-Session-Id: abc" in request for request in server.requests[1:])


@pytest.mark.parametrize(
    "answers",
    [
        [plain(b'{"result":{}}', b"mcp-session-id: a"), plain(b""), plain(b'{"error":{}}'), HEAD],
        [b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"],
    ],
)
async def test_a_stream_that_is_refused_is_an_error(answers):
    async with Server(*answers) as server:
        with pytest.raises(BadAnswer):
            async with streams(server.port, [handshake(server.port, "x:1", "t")], HEAD_END):
                pass


async def test_news_that_come_twice_or_not_at_all_are_errors(monkeypatch):
    async with Server(HEAD + ACK) as server:
        openings = [listen(server.port, "x:1", "t") for _ in range(2)]
        async with streams(server.port, openings, ACKNOWLEDGED) as held:
            with monkeypatch.context() as patch:
                patch.setattr("benchmarks.streams.NEWS_SECONDS", 0.05)
                with pytest.raises(BadAnswer, match="2 of 2 streams were not told"):
                    async with held.next_change():
                        pass
            with pytest.raises(BadAnswer, match="not every stream was told of a change once"):
                async with held.next_change():
                    server.writers[0].write(NEWS + NEWS)
            server.writers[0].close()
            async with asyncio.timeout(TIMEOUT):
                while not any(stream.closed for stream in held.all):
                    await asyncio.sleep(0)
            with pytest.raises(BadAnswer, match="1 of 2 streams have ended"):
                held.check()


def test_no_streams_are_no_news():
    assert Streams().all == []
    assert {kind.name for kind in KINDS} == {LISTEN.name, SESSION.name}


def test_results_are_read_from_json_and_from_the_last_event():
    assert result_of(b'{"result":{"a":1}}') == {"a": 1}
    assert result_of(b'data: {"method":"x"}\n\ndata: {"result":{"a":2}}\n\n') == {"a": 2}
    with pytest.raises(BadAnswer):
        result_of(b'{"error":{}}')


def test_targets_are_those_of_this_project_and_no_connection_may_be_held():
    memory = {"streams": 5_000, "kib_each": 48.1, "opened_per_second": 1}
    cells = {
        "fast": {**memory, "database_connections_without": 5, "database_connections": 6},
        "sdk": {**memory, "database_connections_without": 1, "database_connections": 9},
    }
    results = {"stream_memory": {"listen": cells}}
    targets = stream_targets(results)
    assert [target["reached"] for target in targets] == [False, False]
    lines = "\n".join(stream_lines(results, targets))
    assert lines.count("✗") == 2
    assert "official SDK" in lines
    assert stream_lines({}, []) == []
