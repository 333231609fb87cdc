"""Settings and limits of the package, changed while a test or a block of one runs."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings as django_settings
from django.test import override_settings

from mcp_django.conf import Settings
from mcp_django.conf.defaults import SETTINGS
from mcp_django.conf.value_kinds import Group


def merged(before: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Return ``MCP_DJANGO`` with changes; a group keeps the members that are not changed."""
    after = {**before, **changes}
    for name, value in changes.items():
        if isinstance(SETTINGS[name].kind, Group) and isinstance(value, dict) and isinstance(before.get(name), dict):
            after[name] = {**before[name], **value}
    return after


def configure(project: Any, **changes: Any) -> None:
    """Change keys of ``MCP_DJANGO`` in pytest's ``settings``."""
    project.MCP_DJANGO = merged(project.MCP_DJANGO, **changes)


class configured(override_settings):
    """A decorator and context that sets keys of ``MCP_DJANGO``, and limits that are constants, both by their names."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self.changes = {name: value for name, value in changes.items() if name in SETTINGS}
        self.limits = {name: value for name, value in changes.items() if name not in SETTINGS}
        self.originals: dict[str, Any] = {}

    def enable(self) -> None:
        """Make the changes."""
        self.options = {"MCP_DJANGO": merged(django_settings.MCP_DJANGO, **self.changes)}
        self.originals = {name: vars(Settings)[name] for name in self.limits}
        for name, value in self.limits.items():
            setattr(Settings, name, value)
        super().enable()

    def disable(self) -> None:
        """Take them back."""
        for name, value in self.originals.items():
            setattr(Settings, name, value)
        super().disable()
