import asyncio
import json
import logging

import pytest

from mcp_django.subscriptions import relay
from mcp_django.subscriptions.relay import MAX_EVENT, MAX_EVENTS, MAX_WAITING, Ledger, Relay
from tests.fake_layer import FakeLayer, Server

SECRET = "redis://:password@host"


# The ledger


def enter(ledger, number, *, since=1.0, heard_for=100.0, publisher="a", has_events=True):
    return ledger.enter(publisher, number, has_events=has_events, since=since, heard_for=heard_for)


def test_202_a_missing_number_is_a_gap_and_an_old_one_is_nothing_new():
    ledger = Ledger()
    assert enter(ledger, 1, since=None) == (True, False)
    assert enter(ledger, 2) == (True, False)
    assert enter(ledger, 2) == (False, False)
    assert enter(ledger, 4) == (True, True)
    assert enter(ledger, 3) == (False, False)
    assert enter(ledger, 5) == (True, False)


def test_202_the_last_number_told_again_shows_the_loss_of_the_last_message():
    ledger = Ledger()
    enter(ledger, 1, since=None)
    assert enter(ledger, 1, has_events=False) == (True, False)
    assert enter(ledger, 2, has_events=False) == (True, True)
    assert enter(ledger, 2, has_events=False) == (True, False)


def test_what_was_sent_before_this_process_listened_is_not_missed():
    assert enter(Ledger(), 5, since=60.0, heard_for=30.0) == (True, False)
    assert enter(Ledger(), 5, since=10.0, heard_for=30.0) == (True, True)
    assert enter(Ledger(), 5, since=60.0, heard_for=30.0, has_events=False) == (True, False)
    assert enter(Ledger(), 1, since=10.0, heard_for=30.0, has_events=False) == (True, True)
    assert enter(Ledger(), 1, since=None, heard_for=30.0) == (True, False)


def test_publishers_are_forgotten_the_oldest_first(monkeypatch):
    monkeypatch.setattr(relay, "MAX_PUBLISHERS", 2)
    ledger = Ledger()
    for publisher in ("a", "b", "a", "c"):
        ledger.enter(publisher, 1, has_events=False, since=None, heard_for=0)
    assert list(ledger._last) == ["a", "c"]
    ledger.clear()
    assert not ledger._last


# The relay


class Process:
    """A process with a relay, and what it heard."""

    def __init__(self, server, listens=True):
        self.server, self.heard, self.resyncs, self.joins = server, [], 0, []
        self.relay = Relay(
            FakeLayer(server), "group", deliver=self.deliver, resync=self.resync, joined=self.joins.append
        )
        if listens:
            self.relay.listen()
            self.relay.listen()

    def deliver(self, topic, payload):
        self.heard.append((topic, payload))
        self.notify()

    def resync(self):
        self.resyncs += 1
        self.notify()

    def notify(self):
        asyncio.get_running_loop().create_task(self.server.notify())

    async def joined(self):
        await self.server.wait(lambda: self.joins[-1:] == [True] and self.resyncs)
        self.resyncs = 0
        return self


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    monkeypatch.setattr(relay, "TICKS", (0.02, 0.04))
    monkeypatch.setattr(relay, "RETRY_FIRST", 0.01)
    monkeypatch.setattr(relay, "RETRY_MOST", 0.02)


@pytest.fixture
async def server():
    server = Server()
    server.processes = []

    async def start(**options):
        process = Process(server, **options)
        server.processes.append(process)
        return await process.joined() if options.get("listens", True) else process

    server.start = start
    yield server
    for process in server.processes:
        await process.relay.close(1)


async def test_what_one_process_sends_others_hear_and_itself_does_not(server):
    a, b, c = [await server.start() for _ in range(3)]
    a.relay.send("t", {"x": [1, "ü"]})
    await server.wait(lambda: b.heard and c.heard)
    assert b.heard == c.heard == [("t", {"x": [1, "ü"]})]
    assert a.heard == []
    assert server.groups["group"] == {"channel0", "channel1", "channel2"}


async def test_events_of_one_moment_travel_together_in_order(server):
    a, b = await server.start(listens=False), await server.start()
    for number in range(MAX_EVENTS + 1):
        a.relay.send("t", number)
    await server.wait(lambda: len(b.heard) == MAX_EVENTS + 1)
    assert [payload for _, payload in b.heard] == list(range(MAX_EVENTS + 1))
    assert [len(body["events"]) for body in server.sent[:2]] == [MAX_EVENTS, 1]


async def test_202_a_message_that_was_lost_makes_everyone_look_again(server):
    a, b = await server.start(listens=False), await server.start()
    a.relay.send("t", 1)
    await server.wait(lambda: b.heard)
    server.lost = 1
    a.relay.send("t", 2)
    await server.wait(lambda: len(server.sent) >= 2)
    a.relay.send("t", 3)
    await server.wait(lambda: len(b.heard) == 2)
    assert (b.heard[-1], b.resyncs) == (("t", 3), 1)


async def test_202_the_loss_of_the_very_last_message_is_noticed(server):
    a, b = await server.start(listens=False), await server.start()
    server.lost = 1
    a.relay.send("t", 1)
    await server.wait(lambda: b.resyncs)
    assert b.heard == []
    # Told twice, the number is no news the second time.
    await server.wait(lambda: len([body for body in server.sent if not body["events"]]) == 2)
    assert b.resyncs == 1


