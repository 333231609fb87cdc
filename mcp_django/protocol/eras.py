"""The differences between the two eras, as one object for each: handlers never see them.

An era reads a message into a neutral :class:`Call` and shapes the neutral result for the wire.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Final, Protocol

from .errors import InvalidParams, MethodNotFound, ProtocolError
from .messages import MAX_ID_CHARS, MAX_SAFE_INTEGER, ClientResponse, Id, Message

# Lower-case name to all the values that the request has for it; None on a transport that has no headers.
Headers = Mapping[str, list[str]] | None
# More mistakes than this are not spelled out: naming them costs as much again as finding them.
MAX_NAMED_MISTAKES = 100
# Trace context in ``_meta`` (2026-07-28, basic, General fields; W3C Trace Context and Baggage).
TRACE_KEYS: Final = ("traceparent", "tracestate", "baggage")
# W3C Trace Context, 3.2: neither identifier is all zeros, and version ff is none.
_PARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
# 512 and 8,192 characters are what every participant passes on (Trace Context, 3.3.1.5; W3C Baggage, 3.3.2).
_STATE: Final = re.compile(r"[\x20-\x7e]{1,512}")
_BAGGAGE: Final = re.compile(r"[\x20-\x7e]{1,8192}")
_NOTHING: Final[Mapping[str, str]] = {}


class SessionFacts(Protocol):
    """What a session of the legacy era knows of its client since ``initialize``."""

    @property
    def version(self) -> str:
        """The revision agreed on."""

    @property
    def client(self) -> Mapping[str, Any]:
        """The ``Implementation`` object that the client sent."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The ``ClientCapabilities`` that it sent."""

    @property
    def log_level(self) -> str | None:
        """The least level of log messages that it asked for, if it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request or notification, whatever its era.

    ``client`` and ``capabilities`` are what the client says of itself; ``log_level`` is what it asked to be told;
    ``trace`` is its trace context. ``input_responses``, by key, and ``request_state`` come with a call that is made
    again after the server asked for input: whatever they hold is the client's word.
    """

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


class Era(ABC):
    """One era's rules for reading messages and shaping answers."""

    modern: ClassVar[bool]
    # Does closing the connection cancel the call? (2026-07-28: MUST; 2025-11-25: SHOULD NOT)
    disconnect_cancels: ClassVar[bool]

    @abstractmethod
    def read(self, message: Message, headers: Headers, session: SessionFacts | None = None) -> Call:
        """Return the call that the message, its HTTP headers and the caller's session make.

        Raises:
            ProtocolError: the first rule that they break.
        """

    @abstractmethod
    def accept(self, response: ClientResponse, headers: Headers, session: SessionFacts | None = None) -> ClientResponse:
        """Return the response if the client may send one at all.

        Raises:
            ProtocolError: it answers nothing that this server can have asked.
        """

    @abstractmethod
    def shape(self, call: Call, result: Mapping[str, Any], *, server: Mapping[str, Any], ttl_ms: int) -> dict[str, Any]:
        """Return the result for the wire; ``server`` is the ``Implementation`` object of this server."""

    @abstractmethod
    def status(self, error: ProtocolError) -> int:
        """Return the HTTP status that carries the error."""


def validate(method: str, version: str, params: Mapping[str, Any]) -> None:
    """Check the parameters of a request against the schema of its revision.

    Raises:
        MethodNotFound: the revision has no such method.
        InvalidParams: the parameters are not the method's; the message names the first member that is wrong.
    """
    wire = _wire()
    try:
        wire.validate_client_request(method, version, params)
    except KeyError:
        raise MethodNotFound(f"Method not found: {method}") from None
    except wire.ValidationError as error:
        if error.error_count() > MAX_NAMED_MISTAKES:
            raise InvalidParams("Invalid params: too many mistakes to name") from None
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "params"
        raise InvalidParams(f"Invalid params: {where[:200]}: {first['msg']}") from None


@cache
def _wire() -> Any:
    # Its models are what takes most of the time that a process needs to load the app.
    from . import wire

    return wire


def progress_token(meta: Mapping[str, Any]) -> str | int | None:
    """Return the progress token of a request's ``_meta``.

    Raises:
        InvalidParams: it is not a short string or an integer that JSON carries exactly.
    """
    token = meta.get("progressToken")
    if token is None or (isinstance(token, str) and len(token) <= MAX_ID_CHARS):
        return token
    if isinstance(token, int) and not isinstance(token, bool) and abs(token) <= MAX_SAFE_INTEGER:
        return token
    raise InvalidParams("Invalid params: _meta.progressToken must be a short string or an integer")


def trace_context(meta: Mapping[str, Any]) -> Mapping[str, str]:
    """Return those of ``traceparent``, ``tracestate`` and ``baggage`` in ``_meta`` that follow their formats.

    A malformed one is left out, as Trace Context says, and ``tracestate`` with the ``traceparent`` that it belongs to.
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
