"""Subscribers: open subscriptions, the callers that they belong to, and their users, reloaded with permissions.

Subscriptions of one user with the same authority form one caller. What they may see is determined once for all of them,
and again for each change, from the user's current row and permissions.
"""

import logging
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextvars import copy_context
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import orjson
from django.conf import settings as django_settings
from django.contrib.auth.models import AnonymousUser
from django.db import router
from django.db.models import Model

from ..conf import settings
from ..context.call_middleware import CallMiddleware
from ..context.request import MCPContext, MCPRequest
from ..exceptions import NotFound
from ..operating.switches import board
from ..orm.access import ModelAccess, access_of
from ..orm.pagination import chunks
from ..orm.permission_queries import STOCK
from ..protocol.errors import InvalidParams
from ..runtime.thread_pools import take_over
from ..scopes import Scope
from ..signin import SignIn, is_current
from .changes import KINDS, Changes
from .watched_resources import (
    STEP,
    Rows,
    Watch,
    any_visible,
    content_digest,
    find_watches,
    is_readable,
    list_digests,
    needs_digest,
    reason_lost,
    shows,
)

logger = logging.getLogger("mcp_django")

# Maximum characters of a URI.
MAX_URI: Final = 8192
# Maximum number of pages that one user watches in one worker: each may be read again at each change of its model.
MAX_PAGES: Final = 400
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s\x00-\x20\x7f]+")
# Headers that differ between requests of one client but say nothing about its authority.
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
OWN: Final = frozenset({"user", "mcp", "auth", "session"})

Deliver = Callable[[str, Mapping[str, Any]], Any]


