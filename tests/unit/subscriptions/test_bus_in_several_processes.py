import asyncio
import json
import logging
import threading

import pytest

from mcp_django.subscriptions import bus as bus_module
from mcp_django.subscriptions.bus import MAX_EVENT, MAX_EVENTS, MAX_WAITING, RESYNC, Bus
from tests.fake_layer import FakeLayer, Server

SECRET = "redis://:password@host"


# Numbers


class Numbers(Bus):
    """What a bus makes of the numbers of others, where it listens for ``heard_for`` seconds."""

    async def enter(self, number, *, since=1.0, heard_for=100.0, publisher="a", has_events=True):
        """Return whether a message is new, and whether one before it is missing."""
        resyncs = []
        self._resync = lambda: resyncs.append(True)
        self._heard_since = asyncio.get_running_loop().time() - heard_for
        return self._is_new(publisher, number, since, has_events), bool(resyncs)


@pytest.fixture
def numbers():
    found = Numbers()
    found._last = bus_module.OrderedDict()
    return found


async def test_202_a_missing_number_is_a_gap_and_an_old_one_is_nothing_new(numbers):
    assert await numbers.enter(1, since=None) == (True, False)
    assert await numbers.enter(2) == (True, False)
    assert await numbers.enter(2) == (False, False)
    assert await numbers.enter(4) == (True, True)
    assert await numbers.enter(3) == (False, False)
    assert await numbers.enter(5) == (True, False)


async def test_202_a_heartbeat_shows_the_loss_of_the_last_message(numbers):
    await numbers.enter(1, since=None)
    assert await numbers.enter(1, has_events=False) == (True, False)
    assert await numbers.enter(2, has_events=False) == (True, True)
    assert await numbers.enter(2, has_events=False) == (True, False)


@pytest.mark.parametrize(
    ("number", "since", "has_events", "is_gap"),
    [
        (5, 60.0, True, False),
        (5, 10.0, True, True),
        (5, 60.0, False, False),
        (1, 10.0, False, True),
        (1, None, True, 0),
    ],
)
async def test_what_was_sent_before_this_process_listened_is_not_missed(numbers, number, since, has_events, is_gap):
    assert await numbers.enter(number, since=since, heard_for=30.0, has_events=has_events) == (True, is_gap)


async def test_publishers_are_forgotten_the_oldest_first(numbers, monkeypatch):
    monkeypatch.setattr(bus_module, "MAX_PUBLISHERS", 2)
    for publisher in ("a", "b", "a", "c"):
        await numbers.enter(1, publisher=publisher, has_events=False, since=None)
    assert list(numbers._last) == ["a", "c"]


# The layer


class Process(Bus):
    """A process whose bus runs on the loop of the test, and what it heard."""

    def __init__(self, server, listens=True, layer=None):
        super().__init__()
        self.server, self.layer = server, layer or FakeLayer(server)
        self.heard, self.resyncs, self.joins = [], 0, []
        self._heard = Joins(self)
        self._loop, self._thread = asyncio.get_running_loop(), threading.current_thread()
        self.stop = asyncio.Event()
        if listens:
            self.subscribe("t", self.hear)
        self.task = asyncio.ensure_future(self._serve(self.stop))

    def is_idle(self):
        return False

    def _make_layer(self):
        return self.layer

    def hear(self, payload):
        if payload is RESYNC:
            self.resyncs += 1
        else:
            self.heard.append(payload)
        self.notify()

    def notify(self):
        asyncio.get_running_loop().create_task(self.server.notify())

    async def joined(self):
        await self.server.wait(lambda: self.joins[-1:] == [True] and self.resyncs)
        self.resyncs = 0
        return self

    async def end(self):
        self.stop.set()
        await self.task
        for task in (self._sender, self._listener):
            if task is not None:
                task.cancel()


class Joins:
    """In the place of the event that says whether a process hears others."""

    def __init__(self, process):
        self.process = process

    def is_set(self):
        return self.process.joins[-1:] == [True]

    def set(self):
        self.process.joins.append(True)
        self.process.notify()

    def clear(self):
        self.process.joins.append(False)
        self.process.notify()


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    monkeypatch.setattr(bus_module, "group_name", lambda: "group")
    monkeypatch.setattr(bus_module, "CONFIRM", 0.02)
    monkeypatch.setattr(bus_module, "HEARTBEAT", 0.04)
    monkeypatch.setattr(bus_module, "RETRY_FIRST", 0.01)
    monkeypatch.setattr(bus_module, "RETRY_MOST", 0.02)


