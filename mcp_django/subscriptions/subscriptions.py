"""Subscriptions: the resources and lists of a stream, for as long as its caller can know of them."""

import logging
import os
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..conf import settings
from ..context.request import MCPRequest
from ..exceptions import NotFound
from ..operating.switches import board
from ..protocol.errors import InvalidParams
from ..scopes import READ
from .audience import Audience, Caller, Fanout
from .authority import Sweep
from .changes import CHANGES, SWITCHES
from .hub import hub
from .signals import KINDS, connect_models
from .users import identity, reload
from .watches import Watch, content_digest, find_watches, list_digests, needs_digest

logger = logging.getLogger("mcp_django")

# Characters of a URI.
MAX_URI: Final = 8192
# Pages that one user watches in one worker: each may be read again with each change of its model.
MAX_PAGES: Final = 400
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s\x00-\x20\x7f]+")
# Seconds that the first subscription of a process waits until other processes are heard.
HEARING: Final = 1.0

Deliver = Callable[[str, Mapping[str, Any]], Any]


class _Process:
    """What open subscriptions need in this process: two threads and the hub's news."""

    def __init__(self) -> None:
        self.audience = Audience()
        self.fanout = Fanout(self.audience)
        self.sweep = Sweep(self.audience)
        self._lock = threading.Lock()
        self._unsubscribe: Callable[[], Any] | None = None

    def listen(self) -> None:
        """Hear of changes, from now on."""
        with self._lock:
            if self._unsubscribe is not None:
                return
            ends = hub.subscribe(CHANGES, self.fanout.heard), hub.subscribe(SWITCHES, self._look_at_switches)
            self._unsubscribe = lambda: [end() for end in ends]
        connect_models()
        hub.wait_ready(HEARING)

    def _look_at_switches(self, news: Any) -> None:
        board.expire()
        # Who lists while something is off for a moment is told twice; a round in time would see no difference.
        self.sweep.worker.hurry()

    def stop(self) -> None:
        """Hear nothing any more and end the threads."""
        with self._lock:
            if self._unsubscribe is not None:
                self._unsubscribe()
            self._unsubscribe = None
        self.fanout.worker.stop()
        self.sweep.worker.stop()
        # What was not told by now is news to nobody who comes later.
        self.fanout, self.sweep = Fanout(self.audience), Sweep(self.audience)


_processes = [_Process()]


def _forked() -> None:
    # The threads and streams are the parent's.
    _processes[:] = [_Process()]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@dataclass(eq=False, slots=True)
class Subscription:
    """An open subscription; ``watches`` and ``lists`` are what is honoured of what was asked for.

    ``auth`` is what the authentication gave: it ends with its ``expires``, and when the class has a static method
    ``still_good`` that, asked for a list of such objects, does not return it.
    """

    caller: Caller
    auth: Any
    lists: frozenset[str]
    deliver: Deliver
    on_end: Callable[[str], Any]
    process: _Process
    watches: tuple[Watch, ...] = ()
    is_open: bool = True

    @property
    def uris(self) -> tuple[str, ...]:
        """The URIs that are honoured, in the order in which they were asked for."""
        return tuple(watch.uri for watch in self.watches)

    def set_uris(self, uris: Sequence[str]) -> None:
        """Watch these resources instead; to be called in a thread, as the database is asked.

        Raises:
            InvalidParams: there are too many, or one is no URI.
        """
        check_uris(uris)
        person = reload([self.caller.user])[identity(self.caller.user)]
        if person is not None and self.is_open and not self.caller.lost(person):
            self.watch(self.caller.request(person.user), uris)

    def watch(self, request: MCPRequest, uris: Sequence[str]) -> None:
        """Watch what the caller of the request may see of it."""
        may_read = settings.EVENTS and READ in request.mcp.scopes
        found = [watch for watch in find_watches(request, uris) if self._prepare(request, watch)] if may_read else []
        self.process.audience.watch(self, self.caller, tuple(self._within_reach(found)))

    def _within_reach(self, found: Sequence[Watch]) -> Iterator[Watch]:
        """Yield what the user has places for: pages are looked at again with each change, and are few for each user."""
        pages = self.process.audience.pages_of(self.caller.user, self)
        for watch in found:
            if watch.is_page:
                pages.add(watch.uri)
                if len(pages) > MAX_PAGES:
                    continue
            yield watch

    def _prepare(self, request: MCPRequest, watch: Watch) -> bool:
        """Note what is there, where only that will tell of a change; return whether it can be read."""
        if needs_digest(request, watch) and watch.uri not in self.caller.pages:
            try:
                self.caller.pages[watch.uri] = content_digest(request, watch)
            except NotFound:
                return False
        return True

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Deliver a notification."""
        if self.is_open:
            try:
                self.deliver(method, params)
            except Exception as error:
                logger.error("The delivery of a notification failed", exc_info=error)

    def end(self, reason: str) -> None:
        """Close it and say why; the second time nothing happens."""
        if self.is_open:
            self.close()
            try:
                self.on_end(reason)
            except Exception as error:
                logger.error("The end of a subscription failed", exc_info=error)

    def close(self) -> None:
        """Deliver nothing from now on."""
        self.is_open = False
        self.process.audience.remove(self, self.caller)


def check_uris(uris: Sequence[str]) -> None:
    """Pass if a client may ask for so many, and all of them are URIs.

    Raises:
        InvalidParams: it may not, or one is none.
    """
    if len(uris) > settings.MAX_SUBSCRIPTIONS:
        raise InvalidParams(f"At most {settings.MAX_SUBSCRIPTIONS} resources can be subscribed to")
    for uri in uris:
        if not isinstance(uri, str) or len(uri) > MAX_URI or not _URI.fullmatch(uri):
            raise InvalidParams(f"A resource is named by a URI of at most {MAX_URI} characters")


def open_subscription(
    request: MCPRequest, *, uris: Sequence[str], lists: Collection[str], deliver: Deliver, end: Callable[[str], Any]
) -> Subscription:
    """Open a subscription of the caller to resources and to lists ("tools", "prompts", "resources").

    ``deliver(method, params)`` is called for each notification, from any thread, and may be before this returns;
    ``end(reason)`` once when the caller may not have it any more. Neither may wait. To be called in a thread, as the
    database is asked. What the caller may not see is not honoured, as if it was not there.

    Raises:
        InvalidParams: there are too many URIs, or one is none.
    """
    check_uris(uris)
    process = _processes[0]
    process.listen()
    caller = process.audience.find(request) or Caller(request)
    if lists and caller.lists is None:
        caller.lists = list_digests(request)
    auth = getattr(request, "auth", None)
    subscription = Subscription(caller, auth, frozenset(lists).intersection(KINDS), deliver, end, process)
    subscription.caller = process.audience.add(subscription, caller)
    subscription.caller.lists = subscription.caller.lists or caller.lists
    try:
        subscription.watch(request, uris)
        process.sweep.worker.wake()
    except BaseException:
        subscription.close()
        raise
    return subscription
