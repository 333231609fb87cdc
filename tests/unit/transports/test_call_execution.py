"""The work of a call is stopped in time, and what it tells is bounded: nothing that counts is lost by it."""

import asyncio
import json
import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_django.context.call_record import CallRecord
from mcp_django.exceptions import Cancelled
from mcp_django.runtime.thread_pools import STREAM_THREADS, Busy, in_thread
from mcp_django.server.kernel import Reply
from mcp_django.transports import notification_queues
from mcp_django.transports.call_execution import CallExecution
from mcp_django.transports.notification_queues import Outbox
from tests.asgi_client import nothing_reported
from tests.configured import configured

# Bytes of a long message.
LONG = 50_000


def said(waiting: Outbox) -> list[dict[str, Any]]:
    return [json.loads(data)["params"] for data in waiting.take()]


def progress(waiting: Outbox, done: int, message: str = "") -> None:
    waiting.put("notifications/progress", {"progressToken": "p", "progress": done, "message": message})


def log(waiting: Outbox, data: str) -> None:
    waiting.put("notifications/message", {"level": "info", "data": data})


async def test_what_is_read_in_time_is_sent_as_it_was_told() -> None:
    waiting = Outbox()
    progress(waiting, 1)
    log(waiting, "a")
    progress(waiting, 2)
    assert [params.get("progress", params.get("data")) for params in said(waiting)] == [1, "a", 2]
    assert waiting.take() == []


async def test_of_progress_that_nobody_reads_the_newest_is_kept() -> None:
    waiting = Outbox()
    for done in range(10_000):
        progress(waiting, done, "x" * 1_000)
    found = said(waiting)
    assert found[-1]["progress"] == 9_999
    assert len(found) <= notification_queues.MAX_WAITING
    assert sum(len(params["message"]) for params in found) <= notification_queues.MAX_WAITING_BYTES


async def test_log_messages_that_nobody_reads_are_left_out_and_counted() -> None:
    waiting = Outbox()
    for _ in range(100):
        log(waiting, "x" * LONG)
    progress(waiting, 1)
    found = said(waiting)
    kept = [params for params in found if params.get("data", "").startswith("xx")]
    assert 0 < len(kept) * LONG <= notification_queues.MAX_WAITING_BYTES
    notice = {
        "level": "info",
        "data": f"{100 - len(kept)} log messages were left out because they were not read in time.",
    }
    assert found[-1] == notice
    assert {"progressToken": "p", "progress": 1, "message": ""} in found
    log(waiting, "heard again")
    assert [params["data"] for params in said(waiting)] == ["heard again"]


async def test_any_thread_may_tell() -> None:
    waiting = Outbox()
    thread = threading.Thread(target=progress, args=(waiting, 1))
    thread.start()
    await waiting.wake.wait()
    assert len(said(waiting)) == 1
    thread.join()


async def test_what_was_told_is_taken_at_once_and_before_the_end() -> None:
    waiting = Outbox(60)
    progress(waiting, 1)
    assert [len(found or []) for found in [await waiting.next()]] == [1]
    progress(waiting, 2)
    waiting.end()
    assert len(await waiting.next() or []) == 1
    assert await waiting.next() is None
    assert await waiting.next() is None


async def test_a_quiet_call_is_looked_at_when_patience_ends_and_when_it_rings() -> None:
    waiting = Outbox(0.01)
    assert await waiting.next() == []
    waiting.patience = 60
    waiting.ring()
    assert await waiting.next() == []


# The work


@pytest.fixture
def request_and_call(rf: Any) -> Any:
    request = rf.get("/")
    request.mcp = SimpleNamespace(cancelled=False, site=None, record=CallRecord(method="ping"))
    return request, SimpleNamespace(id=1, era=SimpleNamespace(modern=False))


async def test_work_in_time_gives_its_result_and_its_error(request_and_call: Any) -> None:
    async def give() -> str:
        return "given"

    async def fail() -> str:
        raise Cancelled

    assert await CallExecution(*request_and_call).in_time(60, give()) == "given"
    with pytest.raises(Cancelled):
        await CallExecution(*request_and_call).in_time(60, fail())


async def test_H154_work_over_its_time_is_stopped_and_not_waited_for(request_and_call: Any) -> None:
    stopped, release = asyncio.Event(), asyncio.Event()

    async def stubborn() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.set()
            await release.wait()
        return "late"

    reply = await CallExecution(*request_and_call).in_time(0.01, stubborn())
    assert isinstance(reply, Reply)
    assert "took longer" in json.loads(reply.body)["error"]["message"]
    assert request_and_call[0].mcp.cancelled
    await asyncio.wait_for(stopped.wait(), 10)
    release.set()


async def test_who_cancels_the_wait_cancels_the_work(request_and_call: Any) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    running = asyncio.ensure_future(CallExecution(*request_and_call).in_time(60, work()))
    await begun.wait()
    running.cancel()
    await asyncio.wait_for(stopped.wait(), 10)
    assert running.cancelled()
    assert request_and_call[0].mcp.cancelled


async def test_L206_work_that_fails_after_it_was_stopped_is_reported_nowhere(request_and_call: Any) -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            # As a report of progress does once the call is cancelled.
            raise Cancelled

    with nothing_reported():
        assert isinstance(await CallExecution(*request_and_call).in_time(0.01, work()), Reply)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(others, timeout=10)
        del others


@configured(QUEUE_TIMEOUT=0.05)
async def test_L206_the_end_of_a_stopped_call_is_told_however_busy_the_threads_are(request_and_call: Any) -> None:
    release = threading.Event()
    with nothing_reported():
        filling = [in_thread("streams", partial(release.wait, 10)) for _ in range(STREAM_THREADS)]
        assert isinstance(await CallExecution(*request_and_call).in_time(0.01, asyncio.sleep(60)), Reply)
        # What is asked for later has waited too long, and so has the end of the call.
        with pytest.raises(Busy):
            await in_thread("streams", release.wait)
        release.set()
        await asyncio.gather(*filling)
        await in_thread("streams", release.wait)
    assert request_and_call[0].mcp.record.outcome == "error:timeout"
