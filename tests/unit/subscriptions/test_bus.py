import asyncio
import json
import os
import subprocess
import sys
import textwrap
import threading
import uuid

import pytest
from django.test import override_settings

from mcp_django.subscriptions import bus as bus_module
from mcp_django.subscriptions.bus import RESYNC, Bus
from mcp_django.subscriptions.changes import CHANGES, Changes
from tests.subscribers import TIMEOUT, without_outages

MEMORY = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
# Nothing listens there.
DEAD = {
    "default": {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        "CONFIG": {"hosts": [{"address": "redis://:password@127.0.0.1:9", "socket_connect_timeout": 1}]},
    }
}


class Ear:
    """What one subscriber heard."""

    def __init__(self, bus, *topics):
        self.heard, self.threads = [], set()
        self.changed = threading.Condition()
        self.unsubscribes = [bus.subscribe(topic, self.hear) for topic in topics]

    def hear(self, payload):
        with self.changed:
            self.heard.append(payload)
            self.threads.add(threading.current_thread().name)
            self.changed.notify_all()

    def wait(self, condition):
        with self.changed:
            return bool(self.changed.wait_for(condition, TIMEOUT))

    def unsubscribe(self):
        for unsubscribe in self.unsubscribes:
            unsubscribe()


def rows(*pks):
    changes = Changes()
    changes.add_rows("a.b", pks)
    return changes


@pytest.fixture
def buses():
    made = []

    def make():
        made.append(Bus())
        return made[-1]

    yield make
    for bus in made:
        bus._subscribers.clear()
        bus.close()


@pytest.fixture
def layers(redis, settings):
    """Let buses hear each other through Redis."""
    settings.CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.core.RedisChannelLayer",
            "CONFIG": {"hosts": [redis], "prefix": f"test{uuid.uuid4().hex}"},
        }
    }
    return settings.CHANNEL_LAYERS


@pytest.fixture(params=["core.RedisChannelLayer", "pubsub.RedisPubSubChannelLayer"])
def any_layers(layers, settings, request):
    layers = {"default": {**layers["default"], "BACKEND": f"channels_redis.{request.param}"}}
    settings.CHANNEL_LAYERS = layers
    return layers


# One process


def test_what_is_published_is_heard_in_order_by_all_who_listen_to_the_topic(buses):
    bus = buses()
    first, second, other = Ear(bus, "a"), Ear(bus, "a"), Ear(bus, "b")
    for number in range(100):
        bus.publish("a", {"number": number})
    assert first.wait(lambda: len(first.heard) == 100)
    assert second.wait(lambda: len(second.heard) == 100)
    assert [payload["number"] for payload in first.heard] == list(range(100))
    assert first.threads == {"mcp-bus"}
    assert other.heard == []


def test_who_does_not_listen_any_more_hears_nothing(buses):
    bus = buses()
    gone, stays = Ear(bus, "a", "b"), Ear(bus, "a")
    gone.unsubscribe()
    gone.unsubscribe()
    bus.publish("a", 1)
    assert stays.wait(lambda: stays.heard)
    assert gone.heard == []
    assert set(bus._subscribers) == {"a"}


def test_a_listener_that_fails_keeps_nothing_from_the_others(buses, caplog):
    bus = buses()

    def fail(payload):
        raise ZeroDivisionError

    bus.subscribe("a", fail)
    ear = Ear(bus, "a")
    bus.publish("a", 1)
    bus.publish("a", 2)
    assert ear.wait(lambda: ear.heard == [1, 2])
    assert "A listener of the bus failed" in caplog.text


def test_202_more_than_the_queue_holds_becomes_a_resync(buses, monkeypatch):
    monkeypatch.setattr(bus_module, "MAX_QUEUE", 10)
    bus = buses()
    ear, busy, go_on = Ear(bus, "a"), threading.Event(), threading.Event()

    def slow(payload):
        busy.set()
        go_on.wait(TIMEOUT)

    bus.subscribe("slow", slow)
    bus.publish("slow", None)
    assert busy.wait(TIMEOUT)
    for number in range(25):
        bus.publish("a", number)
        assert len(bus._queue) <= 10
    go_on.set()
    assert ear.wait(lambda: ear.heard[-1:] == [24])
    assert ear.heard == [RESYNC, 20, 21, 22, 23, 24]


