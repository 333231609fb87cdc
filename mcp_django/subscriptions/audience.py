"""Find the callers in this process whom a change concerns, and tell those who can know of it.

Subscriptions of one user with one authority are one caller: what they may see is worked out once for all of them, and
anew each time, from the user's row and permissions as they are by then. All of it happens in one thread of the process,
at most ten times a second.
"""

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextvars import copy_context
from copy import copy
from typing import Any, Final, Protocol, TypeVar

import orjson
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from ..conf import settings
from ..context.middleware import through
from ..context.request import MCPContext, MCPRequest
from ..operating.switches import board
from ..runtime.threads import take_over
from ..signin import is_current, restore
from .changes import Changes
from .hub import RESYNC
from .users import Person, identity, reload
from .watches import Look, Rows, Watch, is_readable, list_digests
from .workers import Worker

logger = logging.getLogger("mcp_django")

T = TypeVar("T")

UPDATED: Final = "notifications/resources/updated"
# Seconds between two rounds, and between two in which everybody is told everything.
PACE: Final = 0.1
RESYNC_PACE: Final = 1.0
# Rounds that are tried while the database does not answer, with longer and longer pauses of at most so many seconds.
ATTEMPTS: Final = 6
LONGEST_PAUSE: Final = 10.0
# What it takes to look at a page, compared with a row, where both may have changed.
WEIGHT_OF_PAGE: Final = 20
# Headers that differ between requests of one client and say nothing of its authority.
NOISE: Final = frozenset(
    {
        "CONTENT_LENGTH",
        "CONTENT_TYPE",
        "HTTP_ACCEPT",
        "HTTP_CF_RAY",
        "HTTP_LAST_EVENT_ID",
        "HTTP_MCP_METHOD",
        "HTTP_MCP_NAME",
        "HTTP_MCP_PROTOCOL_VERSION",
        "HTTP_MCP_SESSION_ID",
        "HTTP_TRACEPARENT",
        "HTTP_TRACESTATE",
        "HTTP_X_AMZN_TRACE_ID",
        "HTTP_X_CORRELATION_ID",
        "HTTP_X_FORWARDED_PORT",
        "HTTP_X_REQUEST_ID",
        "REMOTE_PORT",
        "REQUEST_METHOD",
    }
)
OWN: Final = frozenset({"user", "mcp", "auth"})


class Watcher(Hashable, Protocol):
    """Who is told: an open :class:`~mcp_django.subscriptions.subscriptions.Subscription`."""

    auth: Any
    lists: frozenset[str]
    watches: tuple[Watch, ...]

    def tell(self, method: str, params: Mapping[str, Any]) -> None: ...
    def end(self, reason: str) -> None: ...


# What one of them watches, as keys in order.
Entries = dict[tuple[Watcher, Watch], None]


