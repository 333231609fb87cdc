"""Files that a client gives as values: in the call itself, or by the handle of a file sent to an upload URL.

The form's own field validates them as it validates a browser's uploads. The name of a file is never a path; its content
type is guessed from the name.
"""

import base64
import mimetypes
import re
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import SimpleUploadedFile
from django.forms import Field

from ..conf import settings
from ..context.request import MCPRequest
from ..orm.alternative_spellings import json_or_text
from .html_forms import Pair, unwrapped
from .uploads import open_upload

BINARY: Final = "application/octet-stream"
USAGE: Final = (
    'Give {"name": "manual.pdf", "base64": "..."} or {"name": "notes.txt", "text": "..."}; leave the field out to keep '
    "the file."
)
UNSENT: Final = "There is no such upload: nothing was sent to its URL, or it has ended. Call create_upload again."
BOMB: Final = "The image has too many pixels."
# Names of Windows devices, with any file extension.
DEVICE: Final = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)", re.IGNORECASE)
SEPARATOR: Final = re.compile(r"[/\\]")
DATA_URL: Final = re.compile(r"data:[\w.+/;=-]{0,200},")


def file_entries(request: MCPRequest, field: Field, html_name: str, value: Any) -> list[Pair]:
    """Return the entries of a browser where a person uploads a file, or ticks the box that removes the file."""
    if value is not None:
        return [(html_name, read_file_value(request, value))]
    if field.required:
        raise ValidationError(field.error_messages["required"], code="required")
    widget = unwrapped(field.widget)
    if not hasattr(widget, "clear_checkbox_name"):
        raise ValidationError("The file can be replaced, but not removed.")
    return [(widget.clear_checkbox_name(html_name), "on")]


def read_file_value(request: MCPRequest, value: Any) -> SimpleUploadedFile:
    """Return the file that a client's JSON value describes."""
    value = json_or_text(value)
    if not isinstance(value, dict) or len(value) != 2 or "name" not in value:
        raise ValidationError(USAGE)
    [(source, content)] = ((key, part) for key, part in value.items() if key != "name")
    if source not in ("base64", "text", "upload"):
        raise ValidationError(USAGE)
    name = safe_name(value["name"])
    if source == "upload":
        sent = open_upload(request, content)
        if sent is None:
            raise ValidationError(UNSENT)
        with sent:
            data: bytes = sent.read(settings.MAX_FILE_BYTES + 1)
    elif not isinstance(content, str):
        raise ValidationError(f"{source} must be a text.")
    elif source == "text":
        try:
            data = content.encode()
        except UnicodeEncodeError:
            raise ValidationError("text has half a character (a lone surrogate).") from None
    else:
        text = "".join((content[len(match[0]) :] if (match := DATA_URL.match(content)) else content).split())
        _check_size(len(text) * 3 // 4 - 2)
        try:
            data = base64.b64decode(text, validate=True)
        except ValueError:
            raise ValidationError("base64 is not valid: it has other characters, or is cut off.") from None
    _check_size(len(data))
    return SimpleUploadedFile(name, data, mimetypes.guess_type(name)[0] or BINARY)


def _check_size(size: int) -> None:
    if size > settings.MAX_FILE_BYTES:
        raise ValidationError(f"The file has {size} bytes; the limit is {settings.MAX_FILE_BYTES}.")


def safe_name(value: Any) -> str:
    """Return the name of an uploaded file: the last part of a path, without control characters."""
    last = SEPARATOR.split(value)[-1] if isinstance(value, str) else ""
    # A leading dot would hide the file, or make it a server's configuration file such as .htaccess.
    name = "".join(character for character in last if character.isprintable()).strip(" .")
    if not name:
        raise ValidationError("Give the name of the file, such as manual.pdf.")
    return f"_{name}" if DEVICE.match(name) else name


def is_bomb(error: ValidationError) -> bool:
    """Return whether an uploaded file was refused as an image with too many pixels."""
    return type(error.__cause__).__name__.startswith("DecompressionBomb")
