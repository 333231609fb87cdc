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

from mcp_django.subscriptions import hub as hub_module
from mcp_django.subscriptions.changes import CHANGES, Changes
from mcp_django.subscriptions.hub import RESYNC, Hub
from tests.listening import TIMEOUT

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

    def __init__(self, hub, *topics):
        self.heard, self.threads = [], set()
        self.changed = threading.Condition()
        self.unsubscribes = [hub.subscribe(topic, self.hear) for topic in topics]

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
def hubs():
    made = []

    def make():
        made.append(Hub())
        return made[-1]

    yield make
    for hub in made:
        hub._subscribers.clear()
        hub.close()


@pytest.fixture
def layers(redis, settings):
    """Let hubs hear each other through Redis."""
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


def test_what_is_published_is_heard_in_order_by_all_who_listen_to_the_topic(hubs):
    hub = hubs()
    first, second, other = Ear(hub, "a"), Ear(hub, "a"), Ear(hub, "b")
    for number in range(100):
        hub.publish("a", {"number": number})
    assert first.wait(lambda: len(first.heard) == 100)
    assert second.wait(lambda: len(second.heard) == 100)
    assert [payload["number"] for payload in first.heard] == list(range(100))
    assert first.threads == {"mcp-hub"}
    assert other.heard == []


def test_who_does_not_listen_any_more_hears_nothing(hubs):
    hub = hubs()
    gone, stays = Ear(hub, "a", "b"), Ear(hub, "a")
    gone.unsubscribe()
    gone.unsubscribe()
    hub.publish("a", 1)
    assert stays.wait(lambda: stays.heard)
    assert gone.heard == []
    assert set(hub._subscribers) == {"a"}


def test_a_listener_that_fails_keeps_nothing_from_the_others(hubs, caplog):
    hub = hubs()

    def fail(payload):
        raise ZeroDivisionError

    hub.subscribe("a", fail)
    ear = Ear(hub, "a")
    hub.publish("a", 1)
    hub.publish("a", 2)
    assert ear.wait(lambda: ear.heard == [1, 2])
    assert "A listener of the hub failed" in caplog.text


def test_202_more_than_the_queue_holds_becomes_a_resync(hubs, monkeypatch):
    monkeypatch.setattr(hub_module, "MAX_QUEUE", 10)
    hub = hubs()
    ear, busy, go_on = Ear(hub, "a"), threading.Event(), threading.Event()

    def slow(payload):
        busy.set()
        go_on.wait(TIMEOUT)

    hub.subscribe("slow", slow)
    hub.publish("slow", None)
    assert busy.wait(TIMEOUT)
    for number in range(25):
        hub.publish("a", number)
        assert len(hub._queue) <= 10
    go_on.set()
    assert ear.wait(lambda: ear.heard[-1:] == [24])
    assert ear.heard == [RESYNC, 20, 21, 22, 23, 24]


def test_changes_are_told_soon(hubs):
    hub = hubs()
    ear = Ear(hub, CHANGES)
    for number in (1, 2):
        hub.put(rows(str(number)))
        assert ear.wait(lambda number=number: len(ear.heard) == number)
        assert ear.heard[-1].rows == {"a.b": {str(number)}}


def test_107_a_burst_of_changes_is_told_as_one_and_at_the_end_at_the_latest(hubs, monkeypatch):
    monkeypatch.setattr(hub_module, "SOON", 1000)
    hub = hubs()
    ear = Ear(hub, CHANGES)
    for number in (1, 2):
        for _ in range(10_000):
            hub.put(rows(str(number)))
        hub.close()
        assert [changes.rows for changes in ear.heard] == [{"a.b": {str(done)}} for done in range(1, number + 1)]
        assert ear.threads == {"mcp-hub"}


@override_settings(CHANNEL_LAYERS={})
def test_where_nobody_can_hear_no_change_is_kept(hubs):
    hub = hubs()
    hub.put(rows("1"))
    ear = Ear(hub, CHANGES)
    hub.put(Changes())
    hub.close()
    assert ear.heard == []


@override_settings(CHANNEL_LAYERS={})
def test_the_child_of_a_fork_does_not_tell_what_its_parent_will(hubs, monkeypatch):
    monkeypatch.setattr(hub_module, "SOON", 1000)
    monkeypatch.setattr(hub_module, "hub", hubs())
    monkeypatch.setattr(hub_module, "_inherited", [])
    hub = hub_module.hub
    parents = Ear(hub, CHANGES)
    hub.put(rows("1"))
    hub._lock.acquire()
    hub_module._forked()
    # What would end with the parent's own use of it.
    before = hub_module._inherited[0]
    before["_loop"].call_soon_threadsafe(before["_stop"].set)
    before["_thread"].join(TIMEOUT)
    ear = Ear(hub, CHANGES)
    hub.put(rows("2"))
    hub.close()
    assert [changes.rows for changes in ear.heard] == [{"a.b": {"2"}}]
    assert parents.heard == []