class Caller:
    """A user with the authority of a token, as hooks see them in a request.

    ``digest`` is that of the user when it was last looked at, None before; ``lists`` are those of its lists, None while
    nobody watches them. ``seen`` are rows that it could view when they last changed, ``pages`` the digests of contents.
    """

    def __init__(self, request: MCPRequest) -> None:
        self.key = caller_key(request)
        self.user = request.user
        self.site = request.mcp.site
        self.digest: int | None = None
        self.lists: Mapping[str, int] | None = None
        self.seen: set[tuple[str, str]] = set()
        self.pages: dict[str, int] = {}
        self.subscriptions: dict[Watcher, None] = {}
        self._kind = type(request)
        # What middleware left there, such as a tenant: hooks are asked about rows in other threads.
        self._variables = copy_context()
        self._attributes = {
            name: value
            for name, value in vars(request).items()
            if name not in ("user", "mcp") and not name.startswith("_")
        }
        # Nothing of the call that opened the stream: no progress, no session, no answers.
        self._context = MCPContext(
            site=request.mcp.site,
            resource=request.mcp.resource,
            version=request.mcp.version,
            client=request.mcp.client,
            client_id=request.mcp.client_id,
            capabilities=request.mcp.capabilities,
            scopes=request.mcp.scopes,
            facts=request.mcp.facts,
        )

    def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Return what ``work`` gives with the context variables of the request that the caller came by."""
        variables = self._variables.copy()

        def moved() -> T:
            take_over(variables)
            return work(*arguments)

        return variables.run(moved)

    def lost(self, person: Person | None) -> str:
        """Return why the user, as the database has them now, may hear of nothing any more; "" while they may."""
        if person is None or not person.is_active:
            return "the account is not active any more"
        return "" if is_current(person.user, self._context.facts) else "the password has changed"

    def request(self, user: Any) -> MCPRequest:
        """Return a new request of the caller, who is ``user`` by now; nothing is remembered from another one."""
        made = self._kind.__new__(self._kind)
        # Of one user there may be callers of whom one is verified and one is not.
        made.__dict__.update(self._attributes, user=copy(user), mcp=self._context)
        self._context.off = board.off
        restore(made)
        return made


def caller_key(request: MCPRequest) -> Hashable:
    """Return what is equal for requests that hooks cannot tell apart: user, site, authority, headers, attributes."""
    context, standard = request.mcp, vars(MCPRequest()).keys()
    auth = getattr(request, "auth", None)
    meta = frozenset((name, _hashable(value)) for name, value in request.META.items() if name not in NOISE)
    added = frozenset(
        (name, _hashable(value))
        for name, value in vars(request).items()
        if name not in standard and name not in OWN and not name.startswith("_")
    )
    # Of an authentication of the project's own it is not known what of it decides.
    own = () if auth is None or hasattr(auth, "scopes") else (id(auth),)
    # What middleware left in context variables cannot be compared: such a request is like no other.
    apart = (object(),) if context.site.needs_middleware else ()
    person = identity(request.user)
    facts = orjson.dumps(context.facts, option=orjson.OPT_SORT_KEYS, default=repr)
    known = context.scopes, context.client_id, context.resource, facts
    return person, id(context.site), known, meta, added, own, apart


def _hashable(value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return id(value)
    found: Hashable = value
    return found


class Audience:
    """The open subscriptions of this process. Any thread may use it; nothing here waits for a database."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._callers: dict[Hashable, Caller] = {}
        self._index: dict[Hashable, dict[Caller, Entries]] = {}
        # The primary keys, and None for pages, that are watched of each model.
        self._pks: dict[str, set[str | None]] = defaultdict(set)

    def find(self, request: MCPRequest) -> Caller | None:
        """Return the caller of a request, None when it has no open subscription."""
        key = caller_key(request)
        with self._lock:
            return self._callers.get(key)

    def add(self, subscription: Watcher, caller: Caller) -> Caller:
        """Enter a subscription and return the caller that it belongs to: this one, or the one that came before."""
        with self._lock:
            caller = self._callers.setdefault(caller.key, caller)
            caller.subscriptions[subscription] = None
            return caller

    def remove(self, subscription: Watcher, caller: Caller) -> None:
        """Strike out a subscription and all that it watches."""
        with self._lock:
            self.watch(subscription, caller, ())
            caller.subscriptions.pop(subscription, None)
            if not caller.subscriptions:
                self._callers.pop(caller.key, None)

    def watch(self, subscription: Watcher, caller: Caller, watches: tuple[Watch, ...]) -> None:
        """Have a subscription watch this and nothing else; it is visible to the caller now."""
        with self._lock:
            if subscription not in caller.subscriptions:
                return
            for watch in set(subscription.watches).difference(watches):
                for target in _targets(watch):
                    self._unlink(target, subscription, caller, watch)
            subscription.watches = watches
            for watch in watches:
                for target in _targets(watch):
                    self._index.setdefault(target, {}).setdefault(caller, {})[subscription, watch] = None
                if watch.label:
                    self._pks[watch.label].add(watch.pk)
                if watch.pk is not None:
                    caller.seen.add((watch.label, watch.pk))

    def _unlink(self, target: Hashable, subscription: Watcher, caller: Caller, watch: Watch) -> None:
        callers = self._index.get(target, {})
        entries = callers.get(caller, {})
        entries.pop((subscription, watch), None)
        if not entries:
            callers.pop(caller, None)
            if isinstance(target, str):
                caller.pages.pop(target, None)
            else:
                caller.seen.discard((watch.label, watch.pk or ""))
        if not callers:
            self._index.pop(target, None)
            if watch.label and not isinstance(target, str):
                self._pks[watch.label].discard(watch.pk)
                if not self._pks[watch.label]:
                    del self._pks[watch.label]

    def callers(self) -> list[Caller]:
        """Return everyone with an open subscription."""
        with self._lock:
            return list(self._callers.values())

    def subscriptions(self) -> list[Watcher]:
        """Return every open subscription."""
        with self._lock:
            return [subscription for caller in self._callers.values() for subscription in caller.subscriptions]

    def pages_of(self, user: Any, apart_from: Watcher) -> set[str]:
        """Return the URIs of the pages that a user watches by other subscriptions."""
        wanted = identity(user)
        with self._lock:
            callers = [caller for caller in self._callers.values() if identity(caller.user) == wanted]
            return {
                watch.uri
                for caller in callers
                for subscription in caller.subscriptions
                if subscription is not apart_from
                for watch in subscription.watches
                if watch.is_page
            }

    def relevant(self, changes: Changes) -> Changes:
        """Return those of the changes that somebody here may watch."""
        with self._lock:
            return changes.among(self._pks, self._index) if self._callers else Changes()

    def concerned(self, changes: Changes) -> dict[Caller, Entries]:
        """Return by caller what changes concern: what is watched of those rows, models and resources."""
        found: dict[Caller, Entries] = defaultdict(dict)
        with self._lock:
            targets: list[Hashable] = list(self._index) if changes.everything else list(changes.uris)
            for label, pks in changes.rows.items():
                watched = self._pks.get(label, set())
                named = watched if pks is None else (watched & pks) | (watched & {None})
                targets += [(label, pk) for pk in named]
            for target in targets:
                for caller, entries in self._index.get(target, {}).items():
                    found[caller].update(entries)
        return found