@pytest.fixture
async def server():
    server = Server()
    server.processes = []

    async def start(**options):
        process = Process(server, **options)
        server.processes.append(process)
        await asyncio.sleep(0)
        return await process.joined() if options.get("listens", True) else process

    server.start = start
    yield server
    for process in server.processes:
        await process.end()


async def test_what_one_process_sends_others_hear_and_itself_once(server):
    a, b, c = [await server.start() for _ in range(3)]
    a.publish("t", {"x": [1, "ü"]})
    await server.wait(lambda: b.heard and c.heard)
    await asyncio.sleep(0)
    assert a.heard == b.heard == c.heard == [{"x": [1, "ü"]}]
    assert server.groups["group"] == {"channel0", "channel1", "channel2"}


async def test_events_of_one_moment_travel_together_in_order(server):
    a, b = await server.start(listens=False), await server.start()
    for number in range(MAX_EVENTS + 1):
        a.publish("t", number)
    await server.wait(lambda: len(b.heard) == MAX_EVENTS + 1)
    assert b.heard == list(range(MAX_EVENTS + 1))
    assert [len(body["events"]) for body in server.sent[:2]] == [MAX_EVENTS, 1]


async def test_202_a_message_that_was_lost_makes_everyone_look_again(server):
    a, b = await server.start(listens=False), await server.start()
    a.publish("t", 1)
    await server.wait(lambda: b.heard)
    server.lost = 1
    a.publish("t", 2)
    await server.wait(lambda: len(server.sent) >= 2)
    a.publish("t", 3)
    await server.wait(lambda: len(b.heard) == 2)
    assert (b.heard[-1], b.resyncs) == (3, 1)


async def test_202_the_loss_of_the_very_last_message_is_noticed(server):
    a, b = await server.start(listens=False), await server.start()
    server.lost = 1
    a.publish("t", 1)
    await server.wait(lambda: b.resyncs)
    assert b.heard == []
    # Told again, the number is no news: before the third heartbeat the second was heard.
    await server.wait(lambda: len([body for body in server.sent if body["from"] == a.id and not body["events"]]) >= 3)
    assert b.resyncs == 1


async def test_a_layer_that_is_down_is_tried_again_and_loses_nothing(server, caplog):
    caplog.set_level(logging.INFO, "mcp_django")
    a, b = await server.start(listens=False), await server.start()
    server.error = ConnectionError(SECRET)
    a.publish("t", 1)
    tries = len(server.calls)
    await server.wait(lambda: len(server.calls) > tries + 3)
    a.publish("t", 2)
    server.error = None
    await server.wait(lambda: len(b.heard) == 2)
    assert b.heard == [1, 2]
    assert b.resyncs == 0
    assert {record.message for record in caplog.records if record.levelno == logging.WARNING} == {
        "The channel layer does not answer (ConnectionError): changes reach no other process"
    }
    assert SECRET not in caplog.text


async def test_202_who_lost_the_connection_joins_again_and_looks_at_everything(server, caplog):
    b = await server.start()
    server.break_connections(ConnectionError(SECRET))
    await server.wait(lambda: b.joins == [True, False])
    server.error = None
    await server.wait(lambda: b.joins == [True, False, True] and b.resyncs)
    assert server.groups["group"] == {"channel1"}
    assert caplog.text.count("ConnectionError") == 1


async def test_a_connection_that_is_quiet_for_long_is_none_that_was_lost(server):
    """With redis-py 8 a channel of channels_redis on which nothing comes raises its `TimeoutError` now and then."""
    timeout = type("TimeoutError", (Exception,), {})
    a, b = await server.start(listens=False), await server.start()
    for _ in range(3):
        server.break_connections(timeout())
    server.error = None
    a.publish("t", 1)
    await server.wait(lambda: b.heard)
    assert (b.joins, b.resyncs) == ([True], 0)


async def test_redis_answers_before_its_client_gives_up(monkeypatch):
    class Layer:
        brpop_timeout = 5

    monkeypatch.setattr(bus_module.Bus, "shared_layer", lambda self: ("default", {}))
    monkeypatch.setattr(bus_module.channel_layers, "make_backend", lambda alias: Layer())
    assert Bus()._make_layer().brpop_timeout < 5


async def test_a_layer_that_never_joins_is_tried_for_ever(server):
    server.error = ConnectionError()
    process = await server.start(listens=False)
    process.subscribe("t", process.hear)
    await server.wait(lambda: server.calls.count("new_channel") > 3)
    server.error = None
    await process.joined()


