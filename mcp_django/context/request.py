"""The request that hooks get, and its context at ``request.mcp``."""

import itertools
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

import orjson
from django.http import HttpRequest

from ..conf import settings
from ..exceptions import Cancelled
from ..protocol.client_requests import ELICITATION, ROOTS, SAMPLING, limits_of, method_known, supports
from .record import CallRecord

if TYPE_CHECKING:
    from ..schema.sampling import Root, Sampled
    from .narrowing import Narrowing
    from .questions import Answers

# Seconds between two progress reports of one call.
PROGRESS_INTERVAL: Final = 0.02
# RFC 5424, section 6.2.1, the least severe first.
LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
# Log messages of one call.
MAX_LOG_MESSAGES: Final = 1_000
CAPABILITIES: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "elicitation": (ELICITATION, {}),
    "elicitation.url": (ELICITATION, {"mode": "url"}),
    "sampling": (SAMPLING, {}),
    "sampling.tools": (SAMPLING, {"tools": [{}]}),
    "roots": (ROOTS, {}),
}
# Bytes of the JSON of one log message.
MAX_LOG_BYTES: Final = 16 * 1024
UNSET: Final = object()
PAGE: Final = re.compile(r"https?://[^\s/?#]+[^\s]*")
# Kept with a token whose calls are confirmed by ``confirm_token`` instead of a question, whatever its client can show.
CONFIRM_BY_TOKEN: Final = "confirm_by_token"
KEY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")

Notify = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Client:
    """What the client program says of itself, for display and logs only: it proves nothing."""

    name: str = ""
    version: str = ""


def _stay_connected() -> None: ...


def _no_answers() -> "Answers":
    # Few of the processes that load this module answer calls.
    from .questions import Answers

    return Answers()


class SessionState(Protocol):
    """What a session of the handshake era remembers between its calls."""

    log_level: str | None
    uris: Sequence[str]

    def set_log_level(self, level: str) -> None:
        """Remember the least severe level of log messages that the client wants."""

    def subscribe(self, uri: str) -> None:
        """Remember a resource that the client wants to hear of. Raises ``InvalidParams`` over ``MAX_SUBSCRIPTIONS``."""

    def unsubscribe(self, uri: str) -> None:
        """Forget a resource."""


