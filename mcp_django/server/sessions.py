"""MCP sessions of the handshake era, whose ids are sealed texts (2025-11-25, basic/transports, Session Management).

User, client, endpoint and what ``initialize`` negotiated are in the sealed text or in the key that opens it. So any
worker can read it, restarts and deployments do not end sessions, and a client that only initializes costs nothing. A
row is written when a session first has something to store, and when it ends.
"""

import logging
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson
from django.conf import settings as django_settings
from django.db import IntegrityError, router, transaction
from django.db.models import Expression, F, Q, QuerySet
from django.db.models.lookups import Exact
from django.utils import timezone

from ..conf import settings
from ..context.request import MCPRequest
from ..context.signing import Seal
from ..exceptions import NotFound
from ..models import Session, Stream
from ..orm.own_tables import OwnTable
from ..protocol.eras import Call
from ..protocol.errors import InvalidParams
from ..protocol.versions import Revisions
from ..runtime.cache_and_rate_limits import cache
from ..subscriptions.bus import bus

logger = logging.getLogger("mcp_django")

SALT: Final = "mcp_django.session"
MAX_ID_CHARS: Final = 1024
MAX_NAME_CHARS: Final = 64
# Seconds that a change of a session's subscriptions waits for the session's stream to confirm it.
KNOWN_WITHIN: Final = 1.0
# The age of the seal does not matter: a session expires by the time since its last use.
FOREVER: Final = 100 * 365 * 24 * 3600
# The client capabilities that this server uses, with their parts.
USED: Final[Mapping[str, frozenset[str]]] = {
    "elicitation": frozenset({"form", "url"}),
    "sampling": frozenset({"context", "tools"}),
    "roots": frozenset(),
}


