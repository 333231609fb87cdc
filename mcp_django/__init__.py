"""A Django project's models and admin over the Model Context Protocol. The names here are the public API."""

from .adminexposure import AdminExposure
from .decorators import action, prompt, register, resource, tool
from .exceptions import AlreadyRegistered, NotRegistered, ToolError
from .exposures import ModelExposure
from .prompts import Message
from .protocol.content import Audio, EmbeddedResource, Image, ResourceLink, Text
from .schemas import Header, Param
from .sites import MCPSite, site
from .tools.base import ToolResult

__all__ = [
    "AdminExposure",
    "AlreadyRegistered",
    "Audio",
    "EmbeddedResource",
    "Header",
    "Image",
    "MCPSite",
    "Message",
    "ModelExposure",
    "NotRegistered",
    "Param",
    "ResourceLink",
    "Text",
    "ToolError",
    "ToolResult",
    "action",
    "prompt",
    "register",
    "resource",
    "site",
    "tool",
]
