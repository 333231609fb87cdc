"""The notifier: it notifies open subscriptions of changes, and ends those whose token or permission is gone.

Two threads of a :class:`Notifier` serve all open subscriptions of this process, and keep no database connection while
they wait. One sends notifications, at most ten times a second. The other checks tokens, users and permissions every few
seconds: no requests come in on an open stream, so nothing else would notice that they have ended.
"""

import logging
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from django.db import Error as DatabaseUnavailable
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from ..conf import settings
from ..context.call_record import CallRecord
from ..context.request import MCPRequest
from ..operating.recorded_calls import RecordedCall
from ..operating.switches import board
from ..runtime.thread_pools import Worker
from .bus import RESYNC, bus
from .changes import CHANGES, KINDS, SWITCHES, Changes
from .model_signals import connect_models
from .subscribers import Deliver, Entries, ReloadedUser, Subscriber, Subscription, SubscriptionIndex, reload
from .watched_resources import Rows, list_digests

logger = logging.getLogger("mcp_django")

# Seconds that the first subscription of a process waits until the bus receives from other processes.
HEARING: Final = 1.0
# Seconds between two rounds of notifications, and between two rounds in which everything may have changed.
PACE: Final = 0.1
RESYNC_PACE: Final = 1.0
# Maximum number of attempts while the database does not answer, and the longest of the growing pauses in seconds.
ATTEMPTS: Final = 6
LONGEST_PAUSE: Final = 10.0
# The cost of checking a page for changes, relative to that of a row.
WEIGHT_OF_PAGE: Final = 20
# Seconds between two checks of tokens and permissions, so that their end is noticed within five.
EVERY: Final = 3.0


def check_tokens(subscriptions: Iterable[Subscription]) -> None:
    """End the subscriptions whose tokens have expired or were revoked; 500 tokens take one query."""
    checked: dict[type[Any], dict[Any, list[Subscription]]] = defaultdict(lambda: defaultdict(list))
    for subscription in subscriptions:
        auth = subscription.auth
        expires = getattr(auth, "expires", None)
        try:
            has_expired = expires is not None and bool(timezone.now() >= expires)
        except TypeError:
            has_expired = False
        if has_expired:
            subscription.end("the token has expired")
        elif hasattr(type(auth), "still_good"):
            checked[type(auth)][auth].append(subscription)
    for kind, bearers_by_auth in checked.items():
        good = kind.still_good(list(bearers_by_auth))
        for auth, bearers in bearers_by_auth.items():
            if auth not in good:
                for subscription in bearers:
                    subscription.end("the token is no longer valid")


