"""Requests for the yes of another person, as the calls that wait for it leave them."""

from typing import Any

from django.conf import settings
from django.contrib.auth.models import Permission
from django.test import override_settings

from mcp_django.models import ApprovalRequest, Change
from mcp_django.testing import MCPClient

# Whoever has it decides, in these tests.
PERMISSION = "testapp.publish_book"


def ask(user: Any, tool: str, *, rows: Any, permission: str = PERMISSION, **call: Any) -> ApprovalRequest:
    """Let a user make a call that waits, and keep it as a request for approval. ``rows`` are those that it touches."""
    values = {name: call.pop(name) for name in ("group", "reads", "reason", "rule_name") if name in call}
    with override_settings(MCP_DJANGO={**settings.MCP_DJANGO, "CONFIRM": "person"}):
        waiting = MCPClient(user).call(tool, **call)
    assert waiting.is_error is False, waiting.text
    assert waiting.structured["state"] == "waiting"
    keys: dict[str, list[str]] = {}
    for row in rows:
        keys.setdefault(row._meta.label_lower, []).append(str(row.pk))
    given = {"rule_name": "Books", "permission": permission, "rows": keys, **values}
    change = Change.objects.get(pk=waiting.structured["change"])
    return ApprovalRequest.objects.create(change=change, **given)


def allow(user: Any, *permissions: str) -> Any:
    """Give a user permissions such as `testapp.view_book`, and return them as read anew."""
    for name in permissions:
        app_label, codename = name.split(".")
        user.user_permissions.add(Permission.objects.get(content_type__app_label=app_label, codename=codename))
    return type(user).objects.get(pk=user.pk)
