import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.cache import caches
from django.test import override_settings

from mcp_django.runtime.cache_and_rate_limits import PAUSE, CacheIsAway, SharedCache
from mcp_django.testing import MCPClient
from tests.factories import make_book, make_superuser


class Hanging:
    """A server that accepts connections and never answers."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.connections = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                self.connections.append(self.listener.accept()[0])
            except OSError:
                return

    def close(self):
        self.listener.close()
        for connection in self.connections:
            connection.close()


@pytest.fixture
def hanging(nothing_is_left_by_other_tests):
    server = Hanging()
    redis = {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": f"redis://127.0.0.1:{server.port}",
    }
    with override_settings(CACHES={"default": redis}):
        yield server
    server.close()


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("mcp_django.runtime.cache_and_rate_limits.time.monotonic", lambda: now[0])
    return now


@pytest.mark.django_db
def test_a_cache_that_hangs_costs_one_call_a_moment_and_the_others_nothing(hanging):
    client = MCPClient(make_superuser())
    began = time.monotonic()
    for _ in range(8):
        assert client.tools()
    # redis-py alone would have waited 5 seconds for each of them.
    assert time.monotonic() - began < 5
    assert len(hanging.connections) == 1


@pytest.mark.django_db
def test_what_needs_the_cache_is_refused_soon_and_can_be_repeated(hanging):
    client, book = MCPClient(make_superuser()), make_book()
    question = client.call("delete_record", model="testapp.book", pk=book.pk)
    token = json.loads(question.text)["confirm_token"]
    began = time.monotonic()
    refused = client.call("delete_record", model="testapp.book", pk=book.pk, confirm_token=token)
    assert time.monotonic() - began < 4
    assert refused.is_error
    assert "Nothing was changed. Repeat the call" in refused.text
    with override_settings(CACHES={"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}):
        done = client.call("delete_record", model="testapp.book", pk=book.pk, confirm_token=token)
    assert not done.is_error, done.text


class Slow:
    """A cache whose answers take so many seconds of the clock, or fail after them."""

    def __init__(self, clock):
        self.clock, self.takes, self.asked, self.error = clock, 0.0, 0, None

    def get(self, key):
        self.asked += 1
        self.clock[0] += self.takes
        if self.error:
            raise self.error
        return key


@pytest.fixture
def slow(clock, monkeypatch):
    slow = Slow(clock)
    monkeypatch.setattr("mcp_django.runtime.cache_and_rate_limits._connect", lambda: slow)
    return slow


def test_a_cache_that_took_too_long_is_left_alone_and_then_tried_by_one(slow, clock):
    cache = SharedCache(PAUSE)
    assert cache.get("a") == "a"
    slow.takes = 0.6
    assert cache.get("b") == "b"
    for _ in range(3):
        with pytest.raises(CacheIsAway):
            cache.get("c")
    assert slow.asked == 2
    clock[0] += PAUSE
    assert cache.get("d") == "d"
    with pytest.raises(CacheIsAway):
        cache.get("e")
    clock[0] += PAUSE
    slow.takes = 0.0
    assert [cache.get(key) for key in "fg"] == ["f", "g"]


def test_the_first_call_of_a_thread_can_take_long_because_it_imports_and_connects(slow, clock, monkeypatch):
    """Nobody is refused for seconds after a worker has started, such as a client that registers."""
    cache = SharedCache(PAUSE)

    def connect():
        clock[0] += 0.8
        return slow

    monkeypatch.setattr("mcp_django.runtime.cache_and_rate_limits._connect", connect)
    with ThreadPoolExecutor(1) as another_thread:
        assert another_thread.submit(cache.get, "a").result() == "a"
        assert cache.get("b") == "b"
        # From then on a call that takes as long is one too many.
        slow.takes = 0.8
        assert cache.get("c") == "c"
    with pytest.raises(CacheIsAway):
        cache.get("d")


def test_a_first_call_that_waits_for_a_cache_that_is_away_counts(slow, clock):
    cache = SharedCache(PAUSE)
    slow.takes, slow.error = 0.6, TimeoutError()
    with pytest.raises(TimeoutError):
        cache.get("a")
    with pytest.raises(CacheIsAway):
        cache.get("b")


def test_while_one_tries_the_others_do_not_wait(slow, clock):
    cache = SharedCache(PAUSE)
    cache.get("first")
    slow.takes = 1.0
    cache.get("a")
    clock[0] += PAUSE
    found = []

    def get(key):
        slow.asked += 1
        with pytest.raises(CacheIsAway):
            cache.get("other")
        found.append(key)

    slow.get = get
    cache.get("one")
    assert found == ["one"]


def test_a_cache_that_fails_at_once_is_asked_again(slow):
    cache = SharedCache(PAUSE)
    slow.error = ConnectionError()
    for _ in range(2):
        with pytest.raises(ConnectionError):
            cache.get("a")
    assert slow.asked == 2


def test_without_a_pause_a_slow_cache_is_asked_each_time(slow):
    cache = SharedCache(0.0)
    slow.takes = 2.0
    assert [cache.get(key) for key in "ab"] == ["a", "b"]


def test_what_the_project_has_set_stays(hanging):
    from mcp_django.runtime import cache_and_rate_limits

    own = {**caches.settings["default"], "OPTIONS": {"socket_timeout": 3}}
    with override_settings(CACHES={"default": own}):
        options = cache_and_rate_limits._connect()._options
    assert options == {"socket_timeout": 3, "socket_connect_timeout": 0.5}


def test_other_backends_get_no_options(settings):
    from mcp_django.runtime import cache_and_rate_limits

    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "here"}}
    made = cache_and_rate_limits._connect()
    made.set("a", 1)
    assert caches["default"].get("a") == 1
