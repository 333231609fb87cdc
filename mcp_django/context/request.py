"""The MCP request that hooks get, its context at ``request.mcp``, and how both are built from an ASGI scope, without
cookies.
"""

import itertools
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol
from urllib.parse import urlsplit

import orjson
from django.conf import settings as django_settings
from django.http import HttpRequest, QueryDict
from django.utils.datastructures import MultiValueDict

from ..conf import settings
from ..exceptions import Cancelled, InsufficientScope
from ..protocol.client_requests import ClientRequest, Limits
from ..protocol.headers import ParamHeader, RequestHeaders
from .call_record import CallRecord

if TYPE_CHECKING:
    from django.contrib.messages.storage.base import BaseStorage
    from django.contrib.sessions.backends.base import SessionBase

    from .admin_page import PageName
    from .approval_checks import ApprovalCheck
    from .call_restrictions import Narrowing
    from .questions import Answers
    from .sampling_and_roots import Root, Sampled
    from .task_desk import CurrentTask, TaskDesk

# Seconds between two progress reports of one call.
PROGRESS_INTERVAL: Final = 0.02
# Levels of RFC 5424, section 6.2.1, the least severe first.
LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
# Maximum number of log messages that one call sends.
MAX_LOG_MESSAGES: Final = 1_000
CAPABILITIES: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "elicitation": (ClientRequest.ELICITATION, {}),
    "elicitation.url": (ClientRequest.ELICITATION, {"mode": "url"}),
    "sampling": (ClientRequest.SAMPLING, {}),
    "sampling.tools": (ClientRequest.SAMPLING, {"tools": [{}]}),
    "roots": (ClientRequest.ROOTS, {}),
}
# Maximum bytes of one log message as JSON.
MAX_LOG_BYTES: Final = 16 * 1024
UNSET: Final = object()
# In seconds; no task runs longer.
A_DAY: Final = 24 * 3600
PAGE: Final = re.compile(r"https?://[^\s/?#]+[^\s]*")
KEY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")

Notify = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Client:
    """The client of an MCP request: name and version, as it gives them, for display and logs; they prove nothing."""

    name: str = ""
    version: str = ""


class SessionState(Protocol):
    """What an MCP request reads and changes of its session: log level and subscriptions."""

    log_level: str | None
    uris: Sequence[str]

    def set_log_level(self, level: str) -> None:
        """Keep the least severe level of log messages that an MCP request asks for, and let later requests know it."""

    def subscribe(self, uri: str) -> None:
        """Keep a resource that an MCP request subscribes to, and let later requests know it. Raises ``InvalidParams``
        over ``MAX_SUBSCRIPTIONS``."""

    def unsubscribe(self, uri: str) -> None:
        """Forget a resource that an MCP request unsubscribes from, for later requests too."""


