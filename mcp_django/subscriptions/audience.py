"""Find the callers in this process, with their subscriptions, that a change concerns.

Subscriptions of one user with one authority are one caller: what they may see is worked out once for all of them.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from contextvars import copy_context
from copy import copy
from typing import Any, Final, Protocol, TypeVar

import orjson

from ..context.request import MCPContext, MCPRequest
from ..runtime.threads import take_over
from ..signin import is_current, restore
from .changes import Changes
from .users import Person, identity
from .watches import Watch

T = TypeVar("T")
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
