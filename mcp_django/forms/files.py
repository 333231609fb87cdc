"""Files that a client gives as values: in the call itself, or by the handle of what was sent to an upload URL.

The form's own field validates them as it does what a browser sends. The name is a name and never a path; the type is
guessed from it.
"""

import base64
import mimetypes
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import SimpleUploadedFile
from django.forms import Field

from ..conf import settings
from ..context.request import MCPRequest
from ..orm.wording import json_or_text
from .html import Pair, unwrapped
from .uploads import open_upload

BINARY: Final = "application/octet-stream"
FILE_WORDS: Final = 'write {"name", "base64"} or {"name", "text"}'
USAGE: Final = (
    'Give {"name": "manual.pdf", "base64": "..."} or {"name": "notes.txt", "text": "..."}; leave the field out to keep '
    "the file."
)
UNSENT: Final = "There is no such upload: nothing was sent to its URL, or it is over. Call create_upload again."
BOMB: Final = "The image has too many pixels."
# Devices of Windows, whatever follows a dot.
DEVICE: Final = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)", re.IGNORECASE)
SEPARATOR: Final = re.compile(r"[/\\]")
DATA_URL: Final = re.compile(r"data:[\w.+/;=-]{0,200},")


def file_entries(request: MCPRequest, field: Field, html_name: str, value: Any) -> list[Pair]:
    """Return what a browser posts when a person picks a file, or ticks the box that takes it away for null.

    Raises:
        ValidationError: the value is no file, is too long, or there is no such box.
    """
    if value is not None:
        return [(html_name, read_file_value(request, value))]
    if field.required:
        raise ValidationError(field.error_messages["required"], code="required")
    widget = unwrapped(field.widget)
    if not hasattr(widget, "clear_checkbox_name"):
        raise ValidationError("The file can be replaced, but not taken away.")
    return [(widget.clear_checkbox_name(html_name), "on")]


def read_file_value(request: MCPRequest, value: Any) -> SimpleUploadedFile:
    """Return the file that a client's JSON is.

    Raises:
        ValidationError: it is none, or longer than ``MAX_UPLOAD_BYTES``.
    """
    value = json_or_text(value)
    if not isinstance(value, dict) or len(value) != 2 or "name" not in value:
        raise ValidationError(USAGE)
    source = next(name for name in value if name != "name")
    if source not in _READERS:
        raise ValidationError(USAGE)
    name = safe_name(value["name"])
    data = _READERS[source](request, value[source])
    if len(data) > settings.MAX_UPLOAD_BYTES:
        raise _too_long(len(data))
    return SimpleUploadedFile(name, data, mimetypes.guess_type(name)[0] or BINARY)


def safe_name(value: Any) -> str:
    """Return the last part of a path without what could be read as more than a name.

    Raises:
        ValidationError: nothing is left of it.
    """
    last = SEPARATOR.split(value)[-1] if isinstance(value, str) else ""
    # A leading dot hides a file, or makes it a server's configuration.
    name = "".join(character for character in last if character.isprintable()).strip(" .")
    if not name:
        raise ValidationError("Give the name of the file, such as manual.pdf.")
    return f"_{name}" if DEVICE.match(name) else name


def is_bomb(error: ValidationError) -> bool:
    """Return whether the form refused an image because of its size: it says no more than that it is not valid."""
    return type(error.__cause__).__name__.startswith("DecompressionBomb")


def _too_long(size: int) -> ValidationError:
    return ValidationError(f"The file has {size} bytes, of at most {settings.MAX_UPLOAD_BYTES}.")


def _from_base64(request: MCPRequest, value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValidationError("base64 must be a text.")
    text = "".join(value[len(match[0]) :].split() if (match := DATA_URL.match(value)) else value.split())
    size = len(text) * 3 // 4 - 2
    if size > settings.MAX_UPLOAD_BYTES:
        raise _too_long(size)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValidationError("base64 is not valid: it has other characters, or is cut.") from None


def _from_text(request: MCPRequest, value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValidationError("text must be a text.")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise ValidationError("text has a character that is half of one.") from None


def _from_upload(request: MCPRequest, value: Any) -> bytes:
    stored = open_upload(request, value)
    if stored is None:
        raise ValidationError(UNSENT)
    with stored:
        data: bytes = stored.read(settings.MAX_UPLOAD_BYTES + 1)
    return data


_READERS: Final[Mapping[str, Callable[[MCPRequest, Any], bytes]]] = {
    "base64": _from_base64,
    "text": _from_text,
    "upload": _from_upload,
}