async def test_a_hanging_layer_is_given_up(server, monkeypatch):
    monkeypatch.setattr(bus_module, "OPERATION_TIMEOUT", 0.01)
    a, b = await server.start(listens=False), await server.start()
    hangs = asyncio.Event()
    original, a.layer.group_send = a.layer.group_send, lambda *args: hangs.wait()
    a.publish("t", 1)
    await asyncio.sleep(0)
    a.layer.group_send = original
    await server.wait(lambda: b.heard)


async def test_more_than_can_wait_becomes_one_gap(server):
    a, b = await server.start(listens=False), await server.start()
    large = "x" * (MAX_EVENT - 100)
    for _ in range(MAX_WAITING // MAX_EVENT + 10):
        a.publish("t", large)
    await asyncio.sleep(0)
    assert a._waiting <= MAX_WAITING
    await server.wait(lambda: b.resyncs)


async def test_one_event_that_is_too_long_becomes_a_gap(server):
    a, b = await server.start(listens=False), await server.start()
    a.publish("t", "x" * MAX_EVENT)
    await server.wait(lambda: b.resyncs)
    assert b.heard == []


async def test_what_is_no_json_is_logged_and_becomes_a_gap(server, caplog):
    a, b = await server.start(listens=False), await server.start()
    a.publish("t", object())
    await server.wait(lambda: b.resyncs)
    assert "is not JSON" in caplog.text


@pytest.mark.parametrize("body", ["{", "[]", "{}", '{"from": 1}', '{"from":"x","number":"a","since":1,"events":[1]}'])
async def test_a_message_of_somebody_else_is_left_alone(server, body, caplog):
    b = await server.start()
    layer = FakeLayer(server)
    await layer.group_send("group", {"type": "x", "body": json.dumps(json.loads(body)) if body != "{" else "{}"})
    a = await server.start(listens=False)
    a.publish("t", 1)
    await server.wait(lambda: b.heard)
    assert "is not from this app" in caplog.text


async def test_a_membership_is_renewed_with_each_heartbeat(server):
    b = await server.start()
    server.groups.clear()
    beats = server.calls.count("group_send")
    await server.wait(lambda: server.calls.count("group_send") > beats + 1)
    assert server.groups["group"] == {"channel0"}
    assert b.joins == [True]


async def test_202_who_does_not_hear_their_own_heartbeat_joins_anew(server, monkeypatch):
    monkeypatch.setattr(bus_module, "SILENCE", 0.1)
    b = await server.start()

    async def nowhere(group, message):
        pass

    b.layer.group_send = nowhere
    await server.wait(lambda: b.joins.count(True) > 1 and b.resyncs)


async def test_an_echo_that_is_missing_makes_a_process_look_again_although_others_are_heard(server, monkeypatch):
    monkeypatch.setattr(bus_module, "ECHO", 0.01)
    a, b = await server.start(), await server.start()
    send, lost = b.layer.send, []

    async def lose_one(channel, message):
        if lost:
            await send(channel, message)
        lost.append(message)

    b.layer.send = lose_one
    await server.wait(lambda: b.resyncs)
    await server.wait(lambda: len(lost) > 4)
    assert (b.joins, b.resyncs, a.resyncs) == ([True], 1, 0)


async def test_who_hears_others_but_no_echo_joins_anew(server, monkeypatch):
    monkeypatch.setattr(bus_module, "ECHO_SILENCE", 0.1)
    a, b = await server.start(), await server.start()

    async def nowhere(channel, message):
        pass

    b.layer.send = nowhere
    await server.wait(lambda: b.joins.count(True) > 1 and b.resyncs)
    assert [body for body in server.sent if body["from"] == a.id]


async def test_closing_sends_what_waits_and_leaves(server):
    a, b = await server.start(), await server.start()
    a.publish("t", 1)
    await a.end()
    await server.wait(lambda: b.heard)
    assert server.groups["group"] == {"channel1"}


async def test_closing_gives_up_on_a_layer_that_is_down(server, monkeypatch):
    monkeypatch.setattr(bus_module, "RETRY_FIRST", 1000)
    monkeypatch.setattr(bus_module, "FLUSH_TIMEOUT", 1000)
    a = await server.start(listens=False)
    server.error = ConnectionError()
    a.publish("t", 1)
    await server.wait(lambda: "group_send" in server.calls)
    await a.end()
    assert server.calls.count("group_send") == 2


async def test_closing_does_not_wait_for_a_layer_that_hangs(server, monkeypatch, caplog):
    monkeypatch.setattr(bus_module, "FLUSH_TIMEOUT", 0.01)
    a = await server.start(listens=False)
    hangs = asyncio.Event()
    a.layer.group_send = lambda *args: hangs.wait()
    a.publish("t", 1)
    await a.end()
    assert "did not reach other processes" in caplog.text