class Subscriber:
    """A user with the authority of a token, whose subscriptions are checked together.

    ``digest`` is the user's digest at the last check, None before; ``lists`` are the digests of its lists, None while
    nobody watches them. ``seen`` are rows that it could view when they last changed, ``pages`` the digests of contents.
    """

    def __init__(self, request: MCPRequest) -> None:
        self.key = subscriber_key(request)
        self.user = request.user
        self.user_key = identity(request.user)
        self.site = request.mcp.site
        self.digest: int | None = None
        self.lists: Mapping[str, int] | None = None
        self.seen: set[tuple[str, str]] = set()
        self.pages: dict[str, int] = {}
        self.subscriptions: dict[Subscription, None] = {}
        self._kind = type(request)
        # Middleware may have set context variables, such as a tenant, which hooks need in other threads.
        self._variables = copy_context()
        self._attributes = {
            name: value
            for name, value in vars(request).items()
            if name not in ("user", "mcp", "session") and not name.startswith("_")
        }
        # Leave out what belongs to the call that opened the stream: progress, session, answers.
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

    def act(self, person: "ReloadedUser", work: Callable[[MCPRequest], Any]) -> None:
        """Return the result of work with a new request, as the reloaded user and within call middleware."""
        variables = self._variables.copy()

        def moved() -> None:
            take_over(variables)
            request = self.request(person.user)
            if settings.CALL_MIDDLEWARE:
                CallMiddleware(request).run(lambda: work(request))
            else:
                work(request)

        variables.run(moved)

    def lost(self, person: "ReloadedUser | None") -> str:
        """Return why the subscriptions must end for the reloaded user, "" if they need not."""
        if person is None or not person.is_active:
            return "the account is no longer active"
        if is_current(person.user, self._context.facts):
            return ""
        return "the password has changed"

    def request(self, user: Any) -> MCPRequest:
        """Return a new request of the reloaded user, without anything cached by another request."""
        made = self._kind.__new__(self._kind)
        # Copy the user: one caller of a user may be verified while another is not.
        made.__dict__.update(self._attributes, user=copy(user), mcp=self._context)
        self._context.off = board.off
        SignIn(made).restore()
        return made

    def tell(self, request: MCPRequest, entries: "Entries", changes: Changes, rows: Rows) -> None:
        """Notify all subscriptions of the changes that the subscriber can see."""
        by_label: dict[str, Entries] = defaultdict(dict)
        for subscription, watch in entries:
            by_label[watch.label][subscription, watch] = None
        for label, some in by_label.items():
            if label:
                changed = None if changes.everything else changes.rows.get(label)
                concerned = self._changed(request, label, some, changed, rows)
            else:
                concerned = [entry for entry in some if is_readable(request, entry[1])]
            for subscription, watch in concerned:
                subscription.tell(subscription.UPDATED, {"uri": watch.uri})
        kinds = {kind for kind, site in changes.lists if site is None or site == self.site.name}
        self.tell_lists(sorted(KINDS if changes.everything else kinds))
        if kinds and self.lists is not None:
            self.lists = list_digests(request)

    def tell_lists(self, kinds: Iterable[str]) -> None:
        for kind in kinds:
            for subscription in tuple(self.subscriptions):
                if kind in subscription.lists:
                    subscription.tell(f"notifications/{kind}/list_changed", {})

    def _changed(
        self, request: MCPRequest, label: str, entries: "Entries", changed: set[str] | None, rows: Rows
    ) -> list[tuple["Subscription", Watch]]:
        """Return the subscriptions to notify of changes to one model, and note the rows that can be seen now.

        ``changed`` are the keys of the changed rows, None if they are unknown.
        """
        exposure = request.mcp.site.find_exposure(label)
        model = access_of(request)[exposure] if exposure is not None else None
        if model is None or not model.is_there:
            return []
        pks = {watch.pk for _, watch in entries if watch.pk is not None}
        visible = rows.visible(model, pks) if pks else {}
        missed = {pk for pk in pks if pk not in visible and (label, pk) in self.seen}
        gone = rows.gone(model, missed) if missed else set()
        self.seen.update((label, pk) for pk in visible)
        self.seen.difference_update((label, pk) for pk in missed)
        pages = {watch for _, watch in entries if watch.pk is None}
        changed_pages = self._changed_pages(model, pages, changed, rows, bool(visible)) if pages else set()
        return [
            (subscription, watch)
            for subscription, watch in entries
            if watch in changed_pages
            or watch.pk in gone
            or (watch.pk in visible and (watch.field is None or shows(model, watch, visible[watch.pk])))
        ]

    def _changed_pages(
        self, model: ModelAccess, pages: set[Watch], changed: set[str] | None, rows: Rows, row_changed: bool
    ) -> set[Watch]:
        """Return the pages that have changed: those that lost a row, or all if a visible row changed."""
        request = model.request
        exposure = model.exposure
        pks = sorted(changed or ())
        steps = (pks[start : start + STEP] for start in range(0, len(pks), STEP))
        if changed is None:
            row_changed = row_changed or any_visible(model)
        else:
            row_changed = row_changed or any(rows.visible(model, step) for step in steps)
        if exposure.options.has_every_row:
            if changed is None:
                row_changed = row_changed or not exposure.get_queryset(request).exists()
            else:
                row_changed = row_changed or bool(rows.gone(model, pks))
            return pages if row_changed else set()
        changed_pages = set()
        for watch in pages:
            try:
                digest = content_digest(request, watch)
            except NotFound:
                continue
            before = self.pages.get(watch.uri)
            self.pages[watch.uri] = digest
            if row_changed or digest != before:
                changed_pages.add(watch)
        return changed_pages

    def check(self, request: MCPRequest) -> None:
        """End subscriptions to what may no longer be seen, and notify the others of changed schemas and lists."""
        for subscription in tuple(self.subscriptions):
            reasons = (reason_lost(request, watch) for watch in subscription.watches)
            if reason := next(filter(None, reasons), ""):
                subscription.end(reason)
        changed: dict[str, bool] = {}
        for subscription in tuple(self.subscriptions):
            for watch in subscription.watches:
                if watch.is_schema:
                    if watch.uri not in changed:
                        digest = content_digest(request, watch)
                        changed[watch.uri] = self.pages.get(watch.uri) != digest
                        self.pages[watch.uri] = digest
                    if changed[watch.uri]:
                        subscription.tell(subscription.UPDATED, {"uri": watch.uri})
        if self.lists is not None:
            before = self.lists
            self.lists = list_digests(request)
            self.tell_lists(kind for kind, digest in self.lists.items() if digest != before[kind])

    def end(self, reason: str) -> None:
        for subscription in tuple(self.subscriptions):
            subscription.end(reason)