def test_changes_are_told_soon(buses):
    bus = buses()
    ear = Ear(bus, CHANGES)
    for number in (1, 2):
        bus.put(rows(str(number)))
        assert ear.wait(lambda number=number: len(ear.heard) == number)
        assert ear.heard[-1].rows == {"a.b": {str(number)}}


def test_107_a_burst_of_changes_is_told_as_one_and_at_the_end_at_the_latest(buses, monkeypatch):
    monkeypatch.setattr(bus_module, "SOON", 1000)
    bus = buses()
    ear = Ear(bus, CHANGES)
    for number in (1, 2):
        for _ in range(10_000):
            bus.put(rows(str(number)))
        bus.close()
        assert [changes.rows for changes in ear.heard] == [{"a.b": {str(done)}} for done in range(1, number + 1)]
        assert ear.threads == {"mcp-bus"}


@override_settings(CHANNEL_LAYERS={})
def test_where_nobody_can_hear_no_change_is_kept(buses):
    bus = buses()
    bus.put(rows("1"))
    ear = Ear(bus, CHANGES)
    bus.put(Changes())
    bus.close()
    assert ear.heard == []


@override_settings(CHANNEL_LAYERS={})
def test_the_child_of_a_fork_does_not_tell_what_its_parent_will(buses, monkeypatch):
    monkeypatch.setattr(bus_module, "SOON", 1000)
    monkeypatch.setattr(bus_module, "bus", buses())
    monkeypatch.setattr(bus_module, "_inherited", [])
    bus = bus_module.bus
    parents = Ear(bus, CHANGES)
    bus.put(rows("1"))
    bus._lock.acquire()
    bus_module._forked()
    # What would end with the parent's own use of it.
    before = bus_module._inherited[0]
    before["_loop"].call_soon_threadsafe(before["_stop"].set)
    before["_thread"].join(TIMEOUT)
    ear = Ear(bus, CHANGES)
    bus.put(rows("2"))
    bus.close()
    assert [changes.rows for changes in ear.heard] == [{"a.b": {"2"}}]
    assert parents.heard == []


def test_closing_delivers_what_was_published_and_the_next_use_starts_again(buses):
    bus = buses()
    ear = Ear(bus, "a")
    bus.publish("a", 1)
    bus.close()
    assert ear.heard == [1]
    bus.publish("a", 2)
    assert ear.wait(lambda: ear.heard == [1, 2])
    bus.close()
    bus.close()


def test_where_no_thread_can_be_started_nothing_fails_and_later_all_is_told(buses, monkeypatch):
    def fail(self):
        raise RuntimeError("can't start new thread")

    bus = buses()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        ear, changed = Ear(bus, "a"), Ear(bus, CHANGES)
        bus.publish("a", 1)
        bus.put(rows("1"))
    bus.publish("a", 2)
    assert ear.wait(lambda: ear.heard == [1, 2])
    assert changed.wait(lambda: changed.heard)


def test_a_thread_that_ended_by_itself_is_followed_by_another(buses, caplog, monkeypatch):
    def fail():
        raise ZeroDivisionError

    bus = buses()
    with monkeypatch.context() as patched:
        patched.setattr(bus, "_make_layer", fail)
        ear = Ear(bus, "a")
        bus._thread.join(TIMEOUT)
    assert "The bus has stopped" in caplog.text
    bus.publish("a", 1)
    assert ear.wait(lambda: ear.heard == [1])


@override_settings(CHANNEL_LAYERS={})
def test_a_process_that_is_alone_needs_no_thread(buses):
    alone = buses()
    assert alone.is_idle()
    alone.publish("a", 1)
    assert alone._thread is None
    assert alone.wait_ready(0)