@dataclass(slots=True)
class MCPContext:
    """The context of one MCP request, which hooks find at ``request.mcp``.

    ``site`` is the called :class:`~mcp_django.sites.MCPSite`, whose class no module that runs calls may import.
    ``scopes`` are those of the token and all that they imply; ``client_id`` is the OAuth client's, or "". ``resource``
    is the canonical URL of the endpoint (RFC 8707). ``trace`` is the caller's trace context (``traceparent``,
    ``tracestate``, ``baggage``). ``facts`` are those stored with the token, by name; ``narrowing`` is the restriction
    in them, None for none. ``live`` says that this call can wait for the client's answers, ``can_stream`` that the
    server can keep a connection open. ``param_headers`` are the ``Mcp-Param-*`` headers by lower-case name, None on a
    transport without headers. ``record`` is the call's record for those who run the site, and ``off`` what they have
    switched off (an ``Off`` of ``operating.switches``), None for nothing. ``consent`` is the yes of a person under
    which the call runs (a ``Consent`` of ``context.person_consent``), None without one. ``approvals`` are the approval
    rules that may concern the call (an ``ApprovalCheck`` of ``context.approval_checks``), None for none. ``tasks`` are
    the caller's (a ``TaskDesk`` of ``context.task_desk``), None where there are none, and ``task`` is the one as which
    the call runs, None for a call in its request.
    ``close_stream()`` closes the connection of a call whose client will come back for the answer (2025-11-25,
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
    consent: Any = None
    approvals: "ApprovalCheck | None" = None
    tasks: "TaskDesk | None" = None
    task: "CurrentTask | None" = None
    cancelled: bool = False
    last_progress: float | None = None
    told_at: float = 0.0
    trace: Mapping[str, str] = field(default_factory=dict)
    session: SessionState | None = None
    live: bool = False
    answers: "Answers" = field(init=False, repr=False, compare=False)
    logged: Iterator[int] = field(default_factory=itertools.count)
    can_stream: bool = True
    param_headers: Mapping[str, list[str]] | None = None
    close_stream: Callable[[], None] = lambda: None

    # Name of the fact of tokens whose calls are confirmed by ``confirm_token``, even if the client can show questions.
    CONFIRM_BY_TOKEN: ClassVar[str] = "confirm_by_token"
    # ``resource`` of calls without HTTP, instead of the endpoint's URL: no token or cursor of another transport matches
    # it.
    LOCAL: ClassVar[str] = "stdio:"

    def __getattr__(self, name: str) -> Any:
        if name != "answers":
            raise AttributeError(name)
        # Imported here, because few calls ask, and few processes that import this module answer calls.
        from .questions import Answers

        self.answers = Answers()
        return self.answers

    @property
    def result_chars(self) -> int:
        """Maximum characters for this MCP request's client: ``RESULT_CHARS``, or fewer if it is known to drop some."""
        most: int = settings.RESULT_CHARS
        known = Limits.of(self.client.name).result_chars
        return most if known is None else min(most, known)

    def require_scopes(self, scopes: Collection[str]) -> None:
        """Raise ``InsufficientScope`` unless the token of this MCP request has all the scopes."""
        if not self.scopes.issuperset(scopes):
            raise InsufficientScope(scopes)

    @property
    def takes_tasks(self) -> bool:
        """Whether the client of this MCP request can be given a task in place of a result: it has said so with the
        request itself."""
        extensions = self.capabilities.get("extensions")
        if not extensions or not isinstance(extensions, Mapping):
            return False
        # Imported here, because few processes that import this module answer calls.
        from ..protocol.tasks import EXTENSION
        from ..protocol.versions import Revisions

        return EXTENSION in extensions and self.version in Revisions.MODERN

    def answers_last(self, seconds: int) -> int:
        """Return for how many seconds an answer counts that this request's client has given: ``seconds``, or a day for
        a call that runs as a task, because its answers were taken before."""
        return seconds if self.task is None else A_DAY

    def begin_work(self, options: Any = None, rows: int = 0, using: str = "") -> None:
        """Say that the work of the call begins here: all has been asked and checked, and nothing is written yet.

        ``options`` are the ``TaskOptions`` of a tool or action that can be a task, None for any other. ``rows`` is the
        number of rows of a write. ``using`` is the database whose one transaction the whole work is, "" if it is none.
        Raises ``BecomesTask`` if the call goes on as a task.
        """
        if self.tasks is not None:
            self.tasks.begin_work(options, rows, using)
        elif self.task is not None:
            self.task.begin_work()

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """``request.mcp.progress``: report to the client how far the request is, in units of the caller's choice.

        Nothing is sent if the client did not ask for progress, if ``done`` has not grown (basic/patterns/progress: the
        value MUST increase), or within 20 ms of the last report unless ``done`` is ``total``.

        Raises:
            Cancelled: the client has gone; do not catch it.
        """
        if self.cancelled:
            raise Cancelled
        grew = self.last_progress is None or done > self.last_progress
        if self.progress_token is None or self.notify is None or not grew:
            return
        now = time.monotonic()
        if done != total and now - self.told_at < PROGRESS_INTERVAL:
            return
        self.last_progress = done
        self.told_at = now
        params: dict[str, Any] = {"progressToken": self.progress_token, "progress": done}
        if total is not None:
            params["total"] = total
        if message:
            params["message"] = message
        self.notify("notifications/progress", params)

    def log(self, level: str, data: Any, logger: str = "") -> None:
        """``request.mcp.log``: send a log message to the client; ``data`` is text, or anything that has a JSON form.

        Messages are only sent if the client asked for this level (server/utilities/logging), and at most 1,000 in one
        call. Any thread may call this. Do not log secrets: the client can read them.

        Raises:
            ValueError: ``level`` is not "debug", "info", "notice", "warning", "error", "critical", "alert" or
            "emergency".
        """
        from ..schema.json_values import to_jsonable

        if level not in LOG_LEVELS:
            raise ValueError(f"{level!r} is not one of {', '.join(LOG_LEVELS)}")
        severity = LOG_LEVELS.index(level)
        least = self.log_level or (self.session.log_level if self.session is not None else None)
        if self.notify is None or least not in LOG_LEVELS or severity < LOG_LEVELS.index(least):
            return
        number = next(self.logged)
        if number > MAX_LOG_MESSAGES:
            return
        if number == MAX_LOG_MESSAGES:
            level = least
            data = f"Only {MAX_LOG_MESSAGES} log messages per call are sent."
            logger = ""
        named = {"logger": logger} if logger else {}
        value = data if isinstance(data, str) and len(data) < MAX_LOG_BYTES else to_jsonable(data)
        encoded = orjson.dumps(value)
        if len(encoded) > MAX_LOG_BYTES:
            value = f"{encoded[:MAX_LOG_BYTES].decode(errors='ignore')}…"
        self.notify("notifications/message", {"level": level, **named, "data": value})

    # Asking

    def can(self, capability: str) -> bool:
        """``request.mcp.can``: whether the client takes "elicitation", "elicitation.url", "sampling" or "roots". Raises
        ``ValueError`` if there is no such capability."""
        if capability not in CAPABILITIES:
            raise ValueError(f"{capability!r} is not one of {', '.join(CAPABILITIES)}")
        return self.takes(*CAPABILITIES[capability])

    def takes(self, method: str, params: Mapping[str, Any]) -> bool:
        """Return whether, in this request's context, the client has the capability for ``method`` with ``params``. With
        the fact ``CONFIRM_BY_TOKEN`` no user is ever asked, because nobody is there to answer."""
        if not self.live or (method == ClientRequest.ELICITATION and self.facts.get(self.CONFIRM_BY_TOKEN)):
            return False
        request = ClientRequest(method, params)
        return request.is_known(self.version) and request.is_supported(self.capabilities)

    def ask(self, message: str, kind: Any = bool, *, key: str = "", default: Any = UNSET, proof: bool = False) -> Any:
        """``request.mcp.ask``: ask the client's user (elicitation) and return the answer to ``message``.

        The call ends here while there is no answer, and then runs again from its beginning: do nothing before this that
        must not happen twice. A client that cannot ask its user makes the call again with the answers as arguments.

        ``kind`` is the type of the answer: ``bool``, ``str``, ``int``, ``float``, ``Decimal``, ``date``, ``datetime``,
        a ``Literal``, an enumeration, a list of choices (values, or pairs of value and label), a list type of any of
        these choices, a dataclass of such fields (returns an instance), a Django form, as a class or as an instance
        made for this call (returns its ``cleaned_data``), or a JSON Schema of a flat object (returns a dict). None only
        asks for consent, and returns True. ``key`` names the question among those of the call. ``default`` is the
        initial value of a single field, and is returned if the user leaves it out. With ``proof``, an answer counts
        only once, and only if this server has asked exactly this question.

        Raises:
            InputRequired: do not catch it; it is not an ``Exception``.
            Declined: the user declined or dismissed the question.
            ImproperlyConfigured: a form of plain fields cannot ask for ``kind``.
        """
        from ..schema.question_forms import question_form

        form = question_form(kind, key) if default is UNSET else question_form(kind, key, default)
        params = {"message": str(message), "requestedSchema": form.schema}
        return self.put(ClientRequest.ELICITATION, params, form.read, key, proof)

    def ask_url(self, message: str, url: str, *, key: str = "") -> None:
        """In the request's context: send the user to a web page for what the client must not see, such as a password.

        Returns when the user has agreed to open the page, which says nothing about what they do there: check that, and
        ask again until it is done. Never put a secret or an identity into ``url``: the page has to sign its user in.

        Raises:
            InputRequired, Declined: see :meth:`ask`; only for clients that :meth:`can` "elicitation.url".
            ValueError: ``url`` is not an absolute URL of a page.
        """
        if not PAGE.fullmatch(url) or not urlsplit(url).hostname:
            raise ValueError(f"{url[:200]!r} is not a URL to which a person can be sent")
        params = {"mode": "url", "message": str(message), "url": url}
        self.put(ClientRequest.ELICITATION, params, lambda content: None, key)

    def sample(
        self, messages: Any, *, max_tokens: int = 1_000, system: str = "", key: str = "", **more: Any
    ) -> "Sampled":
        """``request.mcp.sample``: ask the client's AI model (sampling); ``messages`` is a text, or a list of texts,
        messages and pairs.

        A pair is a role ("user" or "assistant") and a text. ``system`` is the system prompt; ``more`` are further
        parameters of ``sampling/createMessage``, such as ``temperature``. Only for clients that :meth:`can` "sampling".

        Raises:
            InputRequired: see :meth:`ask`.
        """
        from .sampling_and_roots import Sampled, sampling_params

        return self.put(ClientRequest.SAMPLING, sampling_params(messages, max_tokens, system, more), Sampled.read, key)

    def roots(self, *, key: str = "") -> "list[Root]":
        """``request.mcp.roots``: ask the client for its roots, the directories and files that it works in.

        Only for clients that :meth:`can` "roots".

        Raises:
            InputRequired: see :meth:`ask`.
        """
        from .sampling_and_roots import Root

        return self.put(ClientRequest.ROOTS, {}, Root.read_all, key)

    def put(
        self,
        method: str,
        params: Mapping[str, Any],
        read: Callable[[dict[str, Any]], Any],
        key: str = "",
        proof: bool = False,
        about: str = "",
    ) -> Any:
        """In the context of this MCP request, have its client carry out ``method``, and return the answer as ``read``
        converts it.

        Raises:
            InputRequired, Declined: see :meth:`ask`.
            ValueError: ``key`` is invalid, or names another question of this call.
        """
        from .questions import Question

        question = Question(key=key, method=method, params=params, proof=proof, about=about)
        if not key:
            question = replace(question, key=self.answers.unused_key(question.digest))
        elif not KEY.fullmatch(key):
            raise ValueError(f"{key[:64]!r} cannot be the key of a question")
        return self.answers.settle(question, self.version, read)


