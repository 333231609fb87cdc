"""One body and its headers to a call, an answer of the client, or a batch: the only place that decides the era."""

from dataclasses import dataclass
from typing import Any, Final

from .eras import Call, Era, Headers, SessionFacts
from .errors import InvalidRequest, ProtocolError
from .legacy import LegacyEra
from .messages import ClientResponse, Id, Message, decode, is_response, read_message, readable_id
from .modern import VERSION_HEADER, VERSION_KEY, ModernEra
from .versions import MODERN

LEGACY_ERA: Final = LegacyEra()
MODERN_ERA: Final = ModernEra()
# The one revision with batches (2025-03-26, basic, Batching; taken away again by 2025-06-18), and how long one may be.
BATCHES_IN: Final = "2025-03-26"
MAX_BATCH: Final = 50


class Rejected(Exception):
    """A message that asks for nothing: the error, the era to answer in, and the id if one could be read."""

    def __init__(self, error: ProtocolError, era: Era, identifier: Id | None) -> None:
        super().__init__(error.message)
        self.error, self.era, self.id = error, era, identifier


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages that came in one body, all calls or all responses, in order; a malformed call has its own error."""

    items: tuple[Call | ClientResponse | Rejected, ...]


def era_of(message: Message, headers: Headers) -> Era:
    """Return the era that the request declares: its ``_meta`` decides, and without one a modern version header.

    Never the method's name, nor ``Mcp-Method``, which clients of the legacy era send too.
    """
    meta = message.params.get("_meta")
    return MODERN_ERA if isinstance(meta, dict) and VERSION_KEY in meta else _era_of_headers(headers)


def _era_of_headers(headers: Headers) -> Era:
    values = headers.get(VERSION_HEADER) if headers else None
    return MODERN_ERA if values and any(value in MODERN for value in values) else LEGACY_ERA


def classify(body: bytes, headers: Headers, *, session: SessionFacts | None = None) -> Call | ClientResponse | Batch:
    """Return what the body of a POST, or one message of a transport without headers, asks for.

    ``headers`` is None on a transport that has none: then ``_meta`` alone decides the era, and no header is checked.
    ``session`` is the caller's session of the legacy era; without one, a response answers nothing.

    Raises:
        Rejected: the first rule that body and headers break.
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
        era = era_of(message, headers)
        return era.read(message, headers, session)
    except ProtocolError as error:
        raise Rejected(error, era or _era_of_headers(headers), readable_id(value)) from None


def _classify_batch(values: list[Any], headers: Headers, session: SessionFacts | None) -> Batch:
    try:
        answers = _check_batch(values, headers, session)
    except ProtocolError as error:
        raise Rejected(error, _era_of_headers(headers), None) from None
    read = _classify_one if answers else _read_member
    return Batch(tuple(read(value, headers, session) for value in values))


def _check_batch(values: list[Any], headers: Headers, session: SessionFacts | None) -> bool:
    """Check the batch as a whole; return whether it is one of responses."""
    if _era_of_headers(headers).modern or not _has_batches(headers, session) or any(map(_is_modern, values)):
        raise InvalidRequest("Invalid request: the body must be one JSON-RPC object")
    if not 0 < len(values) <= MAX_BATCH:
        raise InvalidRequest(f"Invalid request: a batch has 1 to {MAX_BATCH} members")
    answers = {isinstance(value, dict) and is_response(value) for value in values}
    if len(answers) > 1:
        raise InvalidRequest("Invalid request: a batch is either of responses or of requests and notifications")
    return answers.pop()


def _has_batches(headers: Headers, session: SessionFacts | None) -> bool:
    agreed = BATCHES_IN if session is None else session.version
    return agreed == LEGACY_ERA.version(headers, session) == BATCHES_IN


def _is_modern(value: Any) -> bool:
    params = value.get("params") if isinstance(value, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and VERSION_KEY in meta


def _read_member(value: Any, headers: Headers, session: SessionFacts | None) -> Call | ClientResponse | Rejected:
    try:
        member = _classify_one(value, headers, session)
    except Rejected as rejected:
        return rejected
    if isinstance(member, Call) and member.method == "initialize":
        # 2025-03-26, basic/lifecycle: nothing else can be asked before it is answered.
        return Rejected(InvalidRequest("Invalid request: initialize in a batch"), LEGACY_ERA, member.id)
    return member
