"""``create_upload``: a URL for the bytes of a file that is too long for a call, or that the model cannot read."""

from collections.abc import Mapping
from typing import Any

from django.db.models import FileField

from ..conf import settings
from ..context.request import Exposure, MCPRequest
from ..context.results import ToolResult
from ..context.signing import MAX_AGE, can_link, ticket_url
from ..forms.uploads import name_of_upload, new_handle, upload_storage
from ..orm.access import visible_exposures
from ..orm.arguments import check_names
from ..scopes import WRITE
from .base import Tool

# The use of its tickets, and the part of the path.
UPLOADS = "uploads"
NEXT = (
    "Send the bytes, as in: curl -T manual.pdf '<url>'. Then give the field of a record the value "
    '{"name": "manual.pdf", "upload": "<upload>"}.'
)


class CreateUpload(Tool):
    """``create_upload``: there where the project has a storage for uploads, for whoever may write a file."""

    name = "create_upload"
    title = "Create upload"
    description = "A URL to PUT a file to, for values of a record."
    destructive = False
    scopes = frozenset({WRITE})

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether there is a file that the caller may write."""
        if settings.READ_ONLY or upload_storage() is None or not can_link(request):
            return False
        return any(_takes_files(request, exposure) for exposure in visible_exposures(request))

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return the URL and the handle."""
        check_names(arguments, self.input_schema["properties"])
        handle = new_handle()
        name = name_of_upload(request, handle)
        assert name is not None
        result: Mapping[str, Any] = {
            "upload": handle,
            "method": "PUT",
            "url": ticket_url(request, UPLOADS, name),
            "max_bytes": settings.MAX_UPLOAD_BYTES,
            "expires_in": MAX_AGE,
            "next": NEXT,
        }
        return ToolResult(structured=result)


def _takes_files(request: MCPRequest, exposure: Exposure) -> bool:
    models = [exposure.model, *(inline.model for inline in exposure.inline_admin.inlines)]
    if not any(isinstance(field, FileField) for model in models for field in model._meta.concrete_fields):
        return False
    return exposure.has_add_permission(request) or exposure.has_change_permission(request)