@dataclass(slots=True)
class ClientSession:
    """One client's session: what ``initialize`` negotiated, its log level, and the resources it subscribes to."""

    id: str
    user_pk: Any
    issued: datetime
    version: str
    client: Mapping[str, str]
    capabilities: Mapping[str, Any]
    log_level: str | None = None
    uris: Sequence[str] = field(default_factory=tuple)
    has_row: bool = False

    @staticmethod
    def open(request: MCPRequest, call: Call | None = None) -> str:
        """Open a session for the caller and return its id; ``call`` is ``initialize`` if it has come already."""
        version, client, capabilities = _agreed(call) if call is not None else (Revisions.LEGACY[0], {}, {})
        now = int(timezone.now().timestamp())
        data = [secrets.token_hex(16), now, Revisions.LEGACY.index(version), client, capabilities]
        return _seal(request).seal(orjson.dumps(data), unique=True)

    @classmethod
    def find(cls, request: MCPRequest, text: str) -> "ClientSession":
        """Return the caller's session of this id. Raises ``NotFound`` if there is none, or it has ended."""
        data = _seal(request).open(text, FOREVER, MAX_ID_CHARS)
        if data is None:
            raise NotFound
        identifier, issued, version, client, capabilities = orjson.loads(data)
        session = cls(
            id=identifier,
            user_pk=request.user.pk,
            issued=datetime.fromtimestamp(issued, tz=UTC if django_settings.USE_TZ else None),
            version=Revisions.LEGACY[version],
            client=client,
            capabilities=capabilities,
        )
        seen = session.issued
        table = OwnTable(Session, router.db_for_read(Session))
        row = next(iter(table.read(_stored_sessions, (Session._meta.pk, session.id))), None)
        if row is not None:
            session.has_row = True
            seen, ended, level, session.uris, facts = row
            session.log_level = level or None
            if facts:
                session.version, session.client, session.capabilities = facts
            if ended:
                raise NotFound
        unused = timezone.now() - seen
        idle = timedelta(seconds=settings.SESSION_IDLE)
        if unused > idle:
            raise NotFound
        # Write the last use only now and then, to avoid a row for each session and a write for each call.
        if unused > idle / (10 if row is not None else 2):
            session.remember()
        return session

    @property
    def topic(self) -> str:
        """The topic of the bus on which the session's workers tell each other of it."""
        return _topic(self.id)

    @property
    def lease_key(self) -> str:
        """The key in the cache for the one stream that gets the session's messages."""
        return f"mcp_django:lease:{self.id}"

    def set_log_level(self, level: str) -> None:
        self.log_level = level
        self.remember(log_level=level)

    def introduce(self, call: Call) -> None:
        """Store in the session what ``initialize`` negotiates, if it comes later (2024-11-05, HTTP with SSE)."""
        self.version, self.client, self.capabilities = _agreed(call)
        self.remember(facts=[self.version, self.client, self.capabilities])

    def subscribe(self, uri: str) -> None:
        """Add a resource to the session's subscriptions; wait until its stream, in any worker, knows of it."""
        self._change(lambda uris: self.add_uri(uris, uri))

    def unsubscribe(self, uri: str) -> None:
        self._change(lambda uris: [item for item in uris if item != uri])

    def _change(self, change: Callable[[Sequence[str]], Sequence[str]]) -> None:
        self.remember()
        with transaction.atomic():
            rows = Session.objects.filter(pk=self.id)
            # Lock the row, on every database, so that concurrent changes are not lost.
            rows.update(seen=F("seen"))
            self.uris = tuple(change(rows.values_list("uris", flat=True).get()))
            rows.update(uris=list(self.uris))
        # Tell the worker with the session's open stream and wait for it, so that no later change is missed.
        token = secrets.token_hex(8)
        confirmed = threading.Event()

        def on_message(message: Any) -> None:
            if not isinstance(message, dict) or message.get("known") == token:
                confirmed.set()

        unsubscribe = bus.subscribe(self.topic, on_message)
        try:
            bus.publish(self.topic, {"uris": list(self.uris), "token": token})
            try:
                is_listening = cache.get(self.lease_key) is not None
            except Exception as error:
                logger.warning("Streams are not waited for: the cache does not answer (%s)", type(error).__name__)
                is_listening = False
            if is_listening:
                confirmed.wait(KNOWN_WITHIN)
        finally:
            unsubscribe()

    def stored_uris(self) -> tuple[str, ...]:
        """Return the session's current subscriptions from the database, whichever worker changed them."""
        uris = Session.objects.filter(pk=self.id).values_list("uris", flat=True).first()
        return tuple(uris or ())

    def remember(self, **values: Any) -> None:
        """Write the session's row, which keeps it alive; end the user's oldest sessions beyond ``MAX_SESSIONS``."""
        now = timezone.now()
        # Insert a new one first: on MySQL, an update that finds no row keeps others from inserting theirs. Nothing is
        # read before: SQLite refuses a transaction that reads before it writes if another one has written meanwhile.
        if self.has_row or not self._insert(seen=now, **values):
            table = OwnTable(Session, router.db_for_write(Session))
            if not table.update(self.id, seen=now, **values):
                self._insert(seen=now, **values)
        if not self.has_row:
            self.has_row = True
            live = Session.objects.filter(user_id=self.user_pk, ended=False).order_by("-seen", "pk")
            if surplus := list(live.values_list("pk", flat=True)[settings.MAX_SESSIONS :]):
                Session.objects.filter(pk__in=surplus).update(ended=True, uris=[])
                _forget(surplus)

    def _insert(self, **values: Any) -> bool:
        """Store the session's row; return False if another worker was faster."""
        using = router.db_for_write(Session)
        row = Session(pk=self.id, user_id=self.user_pk, created=self.issued, **values)
        try:
            with transaction.atomic(using=using):
                row.save(using=using, force_insert=True)
        except IntegrityError:
            return False
        return True

    def end(self) -> None:
        """End the session: refuse its id from now on, and delete its streams."""
        self.remember(ended=True, uris=[], log_level="")
        _forget([self.id])
        if settings.TELEMETRY["opentelemetry"]:
            from ..operating.opentelemetry_spans import session_ended

            session_ended((timezone.now() - self.issued).total_seconds(), self.version)

    @staticmethod
    def end_any(session_id: str) -> bool:
        """End a session of any user if it has a row; return whether it was open."""
        ended = Session.objects.filter(pk=session_id, ended=False).update(ended=True, uris=[], log_level="")
        if ended:
            _forget([session_id])
        return bool(ended)

    @staticmethod
    def add_uri(uris: Sequence[str], uri: str) -> Sequence[str]:
        """Return a session's list of subscribed resources with one more, at most ``MAX_SUBSCRIPTIONS``."""
        if uri in uris:
            return uris
        if len(uris) >= settings.MAX_SUBSCRIPTIONS:
            raise InvalidParams(f"Invalid params: a session can subscribe to {settings.MAX_SUBSCRIPTIONS} resources")
        return [*uris, uri]

    @staticmethod
    def clear_expired() -> int:
        """Delete the rows of expired sessions, whose ids are too old to be accepted; return how many."""
        horizon = timezone.now() - timedelta(seconds=settings.SESSION_IDLE)
        _, by_model = Session.objects.filter(seen__lt=horizon, created__lt=horizon).delete()
        return by_model.get(Session._meta.label, 0)


def _topic(session_id: str) -> str:
    return f"session:{session_id}"


def _agreed(call: Call) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Return what a session stores of ``initialize``: the negotiated version, the client, its capabilities."""
    client = {name: str(call.client.get(name, ""))[:MAX_NAME_CHARS] for name in ("name", "version")}
    declared = call.params.get("capabilities") or {}
    used: dict[str, Any] = {
        name: {part: {} for part in parts if isinstance(declared[name].get(part), dict)}
        for name, parts in USED.items()
        if isinstance(declared.get(name), dict)
    }
    return Revisions.negotiate(call.params.get("protocolVersion")), client, used


def _seal(request: MCPRequest) -> Seal:
    mcp = request.mcp
    return Seal(SALT, mcp.site.name, mcp.resource, str(request.user.pk), mcp.client_id)


def _stored_sessions(identifier: Expression) -> QuerySet[Any]:
    rows = Session.objects.filter(Q(Exact(F("id"), identifier)))
    return rows.values_list("seen", "ended", "log_level", "uris", "facts")


def _forget(session_ids: Sequence[str]) -> None:
    Stream.objects.filter(session_id__in=session_ids).delete()
    for session_id in session_ids:
        bus.publish(_topic(session_id), {"ended": True})