class MCPRequest(HttpRequest):
    """The Django request of an MCP call, which hooks get: ``user`` is the token's user, ``mcp`` the MCP context.

    It carries no token and no cookie. Its session and messages are made only when a hook reads them, and never stored.
    """

    mcp: MCPContext
    connection_scheme: str = "http"
    # The fields of the admin's page by exposure and row, while the request shows one: None for no page.
    page_fields: dict[Any, Any] | None = None

    def _get_scheme(self) -> str:
        return self.connection_scheme

    def go_to(self, exposure: Any, page: "PageName", pk: Any = None, *, always: bool = False) -> None:
        """Move the request to the admin page of a model, or of the row with this key, if hooks of the admin could read
        it, or ``always``.

        Nothing changes where the URLconf has no such page. The endpoint's URL parameters, such as a tenant, stay in
        ``resolver_match.kwargs``.
        """
        if always or exposure.options.asks_where:
            # Imported here, because few processes that import this module answer calls.
            from .admin_page import move_to

            move_to(self, exposure, page, pk)

    @property
    def is_at_page(self) -> bool:
        """Whether the request has been moved to an admin page already."""
        return hasattr(self.resolver_match, "mcp_given")

    def admin_path(self, exposure: Any, pk: Any) -> str | None:
        """Return the path of the admin page of the row with this key, None where the URLconf has no such page."""
        from .admin_page import path_of

        return path_of(self, exposure, pk)

    # Imported when they are read, because few calls read them, and few processes that import this module answer calls.
    @cached_property
    def session(self) -> "SessionBase":  # type: ignore[override]
        from .memory_storage import MemorySession

        return MemorySession()

    @cached_property
    def _messages(self) -> "BaseStorage":
        from .memory_storage import MemoryMessages

        return MemoryMessages(self)

    def forget_session(self) -> None:
        """Forget what a call has left in its session and messages: the next call of the same request has its own."""
        state = vars(self)
        state.pop("session", None)
        state.pop("_messages", None)