def test_closing_delivers_what_was_published_and_the_next_use_starts_again(hubs):
    hub = hubs()
    ear = Ear(hub, "a")
    hub.publish("a", 1)
    hub.close()
    assert ear.heard == [1]
    hub.publish("a", 2)
    assert ear.wait(lambda: ear.heard == [1, 2])
    hub.close()
    hub.close()


def test_where_no_thread_can_be_started_nothing_fails_and_later_all_is_told(hubs, monkeypatch):
    def fail(self):
        raise RuntimeError("can't start new thread")

    hub = hubs()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        ear, changed = Ear(hub, "a"), Ear(hub, CHANGES)
        hub.publish("a", 1)
        hub.put(rows("1"))
    hub.publish("a", 2)
    assert ear.wait(lambda: ear.heard == [1, 2])
    assert changed.wait(lambda: changed.heard)


def test_a_thread_that_ended_by_itself_is_followed_by_another(hubs, caplog, monkeypatch):
    def fail():
        raise ZeroDivisionError

    hub = hubs()
    with monkeypatch.context() as patched:
        patched.setattr(hub, "_make_relay", fail)
        ear = Ear(hub, "a")
        hub._thread.join(TIMEOUT)
    assert "The hub has stopped" in caplog.text
    hub.publish("a", 1)
    assert ear.wait(lambda: ear.heard == [1])


@override_settings(CHANNEL_LAYERS={})
def test_a_process_that_is_alone_needs_no_thread(hubs):
    alone = hubs()
    assert alone.is_idle()
    alone.publish("a", 1)
    assert alone._thread is None
    assert alone.wait_ready(0)


@pytest.mark.parametrize("config", [{}, MEMORY], ids=["none", "memory"])
def test_without_a_shared_layer_there_is_no_road_to_other_processes(config, hubs, settings):
    settings.CHANNEL_LAYERS = config
    hub = hubs()
    ear = Ear(hub, "a")
    hub.publish("a", 1)
    assert ear.wait(lambda: ear.heard == [1])
    assert hub._relay is None


class OwnMemoryLayer:
    """Stands for a project's subclass of the in-memory layer."""

    def __new__(cls):
        from channels.layers import InMemoryChannelLayer

        return InMemoryChannelLayer()


def test_a_projects_own_layer_of_one_process_is_none_either(hubs, settings):
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": f"{__name__}.OwnMemoryLayer"}}
    hub = hubs()
    ear = Ear(hub, "a")
    hub.publish("a", 1)
    assert ear.wait(lambda: ear.heard == [1])
    assert hub._relay is None


def test_a_layer_that_cannot_be_made_is_logged_and_the_process_serves_itself(hubs, settings, caplog):
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "there.is.no.such.Layer"}}
    hub = hubs()
    ear = Ear(hub, "a")
    hub.publish("a", 1)
    assert ear.wait(lambda: ear.heard == [1])
    assert "The channel layer cannot be used" in caplog.text


def test_109_the_group_has_a_valid_name_that_tells_installations_apart(settings):
    names = set()
    for base_url in (None, "https://a.example", "https://b.example/" + "ü x*'\"" * 50):
        settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BASE_URL": base_url}
        name = hub_module.group_name()
        assert name.isascii()
        assert len(name) < 100
        assert name.replace(".", "").replace("_", "").isalnum()
        names.add(name)
    assert len(names) == 3


# Several processes


@pytest.mark.parametrize("payload", [{"rows": {"shop.order": ["1", "ü"]}}, None, [1.5, True]], ids=repr)
def test_111_processes_hear_each_other_through_redis(any_layers, hubs, payload):
    a, b, publisher = hubs(), hubs(), hubs()
    ears = [Ear(hub, "a") for hub in (a, b)]
    assert all(hub.wait_ready(TIMEOUT) for hub in (a, b))
    for hub in (a, publisher):
        hub.publish("a", payload)
    for ear in ears:
        assert ear.wait(lambda ear=ear: [item for item in ear.heard if item is not RESYNC] == [payload] * 2)


