"""The end of a worker: streams first, the server's own handler after them."""

import asyncio
import os
import signal
import threading

import pytest

from mcp_django.transports.http import stream_registry as shutdown
from mcp_django.transports.http.stream_registry import Registry


@pytest.fixture
def handled():
    """What a server's own handler was called with, and a registry; afterwards everything is as it was."""
    found = []
    before = {number: signal.signal(number, lambda *call: found.append(call[0])) for number in shutdown.SIGNALS}
    yield found
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def registry(handled):
    return Registry()


async def settled(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def test_204_streams_are_ended_before_the_server_is_told_to_stop(handled, registry):
    ended = []
    unregister = registry.enter(lambda: ended.append("one"))
    registry.enter(lambda: ended.append("two"))()
    os.kill(os.getpid(), signal.SIGTERM)
    await settled(lambda: ended)
    assert (ended, handled, registry.is_closing) == (["one"], [], True)
    unregister()
    await settled(lambda: handled)
    assert handled == [signal.SIGTERM]


async def test_204_a_stream_that_does_not_end_holds_nothing_up_for_long(handled, registry, monkeypatch):
    monkeypatch.setattr(shutdown, "PATIENCE", 0.05)
    registry.enter(lambda: None)
    os.kill(os.getpid(), signal.SIGTERM)
    await settled(lambda: handled)


async def test_without_streams_a_signal_goes_straight_on(handled, registry):
    registry.enter(lambda: None)()
    os.kill(os.getpid(), signal.SIGINT)
    await settled(lambda: handled)
    assert handled == [signal.SIGINT]


async def test_a_second_signal_waits_for_nothing(handled, registry):
    registry.enter(lambda: None)
    os.kill(os.getpid(), signal.SIGINT)
    await settled(lambda: registry.is_closing)
    os.kill(os.getpid(), signal.SIGINT)
    await settled(lambda: handled)


async def test_what_is_opened_after_the_signal_ends_at_once(handled, registry):
    registry.watch_signals()
    os.kill(os.getpid(), signal.SIGTERM)
    await settled(lambda: handled)
    ended = []
    registry.enter(lambda: ended.append("late"))()
    await settled(lambda: ended)


@pytest.mark.parametrize("has_streams", [False, True], ids=["no-streams", "streams"])
async def test_no_error_keeps_the_signal_from_the_server(handled, registry, monkeypatch, caplog, has_streams):
    def fail():
        raise OSError("the log's thread is gone")

    monkeypatch.setattr(shutdown, "drain", fail)
    ended = []
    leave = registry.enter(lambda: ended.append("one"))
    if has_streams:
        os.kill(os.getpid(), signal.SIGTERM)
        await settled(lambda: ended)
    leave()
    if not has_streams:
        os.kill(os.getpid(), signal.SIGTERM)
    await settled(lambda: handled)
    assert handled == [signal.SIGTERM]
    assert "The last rows of the log of calls were not written" in caplog.text


async def test_a_stream_of_a_loop_that_is_closed_holds_up_no_signal(handled, registry):
    async def enter():
        registry.enter(lambda: None)

    await asyncio.to_thread(asyncio.run, enter())
    registry.watches_signals = False
    registry.watch_signals()
    os.kill(os.getpid(), signal.SIGTERM)
    await settled(lambda: handled)


async def test_a_loop_in_another_thread_leaves_signals_alone(handled, registry):
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=lambda: asyncio.run(registered(registry)))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert signal.getsignal(signal.SIGTERM) is before


async def registered(registry):
    registry.enter(lambda: None)()