# Headers that are never given to hooks: cookies grant nothing here. (The token is removed after authentication.)
DROPPED = frozenset({"cookie", "cookie2"})
# Attributes from Django or its middleware that grant authority or belong to the original request only.
WITHHELD = frozenset({"user", "auser", "session", "_cached_user", "_acached_user", "_messages", "csrf_processing_done"})
# Attributes that ASGIRequest adds to HttpRequest.
ASGI_ATTRIBUTES = frozenset({"scope", "environ", "script_name", "headers", "encoding", "urlconf"})


# An int, because CPython first tries the operand of ``in bytes`` as an int, and raises and clears an exception if not.
UNDERSCORE = ord("_")
# Maximum characters of a header's name that is cached.
USUAL_NAME = 64


class EmptyRequest(MCPRequest):
    """An MCP request whose query, form and files are empty, and made only when a hook reads them.

    Like Django's own subclasses of ``HttpRequest``, it sets the attributes itself.
    """

    def __init__(self) -> None:
        self.COOKIES = {}
        self.resolver_match = None
        self.content_type = None
        self.content_params = None

    @cached_property
    def GET(self) -> QueryDict:  # type: ignore[override]
        return QueryDict("")

    @cached_property
    def POST(self) -> QueryDict:  # type: ignore[override]
        return QueryDict(mutable=True)

    @cached_property
    def FILES(self) -> MultiValueDict[str, Any]:  # type: ignore[override]
        return MultiValueDict()