async def test_a_layer_that_is_down_is_tried_again_and_loses_nothing(server, caplog):
    caplog.set_level(logging.INFO, "mcp_django")
    a, b = await server.start(listens=False), await server.start()
    server.error = ConnectionError(SECRET)
    a.relay.send("t", 1)
    tries = len(server.calls)
    await server.wait(lambda: len(server.calls) > tries + 3)
    a.relay.send("t", 2)
    server.error = None
    await server.wait(lambda: len(b.heard) == 2)
    assert [payload for _, payload in b.heard] == [1, 2]
    assert b.resyncs == 0
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        "The channel layer does not answer (ConnectionError): changes reach no other process"
    ]
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
    a.relay.send("t", 1)
    await server.wait(lambda: b.heard)
    assert (b.joins, b.resyncs) == ([True], 0)


async def test_redis_answers_before_its_client_gives_up(server):
    layer = FakeLayer(server)
    layer.brpop_timeout = 5
    process = Process(server, listens=False)
    relay = Relay(layer, "group", deliver=process.deliver, resync=process.resync, joined=process.joins.append)
    assert layer.brpop_timeout < 5
    await relay.close(1)
    await process.relay.close(1)


async def test_a_layer_that_never_joins_is_tried_for_ever(server):
    server.error = ConnectionError()
    process = await server.start(listens=False)
    process.relay.listen()
    await server.wait(lambda: server.calls.count("new_channel") > 3)
    server.error = None
    await process.joined()


async def test_a_hanging_layer_is_given_up(server, monkeypatch):
    monkeypatch.setattr(relay, "OPERATION_TIMEOUT", 0.01)
    a, b = await server.start(listens=False), await server.start()
    hangs = asyncio.Event()
    original, a.relay.layer.group_send = a.relay.layer.group_send, lambda *args: hangs.wait()
    a.relay.send("t", 1)
    await asyncio.sleep(0)
    a.relay.layer.group_send = original
    await server.wait(lambda: b.heard)


async def test_more_than_can_wait_becomes_one_gap(server):
    a, b = await server.start(listens=False), await server.start()
    large = "x" * (MAX_EVENT - 100)
    for _ in range(MAX_WAITING // MAX_EVENT + 10):
        a.relay.send("t", large)
    assert a.relay._waiting <= MAX_WAITING
    await server.wait(lambda: b.resyncs)


async def test_one_event_that_is_too_long_becomes_a_gap(server):
    a, b = await server.start(listens=False), await server.start()
    a.relay.send("t", "x" * MAX_EVENT)
    await server.wait(lambda: b.resyncs)
    assert b.heard == []


async def test_what_is_no_json_is_logged_and_becomes_a_gap(server, caplog):
    a, b = await server.start(listens=False), await server.start()
    a.relay.send("t", object())
    await server.wait(lambda: b.resyncs)
    assert "is no JSON" in caplog.text


@pytest.mark.parametrize("body", ["{", "[]", "{}", '{"from": 1}', '{"from":"x","number":"a","since":1,"events":[1]}'])
async def test_a_message_of_somebody_else_is_left_alone(server, body, caplog):
    b = await server.start()
    layer = FakeLayer(server)
    await layer.group_send("group", {"type": "x", "body": json.dumps(json.loads(body)) if body != "{" else "{}"})
    a = await server.start(listens=False)
    a.relay.send("t", 1)
    await server.wait(lambda: b.heard)
    assert "is not of this app" in caplog.text


async def test_what_is_sent_to_this_process_is_tried_out(server, monkeypatch):
    monkeypatch.setattr(relay, "PULSE_EVERY", 0.01)
    b = await server.start()
    server.groups.clear()
    await server.wait(lambda: server.calls.count("send") > 2)
    # The membership is renewed each time.
    assert server.groups["group"] == {"channel0"}
    assert b.joins == [True]


async def test_202_a_subscription_that_went_deaf_is_made_anew(server, monkeypatch):
    monkeypatch.setattr(relay, "PULSE_EVERY", 0.01)
    monkeypatch.setattr(relay, "PULSE_TIMEOUT", 0.01)
    b = await server.start()

    async def nowhere(channel, message):
        pass

    b.relay.layer.send = nowhere
    await server.wait(lambda: b.joins.count(True) > 1 and b.resyncs)


async def test_closing_sends_what_waits_and_leaves(server):
    a, b = await server.start(), await server.start()
    a.relay.send("t", 1)
    await a.relay.close(5)
    await server.wait(lambda: b.heard)
    assert server.groups["group"] == {"channel1"}


async def test_closing_gives_up_on_a_layer_that_is_down(server, monkeypatch):
    monkeypatch.setattr(relay, "RETRY_FIRST", 1000)
    a = await server.start(listens=False)
    server.error = ConnectionError()
    a.relay.send("t", 1)
    await server.wait(lambda: "group_send" in server.calls)
    await a.relay.close(1000)
    assert server.calls.count("group_send") == 2


async def test_closing_does_not_wait_for_a_layer_that_hangs(server, caplog):
    a = await server.start(listens=False)
    hangs = asyncio.Event()
    a.relay.layer.group_send = lambda *args: hangs.wait()
    a.relay.send("t", 1)
    await a.relay.close(0.01)
    assert "did not reach other processes" in caplog.text