class Notifier:
    """Notifies the open subscriptions of this process of changes, and checks their tokens, in two threads.

    One notifies of changes of data. The other ends subscriptions, and notifies of what a user's permissions change.
    """

    def __init__(self) -> None:
        self.audience = SubscriptionIndex()
        self.teller = Worker("mcp-events", self.tell)
        self.checker = Worker("mcp-sweep", self.check)
        self._lock = threading.Lock()
        self._unsubscribe: Callable[[], Any] | None = None
        self._forget()

    def _forget(self) -> None:
        self._changes = Changes()
        self._resync_at = 0.0
        self._failures = 0
        # The version of the switches at the last check, and whether the database was unavailable then.
        self._version = ""
        self._is_down = False

    def listen(self) -> None:
        """Subscribe to the bus, at the first open subscription."""
        with self._lock:
            if self._unsubscribe is not None:
                return
            ends = bus.subscribe(CHANGES, self.heard), bus.subscribe(SWITCHES, self._look_at_switches)
            self._unsubscribe = lambda: [end() for end in ends]
        connect_models()
        bus.wait_ready(HEARING)

    def stop(self) -> None:
        """Stop both threads and drop queued changes."""
        with self._lock:
            if self._unsubscribe is not None:
                self._unsubscribe()
            self._unsubscribe = None
        self.teller.stop()
        self.checker.stop()
        self._forget()

    def heard(self, news: Any) -> None:
        """Queue changes from the bus, or everything on :data:`RESYNC`; called in the bus's thread."""
        self.put(self.audience.relevant(Changes(everything=True) if news is RESYNC else news))

    def _look_at_switches(self, news: Any) -> None:
        board.expire()
        # Check now: a regular round would miss a switch that is off only for a moment, but a client may list then.
        self.checker.hurry()

    def put(self, changes: Changes) -> None:
        if changes:
            with self._lock:
                self._changes.merge(changes)
            self.teller.wake()

    # Changes

    def tell(self) -> float | None:
        """Notify subscribers of queued changes; return the seconds until the next round, None if nothing is queued."""
        rest = None
        with self._lock:
            changes = self._changes
            self._changes = Changes()
            if changes.everything:
                wait = self._resync_at - time.monotonic()
                if wait > 0:
                    changes.everything = False
                    self._changes.everything = True
                    rest = wait
                else:
                    self._resync_at = time.monotonic() + RESYNC_PACE
        if not changes:
            return rest
        failed = self._tell(changes)
        if not failed:
            self._failures = 0
            return PACE
        self._failures += 1
        if self._failures < ATTEMPTS:
            self.put(changes)
            return min(2.0**self._failures, LONGEST_PAUSE)
        # Nobody knows what they missed: their clients must subscribe and read again.
        self._failures = 0
        for caller in failed:
            caller.end("changes cannot be checked")
        return PACE

    def _tell(self, changes: Changes) -> list[Subscriber]:
        """Notify all callers that the changes concern; return those for which the database did not answer."""
        concerned = self.audience.concerned(changes)
        callers = dict.fromkeys(concerned)
        if changes.lists or changes.everything:
            callers.update(dict.fromkeys(self.audience.callers()))
        try:
            check_tokens([subscription for caller in callers for subscription in tuple(caller.subscriptions)])
            people = reload([caller.user for caller in callers])
        except Exception as error:
            logger.error("The check of subscribers failed", exc_info=error)
            return list(callers)
        rows = Rows(_wanted(concerned))
        # Users who watch little come first, so that they do not wait for users who watch a lot.
        weights: Counter[Hashable] = Counter()
        for caller, entries in concerned.items():
            pages = sum(watch.pk is None and bool(watch.label) for _, watch in entries)
            weights[caller.user_key] += len(entries) + pages * (WEIGHT_OF_PAGE - 1)
        failed = []
        for caller in sorted(callers, key=lambda caller: weights[caller.user_key]):
            entries = concerned.get(caller, {})
            # Middleware may select something else for each caller, such as a tenant's database.
            is_apart = caller.site.needs_middleware or settings.CALL_MIDDLEWARE
            mine = Rows(_wanted({caller: entries})) if is_apart else rows
            person = people.get(caller.user_key)
            try:
                if person is not None and not caller.lost(person):
                    caller.act(person, partial(caller.tell, entries=entries, changes=changes, rows=mine))
            except Exception as error:
                logger.error("The check of a subscriber failed", exc_info=error)
                if isinstance(error, (OperationalError, InterfaceError)):
                    failed.append(caller)
        return failed

    # Permissions

    def check(self) -> float | None:
        """Check tokens and users of the open subscriptions; return the seconds until the next round."""
        subscriptions = self.audience.subscriptions()
        if not subscriptions:
            return None
        try:
            check_tokens(subscriptions)
            self._check_people()
        except DatabaseUnavailable as error:
            if not self._is_down:
                logger.warning("Open streams cannot be checked: %s", type(error).__name__)
            self._is_down = True
        else:
            self._is_down = False
        return EVERY

    def _check_people(self) -> None:
        board.renew(board.LOOK)
        off = board.off
        version = "" if off is None else off.version
        callers = self.audience.callers()
        people = reload([caller.user for caller in callers])
        for caller in callers:
            person = people.get(caller.user_key)
            reason = caller.lost(person)
            if person and not reason and off is not None and not off.kinds.isdisjoint(off.CALLERS):
                switch = off.caller(_record_of(caller, person))
                reason = "" if switch is None else switch.text
            if person is None or reason:
                caller.end(reason)
            elif person.digest != caller.digest or version != self._version:
                caller.digest = person.digest
                try:
                    caller.act(person, caller.check)
                except Exception as error:
                    logger.error("The check of a subscriber failed", exc_info=error)
        self._version = version


def _wanted(concerned: dict[Subscriber, Entries]) -> dict[str, set[str]]:
    wanted: dict[str, set[str]] = defaultdict(set)
    for entries in concerned.values():
        for _, watch in entries:
            if watch.pk is not None:
                wanted[watch.label].add(watch.pk)
    return wanted


def _record_of(caller: Subscriber, person: ReloadedUser) -> CallRecord:
    """Return a record that describes a subscribed caller, by which switches find it."""
    record = CallRecord()
    RecordedCall(caller.request(person.user), record).describe_caller()
    return record


_notifiers = [Notifier()]


def _forked() -> None:
    # The threads and streams belong to the parent process.
    _notifiers[:] = [Notifier()]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def open_subscription(
    request: MCPRequest, *, uris: Sequence[str], lists: Collection[str], deliver: Deliver, end: Callable[[str], Any]
) -> Subscription:
    """Notify the caller of changes to these resources and lists ("tools", "prompts", "resources").

    ``deliver(method, params)`` is called for each notification, from any thread and possibly before this returns;
    ``end(reason)`` is called once, when the caller loses access. Neither may block. Call this in a worker thread: it
    queries the database. Resources that the caller may not see are ignored, as if they did not exist.
    """
    Subscription.check_uris(uris)
    notifier = _notifiers[0]
    notifier.listen()
    caller = notifier.audience.find(request) or Subscriber(request)
    if lists and caller.lists is None:
        caller.lists = list_digests(request)
    auth = getattr(request, "auth", None)
    subscription = Subscription(caller, auth, frozenset(lists).intersection(KINDS), deliver, end, notifier.audience)
    notifier.audience.add(subscription)
    subscription.caller.lists = subscription.caller.lists or caller.lists
    try:
        subscription.watch(request, uris)
        notifier.checker.wake()
    except BaseException:
        subscription.close()
        raise
    return subscription