@pytest.mark.parametrize("config", [{}, MEMORY], ids=["none", "memory"])
def test_without_a_shared_layer_there_is_no_road_to_other_processes(config, buses, settings):
    settings.CHANNEL_LAYERS = config
    bus = buses()
    ear = Ear(bus, "a")
    bus.publish("a", 1)
    assert ear.wait(lambda: ear.heard == [1])
    assert bus._layer is None


class OwnMemoryLayer:
    """Stands for a project's subclass of the in-memory layer."""

    def __new__(cls):
        from channels.layers import InMemoryChannelLayer

        return InMemoryChannelLayer()


def test_a_projects_own_layer_of_one_process_is_none_either(buses, settings):
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": f"{__name__}.OwnMemoryLayer"}}
    bus = buses()
    ear = Ear(bus, "a")
    bus.publish("a", 1)
    assert ear.wait(lambda: ear.heard == [1])
    assert bus._layer is None


def test_a_layer_that_cannot_be_made_is_logged_and_the_process_serves_itself(buses, settings, caplog):
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "there.is.no.such.Layer"}}
    bus = buses()
    ear = Ear(bus, "a")
    bus.publish("a", 1)
    assert ear.wait(lambda: ear.heard == [1])
    assert "The channel layer cannot be used" in caplog.text


def test_109_the_group_has_a_valid_name_that_tells_installations_apart(settings):
    names = set()
    for base_url in (None, "https://a.example", "https://b.example/" + "ü x*'\"" * 50):
        settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BASE_URL": base_url}
        name = bus_module.group_name()
        assert name.isascii()
        assert len(name) < 100
        assert name.replace(".", "").replace("_", "").isalnum()
        names.add(name)
    assert len(names) == 3


# Several processes


@pytest.mark.parametrize("payload", [{"rows": {"shop.order": ["1", "ü"]}}, None, [1.5, True]], ids=repr)
def test_111_processes_hear_each_other_through_redis(any_layers, buses, payload):
    a, b, publisher = buses(), buses(), buses()
    ears = [Ear(bus, "a") for bus in (a, b)]
    assert all(bus.wait_ready(TIMEOUT) for bus in (a, b))
    for bus in (a, publisher):
        bus.publish("a", payload)
    for ear in ears:
        assert ear.wait(lambda ear=ear: [item for item in ear.heard if item is not RESYNC] == [payload] * 2)


def test_111_a_process_hears_itself_once(any_layers, buses):
    a, b = buses(), buses()
    ears = [Ear(bus, "a") for bus in (a, b)]
    assert all(bus.wait_ready(TIMEOUT) for bus in (a, b))
    a.publish("a", 1)
    b.publish("a", 2)
    for ear in ears:
        assert ear.wait(lambda ear=ear: {1, 2} <= set(ear.heard))
        assert sorted(item for item in ear.heard if item is not RESYNC) == [1, 2]


def test_202_a_burst_that_the_layer_drops_ends_in_a_resync(layers, buses, settings):
    config = {**layers["default"]["CONFIG"], "capacity": 1}
    settings.CHANNEL_LAYERS = {"default": {**layers["default"], "CONFIG": config}}
    a, b = buses(), buses()
    ear, busy, go_on = Ear(b, "a"), threading.Event(), threading.Event()
    assert b.wait_ready(TIMEOUT)
    assert ear.wait(lambda: ear.heard == [RESYNC])

    def slow(payload):
        busy.set()
        go_on.wait(TIMEOUT)

    b.subscribe("slow", slow)
    a.publish("slow", None)
    assert busy.wait(TIMEOUT)
    sent = Ear(a, "a")
    for number in range(20):
        a.publish("a", number)
        # One message each.
        assert sent.wait(lambda number=number: number in sent.heard)
    go_on.set()
    assert ear.wait(lambda: ear.heard.count(RESYNC) > 1 or ear.heard.count(19))


