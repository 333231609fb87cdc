"""Subscribers below the transport, and a bus that tells at once and in the thread of the test."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from mcp_django import MCPSite
from mcp_django import site as default_site
from mcp_django.context.request import MCPRequest
from mcp_django.subscriptions import bus, notifier
from mcp_django.subscriptions.changes import CHANGES, LISTS, Changes
from mcp_django.subscriptions.notifier import open_subscription
from tests.tool_calls import request_of

SCOPES = frozenset({"mcp:read", "mcp:write"})
TIMEOUT = 20
OUTAGE = "The channel layer does not answer ("


def without_outages(stderr: str) -> str:
    """Leave out the lines that tell of an outage of Redis, as on a machine that stood still for some seconds.

    What was published arrives all the same: the bus sends it again.
    """
    return "".join(line for line in stderr.splitlines(keepends=True) if not line.startswith(OUTAGE))


@dataclass
class Listener:
    """What one stream was told; `subscription` is what it has."""

    told: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    subscription: Any = None

    def deliver(self, method: str, params: Mapping[str, Any]) -> None:
        with self.changed:
            self.told.append((method, params))
            self.changed.notify_all()

    def end(self, reason: str) -> None:
        with self.changed:
            self.ended.append(reason)
            self.changed.notify_all()

    def wait(self, condition: Callable[[], Any]) -> bool:
        """Return whether the condition, which looks at this listener, came true in time."""
        with self.changed:
            return bool(self.changed.wait_for(condition, TIMEOUT))

    @property
    def uris(self) -> list[str]:
        """The URIs of the resources that it was told of, in order."""
        return [params["uri"] for method, params in self.told if method == "notifications/resources/updated"]

    @property
    def lists(self) -> list[str]:
        """The kinds of the lists that it was told of, in order."""
        return [method.split("/")[1] for method, _ in self.told if method.endswith("/list_changed")]

    def take(self) -> list[str]:
        """Return the URIs and kinds told since the last time."""
        found = self.uris + self.lists
        self.told.clear()
        return found


def listen(
    user: Any,
    *uris: str,
    lists: Collection[str] = (),
    site: MCPSite = default_site,
    auth: Any = None,
    request: MCPRequest | None = None,
    **options: Any,
) -> Listener:
    """Open a subscription of the user."""
    if request is None:
        request = request_of(user, site, **{"scopes": SCOPES, **options})
        request.auth = auth  # type: ignore[attr-defined]
    listener = Listener()
    listener.subscription = open_subscription(
        request, uris=uris, lists=lists, deliver=listener.deliver, end=listener.end
    )
    return listener


@contextmanager
def rolled_back() -> Iterator[None]:
    """A transaction, or a savepoint of one, that fails at its end."""
    with suppress(ZeroDivisionError), transaction.atomic():
        yield
        raise ZeroDivisionError


def uri_of(row: Any) -> str:
    return f"django://{row._meta.app_label}/{row._meta.model_name}/{row.pk}"


def page_of(model: Any) -> str:
    return f"django://{model._meta.app_label}/{model._meta.model_name}"


class Recorder:
    """In the place of the bus: whoever publishes is heard, in the same thread and at once."""

    RESYNC = bus.RESYNC

    def __init__(self) -> None:
        self.messages: list[tuple[str, Any]] = []
        self.subscribers: dict[str, list[Callable[[Any], None]]] = {}
        self.idle = False
        self.process: Any = None

    def is_idle(self) -> bool:
        return self.idle

    def wait_ready(self, timeout: float) -> bool:
        return True

    def put(self, changes: Changes) -> None:
        if changes and not self.idle:
            self.messages += changes.messages()
            self.deliver(CHANGES, changes)

    def publish(self, topic: str, payload: Any) -> None:
        """Tell what another process would."""
        self.messages.append((topic, payload))
        if topic in (CHANGES, LISTS):
            topic, payload = CHANGES, Changes.read(topic, payload)
        self.deliver(topic, payload)

    def deliver(self, topic: str, payload: Any) -> None:
        for deliver in self.subscribers.get(topic, []):
            deliver(payload)

    def subscribe(self, topic: str, deliver: Callable[[Any], None]) -> Callable[[], None]:
        self.subscribers.setdefault(topic, []).append(deliver)
        return lambda: self.subscribers[topic].remove(deliver)

    def rows(self) -> dict[str, Any]:
        """The rows that were told, by label; None for any rows of the model."""
        found: dict[str, Any] = {}
        for topic, payload in self.messages:
            if topic == "changes":
                for label, pks in payload.get("rows", {}).items():
                    found[label] = None if pks is None else sorted([*(found.get(label) or []), *pks])
        return found


def tell_at_once(monkeypatch: Any) -> Recorder:
    """Have this process's changes told in the thread of the test, by `run()` of its two workers."""
    recorder = Recorder()
    monkeypatch.setattr("mcp_django.subscriptions.bus.bus.put", recorder.put)
    monkeypatch.setattr("mcp_django.subscriptions.notifier.bus", recorder)
    process = notifier.Notifier()
    for worker in (process.teller, process.checker):
        monkeypatch.setattr(worker, "wake", lambda: None)
    monkeypatch.setattr(notifier, "_notifiers", [process])
    recorder.process = process
    return recorder