def _targets(watch: Watch) -> list[Hashable]:
    """Return under what it is found: its URI, and its row, or its model when it is a page."""
    return [watch.uri, (watch.label, watch.pk)] if watch.label else [watch.uri]


def check_tokens(subscriptions: Iterable[Watcher]) -> None:
    """End the subscriptions whose tokens have ended; one query for 500 of them."""
    checked: dict[type[Any], dict[Any, list[Watcher]]] = defaultdict(lambda: defaultdict(list))
    for subscription in subscriptions:
        auth = subscription.auth
        if _has_expired(auth):
            subscription.end("the token has expired")
        elif hasattr(type(auth), "still_good"):
            checked[type(auth)][auth].append(subscription)
    for kind, found in checked.items():
        good = kind.still_good(list(found))
        for auth, bearers in found.items():
            if auth not in good:
                for subscription in bearers:
                    subscription.end("the token is not good any more")


def _has_expired(auth: Any) -> bool:
    expires = getattr(auth, "expires", None)
    try:
        return expires is not None and bool(timezone.now() >= expires)
    except TypeError:
        return False


class Fanout:
    """The thread that tells subscribers."""

    def __init__(self, audience: Audience) -> None:
        self.audience = audience
        self.worker = Worker("mcp-events", self.run)
        self._lock = threading.Lock()
        self._changes = Changes()
        self._resync_at = 0.0
        self._failures = 0

    def heard(self, news: Any) -> None:
        """Take changes from the hub, or :data:`RESYNC`; called in the hub's thread."""
        self.put(self.audience.relevant(Changes(everything=True) if news is RESYNC else news))

    def put(self, changes: Changes) -> None:
        """Have changes told."""
        if changes:
            with self._lock:
                self._changes.merge(changes)
            self.worker.wake()

    def _take(self) -> tuple[Changes, float | None]:
        """Return the changes that are to be told now, and the seconds until the rest is."""
        with self._lock:
            taken, self._changes = self._changes, Changes()
            wait = self._resync_at - time.monotonic()
            if taken.everything and wait > 0:
                taken.everything, self._changes.everything = False, True
                return taken, wait
            if taken.everything:
                self._resync_at = time.monotonic() + RESYNC_PACE
            return taken, None

    def run(self) -> float | None:
        """Tell what has changed; return the seconds until the next round, None when nothing is left to tell."""
        changes, wait = self._take()
        if not changes:
            return wait
        failed = self._tell(changes)
        if not failed:
            self._failures = 0
            return PACE
        self._failures += 1
        if self._failures < ATTEMPTS:
            self.put(changes)
            return min(2.0**self._failures, LONGEST_PAUSE)
        # What they missed is not known: they have to come back and read.
        self._failures = 0
        for caller in failed:
            for subscription in tuple(caller.subscriptions):
                subscription.end("changes cannot be checked")
        return PACE

    def _tell(self, changes: Changes) -> list[Caller]:
        """Tell all whom the changes concern; return those for whom the database did not answer."""
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
        users = {caller: identity(caller.user) for caller in callers}
        rows = Rows(_wanted(concerned))
        # Nobody waits for a user who watches much more.
        weights: Counter[Hashable] = Counter()
        for caller, entries in concerned.items():
            weights[users[caller]] += sum(WEIGHT_OF_PAGE if watch.is_page else 1 for _, watch in entries)
        failed = []
        for caller in sorted(callers, key=lambda caller: weights[users[caller]]):
            entries = concerned.get(caller, {})
            # What middleware decides, such as a tenant's database, is not known to be the same for two callers.
            is_apart = caller.site.needs_middleware or settings.CALL_MIDDLEWARE
            mine = Rows(_wanted({caller: entries})) if is_apart else rows
            try:
                caller.run(self._tell_caller, caller, people[users[caller]], entries, changes, mine)
            except (OperationalError, InterfaceError) as error:
                logger.error("The check of a subscriber failed", exc_info=error)
                failed.append(caller)
            except Exception as error:
                logger.error("The check of a subscriber failed", exc_info=error)
        return failed

    def _tell_caller(
        self, caller: Caller, person: Person | None, entries: Entries, changes: Changes, rows: Rows
    ) -> None:
        if person is None or caller.lost(person):
            return
        request = caller.request(person.user)
        through(request, lambda: self._tell_as(request, caller, entries, changes, rows))

    def _tell_as(self, request: MCPRequest, caller: Caller, entries: Entries, changes: Changes, rows: Rows) -> None:
        by_label: dict[str, Entries] = defaultdict(dict)
        for subscription, watch in entries:
            by_label[watch.label][subscription, watch] = None
        for label, some in by_label.items():
            if label:
                changed = None if changes.everything else changes.rows.get(label)
                told = Look(request, caller, label, changed, rows).told(some)
            else:
                told = [entry for entry in some if is_readable(request, entry[1])]
            for subscription, watch in told:
                subscription.tell(UPDATED, {"uri": watch.uri})
        self._tell_lists(request, caller, changes)

    def _tell_lists(self, request: MCPRequest, caller: Caller, changes: Changes) -> None:
        kinds = {kind for kind, site in changes.lists if site is None or site == caller.site.name}
        for subscription in tuple(caller.subscriptions):
            for kind in sorted(subscription.lists):
                if kind in kinds or changes.everything:
                    subscription.tell(f"notifications/{kind}/list_changed", {})
        if kinds and caller.lists is not None:
            caller.lists = list_digests(request)


def _wanted(concerned: dict[Caller, Entries]) -> dict[str, set[str]]:
    wanted: dict[str, set[str]] = defaultdict(set)
    for entries in concerned.values():
        for _, watch in entries:
            if watch.pk is not None:
                wanted[watch.label].add(watch.pk)
    return wanted
