"""Content blocks of results: text, image, audio, embedded resource, resource link (server/tools, Tool Result).

Each class has ``to_wire()``, which returns the JSON object of the newest revision;
:class:`~mcp_django.protocol.eras.LegacyEra` converts blocks that an older revision does not know to text.
"""

import base64
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Text:
    """Content block with plain text."""

    text: str

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"type": "text", "text": self.text}


@dataclass(frozen=True, slots=True)
class Image:
    """Content block with an image: its bytes and its MIME type."""

    data: bytes
    mime_type: str = "image/png"

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object; the bytes are base64."""
        return {"type": "image", "data": base64.b64encode(self.data).decode("ascii"), "mimeType": self.mime_type}


@dataclass(frozen=True, slots=True)
class Audio:
    """Content block with audio: its bytes and its MIME type (since 2025-03-26)."""

    data: bytes
    mime_type: str = "audio/wav"

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object; the bytes are base64."""
        return {"type": "audio", "data": base64.b64encode(self.data).decode("ascii"), "mimeType": self.mime_type}


@dataclass(frozen=True, slots=True)
class EmbeddedResource:
    """Content block with an embedded resource: ``body`` is text (``str``) or a blob (``bytes``)."""

    uri: str
    body: str | bytes
    mime_type: str = "text/plain"

    def contents(self) -> dict[str, Any]:
        """Return the embedded resource of the content block as a resource contents object, as in ``resources/read``."""
        wire: dict[str, Any] = {"uri": self.uri, "mimeType": self.mime_type}
        if isinstance(self.body, str):
            wire["text"] = self.body
        else:
            wire["blob"] = base64.b64encode(self.body).decode("ascii")
        return wire

    def to_wire(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"type": "resource", "resource": self.contents()}


@dataclass(frozen=True, slots=True)
class ResourceLink:
    """Content block with the URI of a resource that the client may read (since 2025-06-18)."""

    uri: str
    name: str
    description: str = ""
    mime_type: str = ""
    meta: dict[str, Any] = field(default_factory=dict)

    def to_wire(self) -> dict[str, Any]:
        """Return the content block of a resource link as a JSON object; empty optional keys are left out."""
        wire: dict[str, Any] = {"type": "resource_link", "uri": self.uri, "name": self.name}
        if self.description:
            wire["description"] = self.description
        if self.mime_type:
            wire["mimeType"] = self.mime_type
        if self.meta:
            wire["_meta"] = self.meta
        return wire


Content = Text | Image | Audio | EmbeddedResource | ResourceLink
