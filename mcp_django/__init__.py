"""A Django project's models and admin over the Model Context Protocol. The names here are the public API.

Each is loaded when it is first used, so that ``import mcp_django.oauth`` in a settings module costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .adminexposure import AdminExposure
    from .decorators import action, prompt, register, register_viewset, resource, tool
    from .events.signals import notify_changed, notify_list_changed
    from .exceptions import AlreadyRegistered, Declined, NotRegistered, ToolError
    from .exposures import ModelExposure
    from .prompts import Message
    from .protocol.content import Audio, EmbeddedResource, Image, ResourceLink, Text
    from .resources.embedding import embed
    from .results import ToolResult
    from .schemas.annotations import Header, Param
    from .schemas.asking import Ask, Roots, Sample
    from .sites import MCPSite, site

__all__ = [
    "AdminExposure",
    "AlreadyRegistered",
    "Ask",
    "Audio",
    "Declined",
    "EmbeddedResource",
    "Header",
    "Image",
    "MCPSite",
    "Message",
    "ModelExposure",
    "NotRegistered",
    "Param",
    "ResourceLink",
    "Roots",
    "Sample",
    "Text",
    "ToolError",
    "ToolResult",
    "action",
    "embed",
    "notify_changed",
    "notify_list_changed",
    "prompt",
    "register",
    "register_viewset",
    "resource",
    "site",
    "tool",
]

# Where each name is, as type checkers read it above.
_MODULES = {
    "AdminExposure": "adminexposure",
    "AlreadyRegistered": "exceptions",
    "Ask": "schemas.asking",
    "Audio": "protocol.content",
    "Declined": "exceptions",
    "EmbeddedResource": "protocol.content",
    "Header": "schemas.annotations",
    "Image": "protocol.content",
    "MCPSite": "sites",
    "Message": "prompts",
    "ModelExposure": "exposures",
    "NotRegistered": "exceptions",
    "Param": "schemas.annotations",
    "ResourceLink": "protocol.content",
    "Roots": "schemas.asking",
    "Sample": "schemas.asking",
    "Text": "protocol.content",
    "ToolError": "exceptions",
    "ToolResult": "results",
    "action": "decorators",
    "embed": "resources.embedding",
    "notify_changed": "events.signals",
    "notify_list_changed": "events.signals",
    "prompt": "decorators",
    "register": "decorators",
    "register_viewset": "decorators",
    "resource": "decorators",
    "site": "sites",
    "tool": "decorators",
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return a public name, from the module that it is in."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f".{_MODULES[name]}", __name__), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
