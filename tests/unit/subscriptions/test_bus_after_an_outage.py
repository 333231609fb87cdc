"""Each layer that the documentation recommends, over a Redis that is killed and comes back."""

import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_django.subscriptions.bus import RESYNC, Bus

LAYERS = ["channels_redis.pubsub.RedisPubSubChannelLayer", "channels_redis.core.RedisChannelLayer"]
# Seconds until everyone is told after Redis is back; a machine that is busy needs more.
TOLD_WITHIN = 20
pytestmark = pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")


class Redis:
    """A Redis of the test's own, which keeps nothing."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.start()

    def start(self) -> None:
        kept_nowhere = ["--save", "", "--appendonly", "no", "--dir", str(self.directory)]
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", *kept_nowhere]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                threading.Event().wait(0.02)
            else:
                return
        raise AssertionError("redis-server did not start")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[Redis]:
    found = Redis(tmp_path)
    yield found
    found.kill()


class Heard:
    """What a subscriber was told."""

    def __init__(self) -> None:
        self.payloads: list[Any] = []
        self.changed = threading.Condition()

    def __call__(self, payload: Any) -> None:
        with self.changed:
            self.payloads.append(payload)
            self.changed.notify_all()

    def wait(self, condition: Callable[[list[Any]], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self.payloads), TOLD_WITHIN), self.payloads


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("seconds", [0, 2.5], ids=["restarted", "away"])
def test_a_worker_that_only_listens_looks_again_after_redis_was_away(
    redis_server: Redis, settings: Any, layer: str, seconds: float
) -> None:
    """It has nothing to send, and who told of a change while it did not hear has ended: only its echo is missing."""
    address = f"redis://127.0.0.1:{redis_server.port}"
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": layer, "CONFIG": {"hosts": [address]}}}
    listener, other, heard = Bus(), Bus(), Heard()
    try:
        listener.subscribe("t", heard)
        assert listener.wait_ready(TOLD_WITHIN)
        other.publish("t", "before")
        heard.wait(lambda payloads: "before" in payloads)
        heard.payloads.clear()
        redis_server.kill()
        threading.Event().wait(seconds)
        redis_server.start()
        # A command that saves something and ends at once.
        command = Bus()
        command.publish("t", "lost")
        command.close()
        heard.wait(lambda payloads: RESYNC in payloads)
        heard.payloads.clear()
        other.publish("t", "after")
        heard.wait(lambda payloads: "after" in payloads or RESYNC in payloads)
    finally:
        for bus in (listener, other):
            bus.close()
