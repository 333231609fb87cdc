"""Messages that wait to be stored are bounded, and nothing that counts is lost by it."""

from typing import Any

from mcp_django.transports.http import event_streams as call_streams
from mcp_django.transports.http.event_streams import CallLog
from mcp_django.transports.http.stream_registry import registry
from tests.configured import configured

MCP = {"BASE_URL": "http://testserver"}


def numbers(found: CallLog, after: int = 0) -> list[int] | None:
    events = found.read(after)
    return None if events is None else [number for number, _ in events.messages]


async def test_a_message_is_sent_once_it_is_stored_or_takes_too_long(monkeypatch: Any) -> None:
    monkeypatch.setattr(call_streams, "GRACE", 0.01)
    found, wake = CallLog("s", sends_first=False), call_streams.asyncio.Event()
    found.followers.add(wake)
    found.add(b"a", b"b")
    assert (numbers(found), found.unstored()) == ([], (1, [b"a", b"b"]))
    found.was_stored(1)
    assert (numbers(found), found.unstored()) == ([1], (2, [b"b"]))
    wake.clear()
    await wake.wait()
    assert numbers(found) == [1, 2]


async def test_where_storing_waits_a_message_is_sent_at_once() -> None:
    found = CallLog("s", 7, sends_first=True)
    found.add(b"a")
    assert (numbers(found, 7), numbers(found, 8)) == ([8], [])


async def test_messages_that_are_stored_are_read_from_there_by_who_is_far_behind() -> None:
    found = CallLog("s", sends_first=True)
    for _ in range(call_streams.MAX_KEPT * 3):
        found.add(b"x" * 10)
        found.was_stored(found.last)
    assert numbers(found) is None
    assert numbers(found, found.last - 2) == [found.last - 1, found.last]


@configured(STREAM_EVENTS=5)
async def test_of_messages_that_cannot_be_stored_the_newest_are_kept_and_always_the_last() -> None:
    found = CallLog("s", sends_first=True)
    for number in range(1, 9):
        found.add(b"%d" % number)
    assert numbers(found) == [4, 5, 6, 7, 8]
    found.add(b"x" * 2 * call_streams.MAX_UNSTORED_BYTES, is_over=True)
    assert numbers(found) == [9]
    assert found.unstored()[0] == 9


async def test_an_end_is_told_after_the_last_message() -> None:
    found = CallLog("s", sends_first=True)
    found.add(b"a")
    found.add(b"answer", is_over=True)
    events = found.read(1)
    assert events is not None
    assert (events.messages, events.is_over) == ([(2, b"answer")], True)


async def test_a_log_that_was_abandoned_sends_nothing_more_and_leaves_the_rest_to_the_database() -> None:
    found = CallLog("s", sends_first=False)
    found.open()
    assert registry.logs.get("s") is found
    found.add(b"a")
    found.was_stored(1)
    found.add(b"answer", is_over=True)
    found.abandon()
    assert (numbers(found), numbers(found, 1), registry.logs.get("s")) == ([1], None, None)


async def test_who_goes_on_elsewhere_asks_the_database() -> None:
    found = CallLog("s", sends_first=True)
    found.open()
    found.add(b"question")
    found.close()
    assert (numbers(found), numbers(found, 1), registry.logs.get("s")) == ([1], None, None)