@dataclass(slots=True)
class MCPContext:
    """The MCP side of one request, hung off ``request.mcp``.

    ``site`` is the :class:`~mcp_django.sites.MCPSite` that is called, which lies above all that runs a call.
    ``scopes`` are those of the token with what they imply; ``client_id`` is the OAuth client's, or "".
    ``resource`` is the canonical URL of the endpoint (RFC 8707). ``trace`` is the caller's trace context
    (``traceparent``, ``tracestate``, ``baggage``). ``facts`` is what is kept with the token, by name;
    ``narrowing`` is what of it bounds the call, None for nothing. ``live`` says
    that this call may wait for answers of the client, ``can_stream`` that the server can keep a connection open.
    ``param_headers`` are the ``Mcp-Param-*`` headers by lower-case name, None on a transport without headers.
    ``record`` is what those who run the site see of the call, ``off`` what they
    switched off, an ``Off`` of ``operating.switches``, None for nothing.
    ``close_stream()`` closes the connection of a call whose client comes back for the answer (2025-11-25,
    basic/transports), and does nothing otherwise.
    """

    site: Any
    resource: str = ""
    version: str = ""
    client: Client = field(default_factory=Client)
    client_id: str = ""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    scopes: frozenset[str] = frozenset()
    facts: Mapping[str, Any] = field(default_factory=dict)
    narrowing: "Narrowing | None" = None
    progress_token: str | int | None = None
    log_level: str | None = None
    notify: Notify | None = None
    record: CallRecord = field(default_factory=CallRecord)
    off: Any = None
    cancelled: bool = False
    last_progress: float | None = None
    told_at: float = 0.0
    trace: Mapping[str, str] = field(default_factory=dict)
    session: SessionState | None = None
    live: bool = False
    answers: "Answers" = field(default_factory=_no_answers)
    logged: Iterator[int] = field(default_factory=itertools.count)
    can_stream: bool = True
    param_headers: Mapping[str, list[str]] | None = None
    close_stream: Callable[[], None] = _stay_connected

    @property
    def result_chars(self) -> int:
        """Characters of a result: what the setting ``RESULT_CHARS`` says, or fewer where the client loses some."""
        most: int = settings.RESULT_CHARS
        return min(most, limits_of(self.client.name).result_chars or most)

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Tell the client how far the call is, in units of the caller's choice.

        Nothing is sent when the client did not ask for progress, when ``done`` did not grow (basic/patterns/progress:
        the value MUST increase), or sooner than 20 ms after the last report, unless it is the end.

        Raises:
            Cancelled: the client has gone; let it pass.
        """
        if self.cancelled:
            raise Cancelled
        grew = self.last_progress is None or done > self.last_progress
        if self.progress_token is None or self.notify is None or not grew:
            return
        now = time.monotonic()
        if done != total and now - self.told_at < PROGRESS_INTERVAL:
            return
        self.last_progress, self.told_at = done, now
        params: dict[str, Any] = {"progressToken": self.progress_token, "progress": done}
        if total is not None:
            params["total"] = total
        if message:
            params["message"] = message
        self.notify("notifications/progress", params)

    def log(self, level: str, data: Any, logger: str = "") -> None:
        """Tell the client something that it may show or keep: ``data`` is text, or anything that has a JSON form.

        Nothing is sent to a client that did not ask for messages of this level (server/utilities/logging), and no more
        than 1,000 messages in one call. Any thread may call it. Put no secrets in it: the client is not the server.

        Raises:
            ValueError: ``level`` is none of "debug", "info", "notice", "warning", "error", "critical", "alert" and
                "emergency".
        """
        if level not in LOG_LEVELS:
            raise ValueError(f"{level!r} is none of {', '.join(LOG_LEVELS)}")
        severity = LOG_LEVELS.index(level)
        least = self.log_level or (self.session.log_level if self.session is not None else None)
        if self.notify is None or least not in LOG_LEVELS or severity < LOG_LEVELS.index(least):
            return
        number = next(self.logged)
        if number > MAX_LOG_MESSAGES:
            return
        if number == MAX_LOG_MESSAGES:
            level, data, logger = least, f"Only {MAX_LOG_MESSAGES} log messages of one call are sent.", ""
        named = {"logger": logger} if logger else {}
        self.notify("notifications/message", {"level": level, **named, "data": _log_data(data)})

    # Asking

    def can(self, capability: str) -> bool:
        """Return whether this call may ask its client: "elicitation", "elicitation.url", "sampling" or "roots".

        Raises:
            ValueError: there is no such capability.
        """
        if capability not in CAPABILITIES:
            raise ValueError(f"{capability!r} is none of {', '.join(CAPABILITIES)}")
        return self.takes(*CAPABILITIES[capability])

    def takes(self, method: str, params: Mapping[str, Any]) -> bool:
        """Return whether a question of this kind may be sent to the client.

        The user of a client whose token says so is never asked: there is nobody.
        """
        if not self.live or (method == ELICITATION and self.facts.get(CONFIRM_BY_TOKEN)):
            return False
        return method_known(method, self.version, params) and supports(self.capabilities, method, params)

    def ask(self, message: str, kind: Any = bool, *, key: str = "", default: Any = UNSET, proof: bool = False) -> Any:
        """Return what the client's user answers to ``message``.

        The call ends here until the answer is there, and then runs again from its beginning: do nothing before that
        must not be done twice. A client that cannot ask its user makes the call again with the answers as arguments.

        ``kind`` is what is asked for, and decides what is returned: ``bool``, ``str``, ``int``, ``float``, ``Decimal``,
        ``date``, ``datetime``, a ``Literal``, an enumeration, a list of choices (values, or pairs of value and label),
        a list type of any of these choices, a dataclass of such fields (its instance is returned), a Django form, as a
        class or as an instance made for this call (its ``cleaned_data``), or a JSON Schema of a flat object (a dict).
        None asks for nothing but consent, and gives True. ``key`` names the question among those of the call.
        ``default`` is what a single field shows, and what is returned for it when it is left out. With ``proof`` an
        answer counts only once, and only if this server asked exactly this before.

        Raises:
            InputRequired: let it pass; it is no ``Exception``.
            Declined: the user declined or dismissed the question.
            ImproperlyConfigured: ``kind`` is nothing that a form of plain fields can ask for.
        """
        from ..schema.elicitation import blank

        form = blank(kind, key) if default is UNSET else blank(kind, key, default)
        return self.put(ELICITATION, {"message": str(message), "requestedSchema": form.schema}, form.read, key, proof)

    def ask_url(self, message: str, url: str, *, key: str = "") -> None:
        """Send the client's user to a page, for what must not pass through the client, such as a password.

        Returns when the user has agreed to go there, which says nothing of what happens there: look that up, and ask
        again while it is not done. Never put a secret or an identity into ``url``: the page has to sign its user in.

        Raises:
            InputRequired, Declined: see :meth:`ask`; only for clients that :meth:`can` "elicitation.url".
            ValueError: ``url`` is no absolute URL of a page.
        """
        if not PAGE.fullmatch(url) or not urlsplit(url).hostname:
            raise ValueError(f"{url[:200]!r} is no URL that a person could be sent to")
        self.put(ELICITATION, {"mode": "url", "message": str(message), "url": url}, lambda content: None, key)

    def sample(
        self, messages: Any, *, max_tokens: int = 1_000, system: str = "", key: str = "", **more: Any
    ) -> "Sampled":
        """Return what the client's model answers to ``messages``: a text, or a list of texts, messages and pairs.

        A pair is a role ("user" or "assistant") and a text. ``system`` is the system prompt; ``more`` are further
        parameters of ``sampling/createMessage``, such as ``temperature``. Only for clients that :meth:`can` "sampling".

        Raises:
            InputRequired: see :meth:`ask`.
        """
        from ..schema.sampling import read_sample, sampling_params

        return self.put(SAMPLING, sampling_params(messages, max_tokens, system, more), read_sample, key)

    def roots(self, *, key: str = "") -> "list[Root]":
        """Return the directories and files that the client works in. Only for clients that :meth:`can` "roots".

        Raises:
            InputRequired: see :meth:`ask`.
        """
        from ..schema.sampling import read_roots

        return self.put(ROOTS, {}, read_roots, key)

    def put(
        self,
        method: str,
        params: Mapping[str, Any],
        read: Callable[[dict[str, Any]], Any],
        key: str = "",
        proof: bool = False,
        about: str = "",
    ) -> Any:
        """Return what ``read`` makes of the client's answer to a question: a
        :class:`~mcp_django.context.questions.Question`.

        Raises:
            InputRequired, Declined: see :meth:`ask`.
            ValueError: the key cannot be one, or names another question of this call.
        """
        from .questions import Question

        question = Question(key=key, method=method, params=params, proof=proof, about=about)
        if not key:
            question = replace(question, key=self.answers.unused_key(question.digest))
        elif not KEY.fullmatch(key):
            raise ValueError(f"{key[:64]!r} cannot be the key of a question")
        return self.answers.settle(question, self.version, read)


def _log_data(data: Any) -> Any:
    from ..schema.values import to_jsonable

    value = data if isinstance(data, str) and len(data) < MAX_LOG_BYTES else to_jsonable(data)
    encoded = orjson.dumps(value)
    return value if len(encoded) <= MAX_LOG_BYTES else f"{encoded[:MAX_LOG_BYTES].decode(errors='ignore')}…"


class MCPRequest(HttpRequest):
    """A Django request that came over MCP: ``user`` is the token's user, ``mcp`` is the context.

    It carries no token and no cookie.
    """

    mcp: MCPContext
    connection_scheme: str = "http"

    def _get_scheme(self) -> str:
        return self.connection_scheme
