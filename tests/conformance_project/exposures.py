"""The models of the project, to be read by anyone."""

import mcp_django as mcp

from .models import SHELVES, Note


class OpenExposure(mcp.ModelExposure):
    """An exposure whose rows anyone may read and nobody may write."""

    def has_permission(self, request, action, obj=None):
        return action == "view"


@mcp.register(Note)
class NoteExposure(OpenExposure):
    fields = ["title", "text"]


@mcp.register(*SHELVES)
class ShelfExposure(OpenExposure):
    fields = ["name"]
