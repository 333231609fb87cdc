"""2026-07-28: every request complete in itself (basic, General fields; basic/transports/streamable-http)."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import mcp_types as types
from mcp_types.methods import CACHEABLE_METHODS

from .eras import Call, Era, Headers, progress_token, validate
from .errors import HeaderMismatch, InvalidParams, ProtocolError, UnsupportedVersion
from .headers import check_mirrored
from .messages import Message
from .versions import MODERN, SUPPORTED

__all__ = ["VERSION_HEADER", "VERSION_KEY", "ModernEra"]

VERSION_HEADER: Final = "mcp-protocol-version"
VERSION_KEY: Final = types.PROTOCOL_VERSION_META_KEY
CAPABILITIES_KEY: Final = types.CLIENT_CAPABILITIES_META_KEY
CLIENT_KEY: Final = types.CLIENT_INFO_META_KEY
LOG_LEVEL_KEY: Final = types.LOG_LEVEL_META_KEY
SERVER_KEY: Final = types.SERVER_INFO_META_KEY
# Methods whose result may be kept by the client and differs by caller, so that no shared cache may hold it.
CACHE_SCOPE: Final = "private"


class ModernEra(Era):
    """The era without a handshake."""

    modern: ClassVar[bool] = True
    disconnect_cancels: ClassVar[bool] = True

    def read(self, message: Message, headers: Headers) -> Call:
        """Climb the ladder: ``_meta``, version header, version, mirrored headers, method, parameters."""
        if message.id is None:
            return self._read_notification(message, headers)
        meta = self._meta(message)
        version: str = meta[VERSION_KEY]
        if headers.get(VERSION_HEADER) != [version]:
            raise HeaderMismatch("Header mismatch: MCP-Protocol-Version must be given once and equal _meta")
        self._check_version(version)
        check_mirrored(message.method, message.params, headers)
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
        )

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
        """Only requests need ``_meta`` and mirrored headers; wherever a notification names its version, it is one."""
        meta = message.params.get("_meta")
        named = list(headers.get(VERSION_HEADER, []))
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
        if version not in MODERN:
            # A version of the other era is supported, but not in this form.
            raise UnsupportedVersion(version[:64], MODERN if version in SUPPORTED else SUPPORTED)

    def shape(self, call: Call, result: Mapping[str, Any], *, server: Mapping[str, Any], ttl_ms: int) -> dict[str, Any]:
        """Add ``resultType``, the server's identity and, where the method has them, the caching hints."""
        wire = {"resultType": "complete", **result}
        wire["_meta"] = {**result.get("_meta", {}), SERVER_KEY: server}
        # An answer that asks for input first is not one to keep.
        if call.method in CACHEABLE_METHODS and wire["resultType"] == "complete":
            wire.setdefault("ttlMs", ttl_ms)
            wire.setdefault("cacheScope", CACHE_SCOPE)
        return wire

    def status(self, error: ProtocolError) -> int:
        """Return the status that the error's class names."""
        return error.status
