"""``create_upload``: a URL for a file, which the call that writes a record then names by its handle."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from django.db.models import FileField

from ..conf import settings
from ..context.request import MCPRequest
from ..context.tickets import Ticket
from ..context.tool_results import ToolResult
from ..emulation.uploads import Upload
from ..orm.access import access_of
from ..orm.tool_arguments import Arguments
from ..scopes import Scope
from .base import Tool

SEND: Final = (
    "Send the bytes, as in: curl -T manual.pdf '<url>'. Then give the field of a record the value "
    '{"name": "manual.pdf", "upload": "<upload>"}.'
)


class CreateUpload(Tool):
    """Give a URL to send a file to; offered if there is a storage for uploads and the caller may write a file."""

    # Purpose of the signed tickets in upload URLs, which is also a part of these URLs.
    PURPOSE: ClassVar = "uploads"

    name = "create_upload"
    title = "Create upload"
    description = "A URL to PUT a file to, for values of a record."
    destructive = False
    scopes = frozenset({Scope.WRITE})

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether ``create_record`` or ``update_record`` could take a file from the caller."""
        if settings.READ_ONLY or Upload.storage() is None or not Ticket.suits(request):
            return False
        for model in access_of(request).models:
            owners = [model.exposure.model, *(inline.model for inline in model.exposure.model_admin.inlines)]
            takes_files = any(isinstance(field, FileField) for owner in owners for field in owner._meta.concrete_fields)
            if takes_files and (model.may("add") or model.may("change")):
                return True
        return False

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return the URL and the handle."""
        Arguments.read(arguments, self.input_schema["properties"])
        upload = Upload.new(request)
        result: Mapping[str, Any] = {
            "upload": upload.handle,
            "method": "PUT",
            "url": Ticket.url(request, self.PURPOSE, upload.name),
            "max_bytes": settings.MAX_FILE_BYTES,
            "expires_in": Ticket.MAX_AGE,
            "next": SEND,
        }
        return ToolResult(structured=result)
