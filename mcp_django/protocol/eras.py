"""The two eras of the protocol, handshake and modern: each reads messages as a neutral ``Call`` and shapes results.

An era reads a message into a neutral :class:`Call` and shapes the neutral result for the wire. Only :func:`classify`
decides to which era a message belongs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol

from .client_requests import check_responses
from .errors import (
    HeaderMismatch,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    ParseError,
    ProtocolError,
    UnsupportedVersion,
)
from .headers import RequestHeaders, check_mirrored
from .messages import (
    MAX_ID_CHARS,
    MAX_SAFE_INTEGER,
    ClientResponse,
    Id,
    Message,
    decode,
    is_response,
    read_message,
)
from .tasks import METHODS as TASK_METHODS
from .tasks import check_params
from .versions import Revisions

# All values of each header, by its lower-case name; None on transports without headers.
Headers = Mapping[str, list[str]] | None
# With more validation errors than this, no error is named: rendering them costs as much as finding them.
MAX_NAMED_MISTAKES = 100
# Trace context in ``_meta`` (2026-07-28, basic, General fields; W3C Trace Context and Baggage).
TRACE_KEYS: Final = ("traceparent", "tracestate", "baggage")
# W3C Trace Context, 3.2: neither identifier may be all zeros, and version ff is invalid.
_PARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
# Every participant passes on at least 512 and 8,192 characters (Trace Context, 3.3.1.5; W3C Baggage, 3.3.2).
_STATE: Final = re.compile(r"[\x20-\x7e]{1,512}")
_BAGGAGE: Final = re.compile(r"[\x20-\x7e]{1,8192}")
_NOTHING: Final[Mapping[str, str]] = {}


class SessionFacts(Protocol):
    """What the legacy era, one of the two eras, asks a session for: revision, client, capabilities and log level.

    They are the negotiated revision, the ``Implementation`` and ``ClientCapabilities`` that the client sent, and the
    lowest level of log messages that it asked for.
    """

    @property
    def version(self) -> str: ...

    @property
    def client(self) -> Mapping[str, Any]: ...

    @property
    def capabilities(self) -> Mapping[str, Any]: ...

    @property
    def log_level(self) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The neutral call that both eras of the protocol read a request or notification into.

    ``client`` and ``capabilities`` are what the client says about itself; ``log_level`` is the level that it asked for;
    ``trace`` is its trace context. ``input_responses``, by key, and ``request_state`` come with a call that the client
    repeats after the server asked for input. Do not trust any of them: all come from the client.
    """

    # Methods that the server may answer with a question (2026-07-28, basic/patterns/mrtr, Supported Requests).
    MAY_ASK: ClassVar = frozenset({"tools/call", "prompts/get", "resources/read"})

    era: "Era"
    version: str
    method: str
    params: Mapping[str, Any]
    id: Id | None = None
    client: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    progress_token: str | int | None = None
    log_level: str | None = None
    trace: Mapping[str, str] = field(default_factory=dict)
    input_responses: Mapping[str, Mapping[str, Any]] | None = None
    request_state: str | None = None

    def response(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON-RPC response to the call, with its result as the era shapes it."""
        return {"jsonrpc": "2.0", "id": self.id, "result": result}


def validate(method: str, version: str, params: Mapping[str, Any]) -> None:
    """Validate the parameters of a request, of the modern or the legacy era, against its revision's schema.

    The schemas are those of ``mcp-types``, a pydantic model for each message of each revision. Loading them takes a
    quarter of a second and 25 MB, so no module imports them at the top, and only processes that serve calls load them.

    Raises:
        MethodNotFound: the revision has no such method.
        InvalidParams: the parameters are not valid for the method; the message names the first wrong member.
    """
    from mcp_types.methods import validate_client_request
    from pydantic import ValidationError

    if method in TASK_METHODS and version in Revisions.MODERN:
        check_params(method, params)
        # There are no types for extensions. What is left to validate belongs to any request.
        method = "server/discover"
        params = {"_meta": params.get("_meta")}
    try:
        validate_client_request(method, version, params)
    except KeyError:
        raise MethodNotFound(f"Method not found: {method}") from None
    except ValidationError as error:
        if error.error_count() > MAX_NAMED_MISTAKES:
            raise InvalidParams("Invalid params: too many mistakes to name") from None
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "params"
        raise InvalidParams(f"Invalid params: {where[:200]}: {first['msg']}") from None


def progress_token(meta: Mapping[str, Any]) -> str | int | None:
    """Read the progress token of a request, which both eras have in ``_meta``. Raises ``InvalidParams`` if it is
    neither a short string nor an integer that JSON represents exactly."""
    token = meta.get("progressToken")
    if token is None or (isinstance(token, str) and len(token) <= MAX_ID_CHARS):
        return token
    if isinstance(token, int) and not isinstance(token, bool) and abs(token) <= MAX_SAFE_INTEGER:
        return token
    raise InvalidParams("Invalid params: _meta.progressToken must be a short string or an integer")


def trace_context(meta: Mapping[str, Any]) -> Mapping[str, str]:
    """Read what calls of both eras carry in ``_meta``: valid ``traceparent``, ``tracestate`` and ``baggage``.

    Malformed values are dropped, as Trace Context requires; ``tracestate`` is dropped together with ``traceparent``.
    """
    if "traceparent" not in meta and "baggage" not in meta:
        return _NOTHING
    parent, state, baggage = map(meta.get, TRACE_KEYS)
    found: dict[str, str] = {}
    if isinstance(parent, str) and _PARENT.fullmatch(parent):
        found["traceparent"] = parent
        if isinstance(state, str) and _STATE.fullmatch(state):
            found["tracestate"] = state
    if isinstance(baggage, str) and _BAGGAGE.fullmatch(baggage):
        found["baggage"] = baggage
    return found


# 2026-07-28: every request is self-contained (basic, General fields; basic/transports/streamable-http)

# Members of ``_meta`` that the revision itself defines (basic, Reserved keys).
VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_KEY: Final = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"
# Methods whose result has caching hints (server/utilities/caching).
CACHEABLE_METHODS: Final = frozenset(
    {"server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}
)
# The value of ``cacheScope``: results differ by caller, so clients may cache them but shared caches may not.
CACHE_SCOPE: Final = "private"
# Maximum characters of the request state of a call.
MAX_STATE_CHARS: Final = 64 * 1024


def client_meta(
    name: str, version: str = Revisions.LATEST, capabilities: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the ``_meta`` that the modern era, unlike the legacy era, needs in each request (basic, Reserved keys)."""
    return {VERSION_KEY: version, CAPABILITIES_KEY: capabilities or {}, CLIENT_KEY: {"name": name, "version": "1"}}


class ModernEra:
    """The modern era of the protocol, without a handshake.

    A client that closes the connection of a call cancels the call (a MUST).
    """

    modern: ClassVar[bool] = True
    disconnect_cancels: ClassVar[bool] = True

    def read(self, message: Message, headers: Headers, session: SessionFacts | None = None) -> Call:
        """Read a call of the modern era: ``_meta``, version header, version, mirrored headers, method, parameters.

        ``session`` is ignored, because sessions belong to the other era.
        """
        if message.id is None:
            return self._read_notification(message, headers)
        meta = self._meta(message)
        version: str = meta[VERSION_KEY]
        if headers is not None and headers.get(RequestHeaders.VERSION) != [version]:
            raise HeaderMismatch("Header mismatch: MCP-Protocol-Version must be given once and equal _meta")
        self._check_version(version)
        if headers is not None:
            check_mirrored(message.method, message.params, headers)
        responses, state = _input(message)
        validate(message.method, version, message.params)
        return Call(
            era=self,
            version=version,
            method=message.method,
            params=message.params,
            id=message.id,
            client=meta.get(CLIENT_KEY, {}),
            capabilities=meta[CAPABILITIES_KEY],
            progress_token=progress_token(meta),
            log_level=meta.get(LOG_LEVEL_KEY),
            trace=trace_context(meta),
            input_responses=responses,
            request_state=state,
        )

    def accept(self, response: ClientResponse, headers: Headers, session: SessionFacts | None = None) -> ClientResponse:
        """Refuse the response: clients of the modern era MUST NOT send responses."""
        raise InvalidRequest("Invalid request: this revision has no responses of clients")

    def _meta(self, message: Message) -> Mapping[str, Any]:
        meta = message.params.get("_meta")
        if not isinstance(meta, dict):
            raise InvalidParams("Invalid params: _meta is required")
        for key, kind, required in (
            (VERSION_KEY, str, True),
            (CAPABILITIES_KEY, dict, True),
            (CLIENT_KEY, dict, False),
            (LOG_LEVEL_KEY, str, False),
        ):
            if required and key not in meta:
                raise InvalidParams(f"Invalid params: _meta needs {key}")
            if key in meta and not isinstance(meta[key], kind):
                raise InvalidParams(f"Invalid params: _meta {key} has the wrong type")
        return meta

    def _read_notification(self, message: Message, headers: Headers) -> Call:
        """Read a notification of the modern era: ``_meta`` is optional, but it or the header must have the version."""
        meta = message.params.get("_meta")
        named: list[Any] = list(headers.get(RequestHeaders.VERSION, [])) if headers is not None else []
        if isinstance(meta, dict) and VERSION_KEY in meta:
            named.append(meta[VERSION_KEY])
        if not named or any(version != named[0] for version in named):
            raise HeaderMismatch("Header mismatch: MCP-Protocol-Version must be given and equal _meta")
        if not isinstance(named[0], str):
            raise InvalidParams(f"Invalid params: _meta {VERSION_KEY} has the wrong type")
        self._check_version(named[0])
        return Call(
            era=self, version=named[0], method=message.method, params=message.params, client={}, capabilities={}
        )

    def _check_version(self, version: str) -> None:
        if version not in Revisions.MODERN:
            # The server supports versions of the other era too, but not in this form.
            others = Revisions.MODERN if version in Revisions.SUPPORTED else Revisions.SUPPORTED
            raise UnsupportedVersion(version[:64], others)

    def shape(self, call: Call, result: Mapping[str, Any], *, server: Mapping[str, Any], ttl_ms: int) -> dict[str, Any]:
        """Shape a result for the modern era: add ``resultType``, the server's identity and the caching hints."""
        wire = {"resultType": "complete", **result}
        wire["_meta"] = {**result.get("_meta", {}), SERVER_KEY: server}
        # Do not let clients cache a result that asks for input, or one that depends on their input.
        if call.method in CACHEABLE_METHODS and wire["resultType"] == "complete":
            if call.input_responses is not None or call.request_state is not None:
                return {**wire, "ttlMs": 0, "cacheScope": CACHE_SCOPE}
            wire.setdefault("ttlMs", ttl_ms)
            wire.setdefault("cacheScope", CACHE_SCOPE)
        return wire

    def status(self, error: ProtocolError) -> int:
        """Return the HTTP status that the modern era, unlike the legacy era, gives an error: that of its class."""
        return error.status


def _input(message: Message) -> tuple[Mapping[str, Mapping[str, Any]] | None, str | None]:
    """Read ``inputResponses`` and ``requestState``, which only calls of the modern era have (basic/patterns/mrtr).

    These cheap checks come first; the schema then validates each response.
    """
    params = message.params
    if message.method not in Call.MAY_ASK or not ("inputResponses" in params or "requestState" in params):
        return None, None
    responses = params.get("inputResponses", {})
    state = params.get("requestState", "")
    check_responses(responses)
    if not isinstance(state, str) or len(state) > MAX_STATE_CHARS:
        raise InvalidParams("Invalid params: requestState must be the string that this server sent")
    return responses if "inputResponses" in params else None, state if "requestState" in params else None


# 2024-11-05 to 2025-11-25: ``initialize`` comes first, and later requests have the version in a header or not at all.
# Members of results that a revision does not know are dropped or replaced by ones that it knows.

AUDIO_SINCE: Final = "2025-03-26"
MODERN_MEMBERS: Final = frozenset({"resultType", "ttlMs", "cacheScope"})
# The first revision of each server capability, except for those that only the modern era has.
CAPABILITIES: Final[Mapping[str, str]] = {
    "experimental": "2024-11-05",
    "logging": "2024-11-05",
    "prompts": "2024-11-05",
    "resources": "2024-11-05",
    "tools": "2024-11-05",
    "completions": "2025-03-26",
}


class LegacyEra:
    """The legacy era of the protocol, with a handshake. Closing a connection cancels nothing (2025-11-25: SHOULD NOT).

    Without a session, a request names its version or counts as 2025-03-26, and its client is unknown.
    """

    modern: ClassVar[bool] = False
    disconnect_cancels: ClassVar[bool] = False

    def read(self, message: Message, headers: Headers, session: SessionFacts | None = None) -> Call:
        """Read a call of the legacy era: find the version, then validate the parameters.

        ``initialize`` is never refused for its version, and names its client itself.
        """
        begins = message.method == "initialize"
        if begins:
            version = Revisions.negotiate(message.params.get("protocolVersion"))
        else:
            version = self.version(headers, session)
        meta: Mapping[str, Any] = {}
        # Notifications are not validated.
        if message.id is not None:
            validate(message.method, version, message.params)
            meta = message.params.get("_meta") or {}
        client: Mapping[str, Any] = {}
        capabilities: Mapping[str, Any] = {}
        if begins and message.id is not None:
            client = message.params["clientInfo"]
            capabilities = message.params["capabilities"]
        elif session is not None and not begins:
            client = session.client
            capabilities = session.capabilities
        return Call(
            era=self,
            version=version,
            method=message.method,
            params=message.params,
            id=message.id,
            client=client,
            capabilities=capabilities,
            progress_token=progress_token(meta),
            log_level=session.log_level if session is not None and not begins else None,
            trace=trace_context(meta),
        )

    def version(self, headers: Headers, session: SessionFacts | None = None) -> str:
        """Return the revision of a legacy request: of its header, or else of its session, or else 2025-03-26.

        If the header and the session name different revisions, the header wins: it is what the client reads now.

        Raises:
            UnsupportedVersion: the header does not name a revision of this era, or is given twice.
        """
        values = headers.get(RequestHeaders.VERSION) if headers else None
        if not values:
            return session.version if session is not None else Revisions.ASSUMED
        if len(values) != 1 or values[0] not in Revisions.LEGACY:
            raise UnsupportedVersion(", ".join(values)[:64], Revisions.SUPPORTED)
        return values[0]

    def accept(self, response: ClientResponse, headers: Headers, session: SessionFacts | None = None) -> ClientResponse:
        """Return a client's response if its era accepts it: the legacy era takes responses only in a session."""
        self.version(headers, session)
        if session is None:
            raise InvalidRequest("Invalid request: a response to a request that was not made")
        return response

    def shape(self, call: Call, result: Mapping[str, Any], *, server: Mapping[str, Any], ttl_ms: int) -> dict[str, Any]:
        """Shape a result for the legacy era: downgrade it to the members that the revision knows."""
        wire = {name: value for name, value in result.items() if name not in MODERN_MEMBERS}
        version = call.version
        if call.method == "initialize":
            wire["capabilities"] = {
                name: value
                for name, value in wire["capabilities"].items()
                if name in CAPABILITIES and Revisions.is_at_least(version, CAPABILITIES[name])
            }
        elif version in Revisions.STRUCTURED:
            return wire
        elif call.method == "prompts/get":
            wire["messages"] = [{**item, "content": _block(item["content"], version)} for item in wire["messages"]]
        elif call.method == "tools/call":
            wire.pop("structuredContent", None)
            wire["content"] = [_block(block, version) for block in wire["content"]]
        return wire

    def status(self, error: ProtocolError) -> int:
        """Return the HTTP status of an error in the legacy era: 200 for errors of the method itself, otherwise 400."""
        if isinstance(error, (ParseError, InvalidRequest, UnsupportedVersion)):
            return 400
        return 200


def _block(block: Mapping[str, Any], version: str) -> Mapping[str, Any]:
    kind = block.get("type")
    if kind == "resource_link" and version not in Revisions.STRUCTURED:
        return {"type": "text", "text": f"{block['name']}: {block['uri']}"}
    if kind == "audio" and not Revisions.is_at_least(version, AUDIO_SINCE):
        return {"type": "text", "text": f"[audio, {block['mimeType']}]"}
    return block


Era = ModernEra | LegacyEra


# Classification of a body and its headers as a call, an answer of the client, or a batch

LEGACY_ERA: Final = LegacyEra()
MODERN_ERA: Final = ModernEra()
# The only revision with batches (2025-03-26, basic, Batching; removed by 2025-06-18), and their maximum length.
BATCHES_IN: Final = "2025-03-26"
MAX_BATCH: Final = 50


class Rejected(Exception):
    """A message that neither era accepts: the error, the era to answer in, and the id if one could be read."""

    def __init__(self, error: ProtocolError, era: Era, identifier: Id | None) -> None:
        super().__init__(error.message)
        self.error = error
        self.era = era
        self.id = identifier


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch, which the legacy era has and the modern era has not: messages in order, errors for malformed calls."""

    items: tuple[Call | ClientResponse | Rejected, ...]


def _is_modern(value: Any) -> bool:
    """Return whether a message is of the modern era: its ``_meta`` names a revision."""
    params = value.get("params") if isinstance(value, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and VERSION_KEY in meta


def _era_of_headers(headers: Headers) -> Era:
    values = headers.get(RequestHeaders.VERSION) if headers else None
    if values and not set(Revisions.MODERN).isdisjoint(values):
        return MODERN_ERA
    return LEGACY_ERA


def classify(body: bytes, headers: Headers, *, session: SessionFacts | None = None) -> Call | ClientResponse | Batch:
    """Decide the era of a POST's body, or of one message without headers, and return a call, an answer or a batch.

    ``headers`` is None on transports without headers: then only ``_meta`` decides the era, and no header is checked.
    ``session`` is the caller's session of the legacy era; without one, responses are refused.

    Raises:
        Rejected: body and headers break a rule; the error is that of the first one.
    """
    try:
        value = decode(body)
    except ProtocolError as error:
        raise Rejected(error, _era_of_headers(headers), None) from None
    if isinstance(value, list):
        return _classify_batch(value, headers, session)
    return _classify_one(value, headers, session)


def _classify_one(value: Any, headers: Headers, session: SessionFacts | None) -> Call | ClientResponse:
    era: Era | None = None
    try:
        message = read_message(value)
        if isinstance(message, ClientResponse):
            return _era_of_headers(headers).accept(message, headers, session)
        # ``_meta`` decides, or else a modern version header. The method's name and ``Mcp-Method`` do not, because
        # clients of the legacy era send them too.
        era = MODERN_ERA if _is_modern(value) else _era_of_headers(headers)
        return era.read(message, headers, session)
    except ProtocolError as error:
        raise Rejected(error, era or _era_of_headers(headers), Message.readable_id(value)) from None


def _classify_batch(values: list[Any], headers: Headers, session: SessionFacts | None) -> Batch:
    """Check a batch as a whole, and then classify its members; of the eras, only the legacy era has batches."""
    try:
        agreed = BATCHES_IN if session is None else session.version
        has_batches = (
            not _era_of_headers(headers).modern and agreed == LEGACY_ERA.version(headers, session) == BATCHES_IN
        )
        if not has_batches or any(map(_is_modern, values)):
            raise InvalidRequest("Invalid request: the body must be one JSON-RPC object")
        if not 0 < len(values) <= MAX_BATCH:
            raise InvalidRequest(f"Invalid request: a batch has 1 to {MAX_BATCH} members")
        answers = {isinstance(value, dict) and is_response(value) for value in values}
        if len(answers) > 1:
            raise InvalidRequest("Invalid request: a batch is either of responses or of requests and notifications")
    except ProtocolError as error:
        raise Rejected(error, _era_of_headers(headers), None) from None
    items: list[Call | ClientResponse | Rejected] = []
    for value in values:
        try:
            member: Call | ClientResponse | Rejected = _classify_one(value, headers, session)
        except Rejected as rejected:
            if answers == {True}:
                raise
            member = rejected
        if isinstance(member, Call) and member.method == "initialize":
            # 2025-03-26, basic/lifecycle: no other request may be sent before initialize is answered.
            member = Rejected(InvalidRequest("Invalid request: initialize in a batch"), LEGACY_ERA, member.id)
        items.append(member)
    return Batch(tuple(items))