def test_a_change_of_settings_takes_another_road(layers, buses, settings, monkeypatch):
    bus, other = buses(), buses()
    settings.CHANNEL_LAYERS = MEMORY
    monkeypatch.setattr(bus_module, "bus", bus)
    ear = Ear(bus, "a")
    bus.publish("a", 1)
    assert ear.wait(lambda: ear.heard == [1])
    settings.CHANNEL_LAYERS = layers
    assert bus.wait_ready(TIMEOUT)
    other.publish("a", 2)
    assert ear.wait(lambda: 2 in ear.heard)
    settings.DEBUG = True
    assert bus.wait_ready(0)


# Faults


def test_a_dead_layer_is_no_concern_of_who_publishes(buses, settings, monkeypatch):
    settings.CHANNEL_LAYERS = DEAD
    connecting: set[str] = set()
    original = asyncio.open_connection

    async def open_connection(*args, **kwargs):
        connecting.add(threading.current_thread().name)
        return await original(*args, **kwargs)

    monkeypatch.setattr(asyncio, "open_connection", open_connection)
    bus = buses()
    ear = Ear(bus, "a")
    for number in range(5000):
        bus.publish("a", number)
    assert ear.wait(lambda: ear.heard[-1:] == [4999])
    assert not bus.wait_ready(0)
    bus.close()
    assert connecting <= {"mcp-bus"}


def run(code, *args, **environment):
    """Run a program with this project's test settings."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", **environment},
    )
    return done.returncode, done.stdout, done.stderr


PROGRAM = """
    import sys, json
    import django
    from django.conf import settings
    settings.CHANNEL_LAYERS = json.loads(sys.argv[1])
    django.setup()
    from mcp_django.subscriptions import bus as bus_module
    from mcp_django.subscriptions.changes import Changes
    bus = bus_module.bus
    bus_module.FLUSH_TIMEOUT = int(sys.argv[2])
"""


def test_111_the_last_news_of_a_process_get_out_when_it_ends(layers, buses):
    # By name: to resolve it takes a thread, of which there are no new ones by then.
    config = json.dumps(layers).replace("127.0.0.1", "localhost")
    receiver = buses()
    ear, changed = Ear(receiver, "a"), Ear(receiver, CHANGES)
    assert receiver.wait_ready(TIMEOUT)
    code = (
        PROGRAM
        + """
    changes = Changes()
    changes.add_rows("a.b", ["1"])
    changes.lists.add(("tools", None))
    bus.put(changes)
    bus.publish("a", "last words")
    """
    )
    returncode, _, stderr = run(code, config, "30")
    assert (returncode, without_outages(stderr)) == (0, "")
    assert ear.wait(lambda: "last words" in ear.heard)

    def told():
        heard = [item for item in changed.heard if item is not RESYNC]
        return any(item.rows == {"a.b": {"1"}} for item in heard) and any(
            item.lists == {("tools", None)} for item in heard
        )

    assert changed.wait(told)


def test_a_process_ends_although_the_layer_is_dead():
    returncode, _, stderr = run(PROGRAM + '    bus.publish("a", 1)\n', json.dumps(DEAD), "2")
    assert returncode == 0
    assert "password" not in stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_the_child_of_a_fork_starts_anew(layers, buses):
    receiver = buses()
    ear = Ear(receiver, "a")
    assert receiver.wait_ready(TIMEOUT)
    code = (
        PROGRAM
        + """
    import os, warnings
    heard = []
    bus.subscribe("a", heard.append)
    assert bus.wait_ready(20)
    bus._lock.acquire()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        assert not bus._subscribers
        bus.publish("a", "child")
        bus.close()
        os._exit(0)
    bus._lock.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    bus.publish("a", "parent")
    """
    )
    returncode, _, stderr = run(code, json.dumps(layers), "30")
    assert (returncode, without_outages(stderr)) == (0, "")
    assert ear.wait(lambda: {"child", "parent"} <= set(ear.heard))
