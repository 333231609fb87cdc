"""Actions on picked rows: those of a ``ModelAdmin`` and the methods of an exposure."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..context import MCPRequest

if TYPE_CHECKING:
    from ..exposures import ModelExposure


class Action:
    """One action of one exposure."""

    def __init__(self, exposure: "ModelExposure", name: str) -> None:
        self.exposure = exposure
        self.name = name

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether the caller may run it."""
        return self.exposure.has_change_permission(request)


class FunctionAction(Action):
    """A method of the exposure marked with ``@mcp.action``."""


class AdminAction(Action):
    """An action of a ``ModelAdmin``."""

    def __init__(self, exposure: "ModelExposure", name: str, function: Callable[..., Any], description: str) -> None:
        super().__init__(exposure, name)
        self.function = function
        self.description = description