def subscriber_key(request: MCPRequest) -> Hashable:
    """Return a key that is equal for requests of the same subscriber: user, site, authority, headers, attributes."""
    context = request.mcp
    standard = vars(MCPRequest()).keys()
    auth = getattr(request, "auth", None)
    meta = frozenset((name, _hashable(value)) for name, value in request.META.items() if name not in NOISE)
    added = frozenset(
        (name, _hashable(value))
        for name, value in vars(request).items()
        if name not in standard and name not in OWN and not name.startswith("_")
    )
    # Nobody knows which part of a custom authentication object matters, so compare it by identity.
    own = () if auth is None or hasattr(auth, "scopes") else (id(auth),)
    # Context variables set by middleware cannot be compared, so such a request equals no other.
    apart = (object(),) if context.site.needs_middleware else ()
    facts = orjson.dumps(context.facts, option=orjson.OPT_SORT_KEYS, default=repr)
    authority = context.scopes, context.client_id, context.resource, facts
    return identity(request.user), id(context.site), authority, meta, added, own, apart


def _hashable(value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


@dataclass(eq=False, slots=True)
class Subscription:
    """An open subscription; ``watches`` and ``lists`` are the part of its filter that is honoured.

    ``auth`` is the object that the authentication returned. The subscription ends at its ``expires``, or when its class
    has a static method ``still_good`` that does not return it from a list of such objects.
    """

    # The kinds of lists, and the method of the notification that a resource has changed.
    LISTS: ClassVar = frozenset(KINDS)
    UPDATED: ClassVar = "notifications/resources/updated"

    caller: Subscriber
    auth: Any
    lists: frozenset[str]
    deliver: Deliver
    on_end: Callable[[str], Any]
    audience: "SubscriptionIndex"
    watches: tuple[Watch, ...] = ()
    is_open: bool = True

    @property
    def uris(self) -> tuple[str, ...]:
        return tuple(watch.uri for watch in self.watches)

    @staticmethod
    def check_uris(uris: Sequence[str]) -> None:
        """Raise ``InvalidParams`` for too many URIs, or for a malformed one."""
        if len(uris) > settings.MAX_SUBSCRIPTIONS:
            raise InvalidParams(f"At most {settings.MAX_SUBSCRIPTIONS} resources can be subscribed to")
        for uri in uris:
            if not isinstance(uri, str) or len(uri) > MAX_URI or not _URI.fullmatch(uri):
                raise InvalidParams(f"A resource is named by a URI of at most {MAX_URI} characters")

    def set_uris(self, uris: Sequence[str]) -> None:
        """Subscribe to these URIs instead. Call it in a worker thread: it queries the database."""
        self.check_uris(uris)
        person = reload([self.caller.user])[identity(self.caller.user)]
        if person is not None and self.is_open and not self.caller.lost(person):
            self.watch(self.caller.request(person.user), uris)

    def watch(self, request: MCPRequest, uris: Sequence[str]) -> None:
        """Watch those of the resources that the subscriber may see, within the user's limit of pages."""
        may_read = settings.EVENTS and Scope.READ in request.mcp.scopes
        digests = self.caller.pages
        honoured = []
        pages = self.audience.pages_of(self.caller.user, self)
        for watch in find_watches(request, uris) if may_read else ():
            if needs_digest(request, watch) and watch.uri not in digests:
                # A later change is only visible by comparison with the current content.
                try:
                    digests[watch.uri] = content_digest(request, watch)
                except NotFound:
                    continue
            if watch.is_page:
                pages.add(watch.uri)
            if not (watch.is_page and len(pages) > MAX_PAGES):
                honoured.append(watch)
        self.audience.watch(self, tuple(honoured))

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        if self.is_open:
            try:
                self.deliver(method, params)
            except Exception as error:
                logger.error("The delivery of a notification failed", exc_info=error)

    def end(self, reason: str) -> None:
        """End the subscription and log the reason; do nothing if it has ended already."""
        if self.is_open:
            self.close()
            logger.info("A subscription ended: %s", reason)
            try:
                self.on_end(reason)
            except Exception as error:
                logger.error("The end of a subscription failed", exc_info=error)

    def close(self) -> None:
        self.is_open = False
        self.audience.remove(self)


# Pairs of a subscription and a resource that it watches, as keys in order.
Entries = dict[tuple[Subscription, Watch], None]


class SubscriptionIndex:
    """Index of the open subscriptions of this process, by what they watch. It makes no queries."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._callers: dict[Hashable, Subscriber] = {}
        self._index: dict[Hashable, dict[Subscriber, Entries]] = {}
        # For each model, the primary keys that are watched, and None if pages are.
        self._pks: dict[str, set[str | None]] = defaultdict(set)

    def find(self, request: MCPRequest) -> Subscriber | None:
        """Return the subscriber of a request, None without an open subscription."""
        key = subscriber_key(request)
        with self._lock:
            return self._callers.get(key)

    def add(self, subscription: Subscription) -> None:
        """Add a subscription to the index, under an equal subscriber if there is one."""
        with self._lock:
            caller = self._callers.setdefault(subscription.caller.key, subscription.caller)
            caller.subscriptions[subscription] = None
            subscription.caller = caller

    def remove(self, subscription: Subscription) -> None:
        caller = subscription.caller
        with self._lock:
            self.watch(subscription, ())
            caller.subscriptions.pop(subscription, None)
            if not caller.subscriptions:
                self._callers.pop(caller.key, None)

    def watch(self, subscription: Subscription, watches: tuple[Watch, ...]) -> None:
        """List the subscription among the subscribers of ``watches``, and no longer of what it watched before."""
        caller = subscription.caller
        with self._lock:
            if subscription not in caller.subscriptions:
                return
            for watch in set(subscription.watches).difference(watches):
                for target in _targets(watch):
                    self._unlink(target, subscription, watch)
            subscription.watches = watches
            for watch in watches:
                for target in _targets(watch):
                    self._index.setdefault(target, {}).setdefault(caller, {})[subscription, watch] = None
                if watch.label:
                    self._pks[watch.label].add(watch.pk)
                if watch.pk is not None:
                    caller.seen.add((watch.label, watch.pk))

    def _unlink(self, target: Hashable, subscription: Subscription, watch: Watch) -> None:
        caller = subscription.caller
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

    def callers(self) -> list[Subscriber]:
        with self._lock:
            return list(self._callers.values())

    def subscriptions(self) -> list[Subscription]:
        with self._lock:
            return [subscription for caller in self._callers.values() for subscription in caller.subscriptions]

    def pages_of(self, user: Any, apart_from: Subscription) -> set[str]:
        """Return the URIs of the pages that this user watches, apart from those of one subscription."""
        wanted = identity(user)
        with self._lock:
            return {
                watch.uri
                for caller in self._callers.values()
                if caller.user_key == wanted
                for subscription in caller.subscriptions
                if subscription is not apart_from
                for watch in subscription.watches
                if watch.is_page
            }

    def relevant(self, changes: Changes) -> Changes:
        """Return the part of the changes that some open subscription of this process watches."""
        with self._lock:
            if self._callers:
                return changes.among(self._pks, self._index)
            return Changes()

    def concerned(self, changes: Changes) -> dict[Subscriber, Entries]:
        """Return, by subscriber, the subscriptions that watch the changed rows, models and resources."""
        entries_by_caller: dict[Subscriber, Entries] = defaultdict(dict)
        with self._lock:
            targets: list[Hashable] = list(self._index) if changes.everything else list(changes.uris)
            for label, pks in changes.rows.items():
                watched = self._pks.get(label, set())
                keys = watched if pks is None else (watched & pks) | (watched & {None})
                targets += [(label, pk) for pk in keys]
            for target in targets:
                for caller, entries in self._index.get(target, {}).items():
                    entries_by_caller[caller].update(entries)
        return entries_by_caller


def _targets(watch: Watch) -> list[Hashable]:
    """Return the keys of a watched resource in the index: its URI, and its row or, for pages, its model."""
    if watch.label:
        return [watch.uri, (watch.label, watch.pk)]
    return [watch.uri]


# Users


@dataclass(frozen=True, slots=True)
class ReloadedUser:
    """A user, reloaded, with a digest of the user's row, groups and permissions."""

    user: Any
    digest: int

    @property
    def is_active(self) -> bool:
        """Whether the user is active; anonymous users are, if the project admits them."""
        return not isinstance(self.user, Model) or bool(getattr(self.user, "is_active", True))


def identity(user: Any) -> Hashable:
    """Return a key that is equal only for the same user."""
    kind = user.__class__
    pk = getattr(user, "pk", None)
    if pk is not None or kind is AnonymousUser:
        return (kind, pk)
    return (kind, id(user))


def reload(users: Iterable[Any]) -> dict[Hashable, ReloadedUser | None]:
    """Return the users reloaded with their permissions, by :func:`identity`; None for deleted ones.

    That takes four queries for 500 users, plus the queries for each user that backends other than ``ModelBackend``
    make. Users that are not database rows are returned unchanged.
    """
    reloaded: dict[Hashable, ReloadedUser | None] = {}
    tables: dict[tuple[type[Model], str], dict[Any, Hashable]] = defaultdict(dict)
    for user in users:
        key = identity(user)
        if isinstance(user, Model):
            model = user.__class__
            tables[model, user._state.db or router.db_for_read(model)][user.pk] = key
        else:
            reloaded[key] = ReloadedUser(user, 0)
    for (model, using), keys in tables.items():
        for pks in chunks(list(keys)):
            fresh = {user.pk: user for user in model._base_manager.using(using).filter(pk__in=pks)}
            digests = _load(model, using, fresh)
            for pk in pks:
                reloaded[keys[pk]] = ReloadedUser(fresh[pk], digests[pk]) if pk in fresh else None
    return reloaded


def _load(model: Any, using: str, users: dict[Any, Any]) -> dict[Any, int]:
    """Fill the permission caches of the reloaded users, and return the digests."""
    own = _permissions(model, "user_permissions", using, users)
    groups: dict[Any, set[Any]] = defaultdict(set)
    inherited: dict[Any, set[str]] = {}
    if hasattr(model, "groups"):
        field = model._meta.get_field("groups")
        for pk, group in _through(field, using, users, "pk"):
            groups[pk].add(group)
        if used := {group for memberships in groups.values() for group in memberships}:
            # Many users share groups, so load the permissions of each group once.
            inherited = _permissions(field.related_model, "permissions", using, used)
    is_stock = django_settings.AUTHENTICATION_BACKENDS == STOCK and hasattr(model, "user_permissions")
    digests = {}
    for pk, user in users.items():
        permissions = own[pk].union(*(inherited[group] for group in groups[pk]))
        if not is_stock:
            permissions = _ask(user)
        elif user.is_active and not getattr(user, "is_superuser", True):
            user._perm_cache = permissions
        row = [getattr(user, field.attname) for field in model._meta.concrete_fields if field.name != "last_login"]
        digests[pk] = hash((repr(row), frozenset(permissions), frozenset(groups[pk])))
    return digests


def _ask(user: Any) -> set[str]:
    try:
        if hasattr(user, "get_all_permissions"):
            return set(user.get_all_permissions())
        return set()
    except Exception:
        logger.exception("The permissions of a user cannot be read")
        return set()


def _permissions(model: Any, name: str, using: str, pks: Iterable[Any]) -> dict[Any, set[str]]:
    names: dict[Any, set[str]] = defaultdict(set)
    if hasattr(model, name):
        rows = _through(model._meta.get_field(name), using, pks, "content_type__app_label", "codename")
        for pk, app_label, codename in rows:
            names[pk].add(f"{app_label}.{codename}")
    return names


def _through(field: Any, using: str, pks: Iterable[Any], *paths: str) -> Iterable[tuple[Any, ...]]:
    """Return rows of a many-to-many table of users or groups: the key, and columns of the related model."""
    source = field.m2m_field_name()
    target = field.m2m_reverse_field_name()
    rows = field.remote_field.through._default_manager.using(using).filter(**{f"{source}__in": list(pks)})
    links: Iterable[tuple[Any, ...]] = rows.values_list(source, *(f"{target}__{path}" for path in paths))
    return links