def headers_of(scope: Mapping[str, Any]) -> RequestHeaders:
    """Return the headers from which an ``MCPRequest`` is built, by lower-case name, each with all values in ``scope``.

    Names with an underscore are dropped: WSGI and CGI cannot tell them from names with a dash, and some servers pass
    them on (see Django's security release for CVE-2015-0219).
    """
    found = RequestHeaders()
    for name, value in scope["headers"]:
        if UNDERSCORE not in name:
            lower = _lower(name) if len(name) <= USUAL_NAME else name.decode("latin1").lower()
            text = value.decode("latin1").strip()
            if lower in found:
                found[lower].append(text)
            else:
                found[lower] = [text]
    return found


# Cached, because clients send the same few names with every request.
@lru_cache(maxsize=512)
def _lower(name: bytes) -> str:
    return name.decode("latin1").lower()


@lru_cache(maxsize=512)
def _meta_key(name: str) -> str:
    key = name.upper().replace("-", "_")
    if key in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        return key
    return f"HTTP_{key}"


def split_path(scope: Mapping[str, Any]) -> tuple[str, str]:
    """Split the path of an MCP request into the script prefix, "" at the root, and the rest, which the URLconf matches.

    As in Django's own requests, ``FORCE_SCRIPT_NAME`` overrides the server's prefix. A proxy may or may not have
    removed the prefix from the path.
    """
    prefix = (django_settings.FORCE_SCRIPT_NAME or scope.get("root_path") or "").rstrip("/")
    path: str = scope["path"]
    if path == prefix or path.startswith(f"{prefix}/"):
        path = path[len(prefix) :]
    return prefix, path or "/"