def test_111_a_process_hears_itself_once(any_layers, hubs):
    a, b = hubs(), hubs()
    ears = [Ear(hub, "a") for hub in (a, b)]
    assert all(hub.wait_ready(TIMEOUT) for hub in (a, b))
    a.publish("a", 1)
    b.publish("a", 2)
    for ear in ears:
        assert ear.wait(lambda ear=ear: {1, 2} <= set(ear.heard))
        assert sorted(item for item in ear.heard if item is not RESYNC) == [1, 2]


def test_202_a_burst_that_the_layer_drops_ends_in_a_resync(layers, hubs, settings):
    config = {**layers["default"]["CONFIG"], "capacity": 1}
    settings.CHANNEL_LAYERS = {"default": {**layers["default"], "CONFIG": config}}
    a, b = hubs(), hubs()
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
    relay = a._relay
    assert relay is not None
    go_on.set()
    assert ear.wait(lambda: ear.heard.count(RESYNC) > 1 or ear.heard.count(19))


def test_a_change_of_settings_takes_another_road(layers, hubs, settings, monkeypatch):
    hub, other = hubs(), hubs()
    settings.CHANNEL_LAYERS = MEMORY
    monkeypatch.setattr(hub_module, "hub", hub)
    ear = Ear(hub, "a")
    hub.publish("a", 1)
    assert ear.wait(lambda: ear.heard == [1])
    settings.CHANNEL_LAYERS = layers
    assert hub.wait_ready(TIMEOUT)
    other.publish("a", 2)
    assert ear.wait(lambda: 2 in ear.heard)
    settings.DEBUG = True
    assert hub.wait_ready(0)


# Faults


def test_a_dead_layer_is_no_concern_of_who_publishes(hubs, settings, monkeypatch):
    settings.CHANNEL_LAYERS = DEAD
    connecting: set[str] = set()
    original = asyncio.open_connection

    async def open_connection(*args, **kwargs):
        connecting.add(threading.current_thread().name)
        return await original(*args, **kwargs)

    monkeypatch.setattr(asyncio, "open_connection", open_connection)
    hub = hubs()
    ear = Ear(hub, "a")
    for number in range(5000):
        hub.publish("a", number)
    assert ear.wait(lambda: ear.heard[-1:] == [4999])
    assert not hub.wait_ready(0)
    hub.close()
    assert connecting <= {"mcp-hub"}


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
    from mcp_django.subscriptions import hub as hub_module
    from mcp_django.subscriptions.changes import Changes
    hub = hub_module.hub
    hub_module.FLUSH_TIMEOUT = int(sys.argv[2])
"""


def test_111_the_last_news_of_a_process_get_out_when_it_ends(layers, hubs):
    # By name: to resolve it takes a thread, of which there are no new ones by then.
    config = json.dumps(layers).replace("127.0.0.1", "localhost")
    receiver = hubs()
    ear, changed = Ear(receiver, "a"), Ear(receiver, CHANGES)
    assert receiver.wait_ready(TIMEOUT)
    code = (
        PROGRAM
        + """
    changes = Changes()
    changes.add_rows("a.b", ["1"])
    changes.lists.add(("tools", None))
    hub.put(changes)
    hub.publish("a", "last words")
    """
    )
    returncode, _, stderr = run(code, config, "30")
    assert (returncode, stderr) == (0, "")
    assert ear.wait(lambda: "last words" in ear.heard)

    def told():
        heard = [item for item in changed.heard if item is not RESYNC]
        return any(item.rows == {"a.b": {"1"}} for item in heard) and any(
            item.lists == {("tools", None)} for item in heard
        )

    assert changed.wait(told)


def test_a_process_ends_although_the_layer_is_dead():
    returncode, _, stderr = run(PROGRAM + '    hub.publish("a", 1)\n', json.dumps(DEAD), "2")
    assert returncode == 0
    assert "password" not in stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_the_child_of_a_fork_starts_anew(layers, hubs):
    receiver = hubs()
    ear = Ear(receiver, "a")
    assert receiver.wait_ready(TIMEOUT)
    code = (
        PROGRAM
        + """
    import os, warnings
    heard = []
    hub.subscribe("a", heard.append)
    assert hub.wait_ready(20)
    hub._lock.acquire()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        assert not hub._subscribers
        hub.publish("a", "child")
        hub.close()
        os._exit(0)
    hub._lock.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    hub.publish("a", "parent")
    """
    )
    returncode, _, stderr = run(code, json.dumps(layers), "30")
    assert (returncode, stderr) == (0, "")
    assert ear.wait(lambda: {"child", "parent"} <= set(ear.heard))
