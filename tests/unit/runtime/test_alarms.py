import asyncio

import pytest

from mcp_django.runtime.alarms import Alarm, _clock, within


async def test_what_takes_too_long_is_interrupted():
    with pytest.raises(TimeoutError), within(0.01):
        await asyncio.Event().wait()
    # The task itself goes on.
    await asyncio.sleep(0)
    assert asyncio.current_task().cancelling() == 0


async def test_what_is_over_in_time_is_left_alone():
    with within(0.02) as bound:
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    assert bound not in _clock().bounds


async def test_the_first_of_several_bounds_comes_first():
    rung = []
    alarms = [Alarm(seconds, lambda seconds=seconds: rung.append(seconds)) for seconds in (0.05, 0.01, 0.03)]
    alarms[2].cancel()
    done = asyncio.Event()
    Alarm(0.06, done.set)
    await done.wait()
    assert rung == [0.01, 0.05]


async def test_many_bounds_take_one_timer():
    loop = asyncio.get_running_loop()
    timers = []
    at, loop.call_at = loop.call_at, lambda when, *rest, **more: timers.append(when) or at(when, *rest, **more)
    try:
        for _ in range(100):
            with within(30):
                await asyncio.sleep(0)
    finally:
        del loop.call_at
    assert len(timers) <= 1


async def test_who_cancels_from_without_is_not_told_of_a_timeout():
    async def work():
        with within(30):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_interruption_that_another_asked_for_too_stays_a_cancellation():
    async def work():
        with within(30) as bound:
            bound.ring()
            asyncio.current_task().cancel()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(work())
    with pytest.raises(asyncio.CancelledError):
        await task


def test_each_event_loop_has_bounds_of_its_own():
    async def waits():
        with pytest.raises(TimeoutError), within(0.01):
            await asyncio.Event().wait()
        return _clock()

    first, second = asyncio.run(waits()), asyncio.run(waits())
    assert first is not second
