"""The log of a call's stream: numbers, bounds, questions, owners, and what becomes of a call whose worker is gone."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from mcp_django.context.questions import Answers, Question
from mcp_django.context.request import MCPRequest
from mcp_django.models import Stream, StreamEvent
from mcp_django.protocol.messages import ClientResponse
from mcp_django.server.sessions import ClientSession
from mcp_django.server.stored_streams import SessionStreams, StoredStream
from mcp_django.subscriptions.bus import bus
from tests.configured import configured
from tests.factories import make_user
from tests.unit.server.test_sessions import make_request, new_session

pytestmark = pytest.mark.django_db
MCP = {"BASE_URL": "http://testserver"}
CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}'
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@pytest.fixture
def request_() -> MCPRequest:
    return make_request(make_user("ann"))


@pytest.fixture
def session(request_: MCPRequest) -> ClientSession:
    return new_session(request_, version="2025-11-25", capabilities={"elicitation": {}})


@pytest.fixture
def stream(session: ClientSession) -> str:
    return SessionStreams(session).open(7, CALL, "2025-11-25").id


def question(key: str = "who") -> Question:
    params = {"message": f"{key}?", "requestedSchema": FORM}
    return Question(key=key, method="elicitation/create", params=params)


def read(stream: str, after: int = 0) -> tuple[list[tuple[int, bytes]], bool]:
    found = StoredStream(stream).read(after, end_if_abandoned=True)
    return list(found.messages), found.is_over


def silence(stream: str, **back: float) -> None:
    Stream.objects.filter(pk=stream).update(alive=timezone.now() - timedelta(**back))


def answer(name: str = "Ann") -> dict[str, Any]:
    return {"action": "accept", "content": {"name": name}}


def asked_ids(stream: str) -> list[str]:
    return [item["id"] for item in Stream.objects.get(pk=stream).questions]


def test_messages_are_numbered_in_order_and_read_from_any_of_them(stream: str) -> None:
    StoredStream(stream).append([b"a", b"b"])
    StoredStream(stream).append([b"c"])
    assert read(stream) == ([(1, b"a"), (2, b"b"), (3, b"c")], False)
    assert read(stream, 2) == ([(3, b"c")], False)
    assert read(stream, 3) == ([], False)


def test_the_answer_ends_the_stream(stream: str) -> None:
    StoredStream(stream).append([b"a"])
    StoredStream(stream).finish(b"answer")
    assert read(stream) == ([(1, b"a"), (2, b"answer")], True)
    assert read(stream, 2) == ([], True)
    assert Stream.objects.get().call == ""


def test_93_a_number_that_was_never_given_brings_nothing(stream: str) -> None:
    StoredStream(stream).append([b"a"])
    assert read(stream, 2**31 - 1) == ([], False)
    assert read("nothing") == ([], True)


def test_each_write_tells_those_who_follow_the_stream(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    monkeypatch.setattr(bus, "publish", lambda topic, payload: told.append(topic))
    StoredStream(stream).append([b"a"])
    StoredStream(stream).finish(b"b")
    assert told == [StoredStream(stream).topic] * 2


@configured(STREAM_EVENTS=3)
def test_98_a_stream_keeps_so_many_messages_and_the_newest_ones(stream: str) -> None:
    for number in range(10):
        StoredStream(stream).append([b"%d" % number])
    assert [data for _, data in read(stream)[0]] == [b"7", b"8", b"9"]
    assert read(stream, 9)[0] == [(10, b"9")]


@configured(STREAM_BYTES=100)
def test_98_a_stream_keeps_so_many_bytes_and_always_the_newest_message(stream: str) -> None:
    for _ in range(30):
        StoredStream(stream).append([b"x" * 20])
        assert sum(len(event.data) for event in StreamEvent.objects.all()) <= 100
    StoredStream(stream).append([b"y" * 500])
    assert read(stream)[0] == [(31, b"y" * 500)]
    StoredStream(stream).append([b"z"])
    assert read(stream)[0] == [(32, b"z")]


def test_more_messages_than_one_page_are_all_read(stream: str) -> None:
    StoredStream(stream).append([b"%d" % number for number in range(500)])
    StoredStream(stream).finish(b"end")
    found, after, over = [], 0, False
    while not over:
        messages, over = read(stream, after)
        found += messages
        after = messages[-1][0]
    assert [number for number, _ in found] == list(range(1, 502))


def test_100_a_stream_belongs_to_its_session(session: ClientSession, request_: MCPRequest, stream: str) -> None:
    assert StoredStream(stream).is_owned_by(session)
    assert not StoredStream(stream).is_owned_by(new_session(request_))


# Questions


def test_a_question_goes_out_as_a_request_and_its_answer_takes_the_call_up_again(
    session: ClientSession, stream: str
) -> None:
    StoredStream(stream).ask([question()], Answers(), "2025-11-25")
    [(_, data)], over = read(stream)
    request = json.loads(data)
    assert (request["method"], request["params"]["message"], over) == ("elicitation/create", "who?", False)
    resumed = SessionStreams(session).answer(ClientResponse(id=request["id"], result=answer()))
    assert resumed is not None
    assert (resumed.stream_id, resumed.call, resumed.version) == (stream, CALL, "2025-11-25")
    assert resumed.answers.get(question()) == answer()
    assert Stream.objects.get().state == "running"


def test_the_last_of_several_answers_takes_the_call_up_and_only_one_worker_does(
    session: ClientSession, stream: str
) -> None:
    StoredStream(stream).ask([question("a"), question("b")], Answers(), "2025-11-25")
    first, second = asked_ids(stream)
    assert SessionStreams(session).answer(ClientResponse(id=second, result=answer("B"))) is None
    resumed = SessionStreams(session).answer(ClientResponse(id=first, result=answer("A")))
    assert resumed is not None
    assert resumed.answers.get(question("b")) == answer("B")
    assert SessionStreams(session).answer(ClientResponse(id=first, result=answer("again"))) is None


def test_answers_of_earlier_rounds_are_kept(session: ClientSession, stream: str) -> None:
    StoredStream(stream).ask([question("a")], Answers(), "2025-11-25")
    [identifier] = asked_ids(stream)
    resumed = SessionStreams(session).answer(ClientResponse(id=identifier, result=answer("A")))
    assert resumed is not None
    resumed.answers.get(question("a"))
    StoredStream(stream).ask([question("b")], resumed.answers, "2025-11-25")
    [identifier] = asked_ids(stream)
    resumed = SessionStreams(session).answer(ClientResponse(id=identifier, result=answer("B")))
    assert resumed is not None
    assert resumed.answers.get(question("a")) == answer("A")


@pytest.mark.parametrize("identifier", ["", "x", ".", "{stream}", "{stream}.0.0", 7])
def test_63_an_answer_to_nothing_is_ignored(session: ClientSession, stream: str, identifier: Any) -> None:
    StoredStream(stream).ask([question()], Answers(), "2025-11-25")
    identifier = identifier.format(stream=stream) if isinstance(identifier, str) else identifier
    assert SessionStreams(session).answer(ClientResponse(id=identifier, result=answer())) is None
    assert Stream.objects.get().state == "asking"


def test_63_another_session_cannot_answer(request_: MCPRequest, session: ClientSession, stream: str) -> None:
    StoredStream(stream).ask([question()], Answers(), "2025-11-25")
    [identifier] = asked_ids(stream)
    for other in (new_session(request_), new_session(make_request(make_user("bob")))):
        assert SessionStreams(other).answer(ClientResponse(id=identifier, result=answer())) is None
    assert Stream.objects.get().state == "asking"


def test_an_error_of_the_client_is_an_answer_too(session: ClientSession, stream: str) -> None:
    StoredStream(stream).ask([question()], Answers(), "2025-11-25")
    [identifier] = asked_ids(stream)
    error = {"code": -1, "message": "no"}
    resumed = SessionStreams(session).answer(ClientResponse(id=identifier, error=error))
    assert resumed is not None
    assert resumed.answers.get(question()) == {"error": error}


def test_a_call_that_waits_can_be_cancelled_by_its_session_alone(
    request_: MCPRequest, session: ClientSession, stream: str
) -> None:
    StoredStream(stream).ask([question()], Answers(), "2025-11-25")
    SessionStreams(new_session(request_)).cancel(7)
    SessionStreams(session).cancel(8)
    assert read(stream)[1] is False
    SessionStreams(session).cancel(7)
    assert (len(read(stream)[0]), read(stream)[1]) == (1, True)


# Ends


def test_203_a_call_whose_worker_is_gone_is_answered_with_an_error_once(stream: str) -> None:
    StoredStream(stream).append([b"a"])
    silence(stream, seconds=StoredStream.DEAD_AFTER - 2)
    assert read(stream)[1] is False
    StoredStream.keep_alive([stream])
    silence(stream, seconds=StoredStream.DEAD_AFTER + 1)
    messages, over = read(stream, 1)
    error = json.loads(messages[0][1])
    assert (error["id"], error["error"]["code"], over) == (7, -32603, True)
    assert "interrupted" in error["error"]["message"]
    assert read(stream, 1) == (messages, True)


def test_a_question_stays_open_for_its_time_and_no_longer(session: ClientSession, stream: str) -> None:
    StoredStream(stream).ask([question()], Answers(), "2025-11-25")
    [identifier] = asked_ids(stream)
    silence(stream, seconds=590)
    assert read(stream, 1) == ([], False)
    silence(stream, seconds=601)
    messages, over = read(stream, 1)
    cancelled, error = (json.loads(data) for _, data in messages)
    assert (cancelled["method"], cancelled["params"]) == ("notifications/cancelled", {"requestId": identifier})
    assert "not answered in time" in error["error"]["message"]
    assert over
    assert SessionStreams(session).answer(ClientResponse(id=identifier, result=answer())) is None


def test_streams_are_deleted_when_nobody_can_resume_them(session: ClientSession, stream: str) -> None:
    StoredStream(stream).finish(b"end")
    silence(stream, seconds=590)
    assert StoredStream.clear_expired() == 0
    silence(stream, seconds=610)
    SessionStreams(session).open(8, CALL, "2025-11-25")
    assert not Stream.objects.filter(pk=stream).exists()


def test_a_session_has_one_stream_of_many_calls(session: ClientSession, stream: str) -> None:
    assert SessionStreams(session).shared() is None
    shared = SessionStreams(session).open(None, b"", "2024-11-05").id
    found = SessionStreams(session).shared()
    assert found is not None
    assert found.id == shared


@configured(USER_STREAM_BYTES=1_000_000)
def test_questions_that_are_never_answered_keep_so_many_bytes_of_each_user(request_: MCPRequest) -> None:
    call = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"x":"' + b"x" * 100_000 + b'"}}'

    def ask(session: ClientSession) -> str:
        stream = SessionStreams(session).open(7, call, "2025-11-25").id
        StoredStream(stream).ask([question()], Answers(), "2025-11-25")
        return stream

    other = ask(new_session(make_request(make_user("bob"))))
    asked = [ask(new_session(request_)) for _ in range(30)]
    kept = list(Stream.objects.exclude(pk=other).values_list("pk", flat=True))
    assert set(kept) == set(asked[-9:])
    assert Stream.objects.filter(pk=other).exists()
    assert read(asked[0]) == ([], True)


@configured(USER_STREAM_BYTES=10)
def test_a_call_that_is_being_worked_on_keeps_its_stream(session: ClientSession, stream: str) -> None:
    done = SessionStreams(session).open(8, CALL, "2025-11-25").id
    StoredStream(done).finish(b"answer")
    newest = SessionStreams(session).open(9, CALL, "2025-11-25").id
    assert set(Stream.objects.values_list("pk", flat=True)) == {stream, newest}
