"""A Django project's models and admin over the Model Context Protocol. The names here are the public API.

Each is loaded when it is first used, so that ``import mcp_django.oauth`` in a settings module costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .context.tool_results import ToolResult
    from .decorators import action, approval, prompt, register, register_viewset, resource, task, tool
    from .emulation.admin_exposure import AdminExposure
    from .exceptions import AlreadyRegistered, Declined, NotRegistered, ToolError
    from .exposures.model_exposure import ModelExposure
    from .functions.asked_parameters import Ask, Roots, Sample
    from .protocol.content import Audio, EmbeddedResource, Image, ResourceLink, Text
    from .resources.function_resources import embed
    from .resources.prompts import Message
    from .schema.annotations import Header, Param
    from .sites import MCPSite, site
    from .subscriptions.model_signals import notify_changed, notify_list_changed

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
    "approval",
    "embed",
    "notify_changed",
    "notify_list_changed",
    "prompt",
    "register",
    "register_viewset",
    "resource",
    "site",
    "task",
    "tool",
]

# The modules of the public names, as in the imports for type checkers above.
_NAMES = {
    "context.tool_results": "ToolResult",
    "decorators": "action approval prompt register register_viewset resource task tool",
    "emulation.admin_exposure": "AdminExposure",
    "exceptions": "AlreadyRegistered Declined NotRegistered ToolError",
    "exposures.model_exposure": "ModelExposure",
    "functions.asked_parameters": "Ask Roots Sample",
    "resources.prompts": "Message",
    "protocol.content": "Audio EmbeddedResource Image ResourceLink Text",
    "resources.function_resources": "embed",
    "schema.annotations": "Header Param",
    "sites": "MCPSite site",
    "subscriptions.model_signals": "notify_changed notify_list_changed",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return a public name, from the module that it is in."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{_MODULES[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
