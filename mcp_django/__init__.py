"""A Django project's models and admin over the Model Context Protocol. The names here are the public API."""

from .adminexposure import AdminExposure
from .decorators import action, prompt, register, register_viewset, resource, tool
from .events.signals import notify_changed, notify_list_changed
from .exceptions import AlreadyRegistered, Declined, NotRegistered, ToolError
from .exposures import ModelExposure
from .prompts import Message
from .protocol.content import Audio, EmbeddedResource, Image, ResourceLink, Text
from .resources.embedding import embed
from .schemas import Header, Param
from .schemas.asking import Ask, Roots, Sample
from .sites import MCPSite, site
from .tools.base import ToolResult

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