def build_request(scope: Mapping[str, Any], headers: Mapping[str, list[str]], site: Any) -> MCPRequest:
    """Build the MCP request of one call from an ASGI scope; ``user`` and the rest of ``mcp`` follow later."""
    request = EmptyRequest()
    request.method = scope["method"]
    prefix, request.path_info = split_path(scope)
    request.path = prefix + request.path_info
    client = scope.get("client") or ("", 0)
    server = scope.get("server") or ("unknown", 0)
    request.META = meta = {
        "REQUEST_METHOD": scope["method"],
        "PATH_INFO": request.path_info,
        "SCRIPT_NAME": prefix,
        "QUERY_STRING": "",
        "REMOTE_ADDR": client[0],
        "REMOTE_HOST": client[0],
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1] or 0),
        "SERVER_PROTOCOL": f"HTTP/{scope.get('http_version', '1.1')}",
    }
    if client[1]:
        meta["REMOTE_PORT"] = str(client[1])
    mirrored = {}
    for name, values in headers.items():
        if name not in DROPPED:
            key = _meta_key(name) if len(name) <= USUAL_NAME else _meta_key.__wrapped__(name)
            meta[key] = values[0] if len(values) == 1 else ",".join(values)
        if name.startswith(ParamHeader.PREFIX):
            mirrored[name] = values
    request.connection_scheme = scope.get("scheme", "http")
    request.mcp = MCPContext(site=site, param_headers=mirrored)
    return request


def read_scope(scope: Mapping[str, Any], site: Any) -> tuple[MCPRequest, RequestHeaders]:
    """Build the ``MCPRequest`` that hooks get, without cookies, and return it with all headers of the ASGI scope."""
    headers = headers_of(scope)
    return build_request(scope, headers, site), headers


def local_request(site: Any) -> MCPRequest:
    """Build an ``MCPRequest`` that came over no network, as if sent to the project's own URL, without a user."""
    base = urlsplit(settings.BASE_URL or "http://localhost")
    scheme = base.scheme or "http"
    host = base.hostname or "localhost"
    port = base.port or (443 if scheme == "https" else 80)
    scope = {"type": "http", "method": "POST", "path": "/", "root_path": "", "scheme": scheme, "server": (host, port)}
    request = build_request(scope, {}, site)
    request.META["HTTP_HOST"] = base.netloc or host
    request.mcp.resource = MCPContext.LOCAL
    request.mcp.param_headers = None
    return request


def middleware_attributes(request: HttpRequest) -> Mapping[str, Any]:
    """Return what the MCP request takes over from a Django request: attributes that the project's middleware added."""
    own = vars(HttpRequest()).keys() | WITHHELD
    return {
        name: value
        for name, value in vars(request).items()
        if name not in own and not name.startswith("_") and name not in ASGI_ATTRIBUTES
    }


def scope_from_wsgi(original: HttpRequest) -> dict[str, Any]:
    """For an ``MCPRequest`` under WSGI, turn Django's own request into the ASGI scope that it is built from."""
    found = {key[5:]: str(value) for key, value in original.META.items() if key.startswith("HTTP_")}
    found |= {key: original.META[key] for key in ("CONTENT_TYPE", "CONTENT_LENGTH") if original.META.get(key)}
    return {
        "type": "http",
        "method": original.method or "",
        "path": original.path,
        "root_path": original.META.get("SCRIPT_NAME", ""),
        "scheme": original.scheme,
        "http_version": original.META.get("SERVER_PROTOCOL", "HTTP/1.1").removeprefix("HTTP/"),
        "query_string": original.META.get("QUERY_STRING", "").encode("latin1", "replace"),
        "client": (original.META.get("REMOTE_ADDR", ""), 0),
        "server": (original.META.get("SERVER_NAME", ""), int(original.META.get("SERVER_PORT") or 0)),
        "headers": [
            (key.replace("_", "-").lower().encode("latin1"), value.encode("latin1", "replace"))
            for key, value in found.items()
        ],
    }
