"""One body and its headers to one :class:`~mcp_django.protocol.eras.Call`: the only place that decides the era."""

from typing import Final

from .eras import Call, Era, Headers
from .errors import ProtocolError
from .legacy import LegacyEra
from .messages import Id, Message, decode, read_message, readable_id
from .modern import VERSION_HEADER, VERSION_KEY, ModernEra
from .versions import MODERN

__all__ = ["LEGACY_ERA", "MODERN_ERA", "Rejected", "classify"]

LEGACY_ERA: Final[Era] = LegacyEra()
MODERN_ERA: Final[Era] = ModernEra()


class Rejected(Exception):
    """A message that is no call: the error, the era to answer in, and the id if one could be read."""

    def __init__(self, error: ProtocolError, era: Era, identifier: Id | None) -> None:
        super().__init__(error.message)
        self.error, self.era, self.id = error, era, identifier


def era_of(message: Message, headers: Headers) -> Era:
    """Return the era that the request declares: its ``_meta`` decides, and without one a modern version header.

    Never the method's name, nor ``Mcp-Method``, which clients of the legacy era send too.
    """
    meta = message.params.get("_meta")
    return MODERN_ERA if isinstance(meta, dict) and VERSION_KEY in meta else _era_of_headers(headers)


def _era_of_headers(headers: Headers) -> Era:
    return MODERN_ERA if any(value in MODERN for value in headers.get(VERSION_HEADER, [])) else LEGACY_ERA


def classify(body: bytes, headers: Headers) -> Call:
    """Return the call that the body of a POST makes.

    Raises:
        Rejected: the first rule that body and headers break.
    """
    era = _era_of_headers(headers)
    identifier: Id | None = None
    try:
        value = decode(body)
        identifier = readable_id(value)
        message = read_message(value)
        era = era_of(message, headers)
        return era.read(message, headers)
    except ProtocolError as error:
        raise Rejected(error, era, identifier) from None
