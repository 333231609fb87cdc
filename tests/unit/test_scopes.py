from typing import Any

import pytest

from mcp_django import scopes
from mcp_django.oauth.toolkit_settings import provider_settings
from mcp_django.scopes import Scope, default_scopes, expand, join


def test_every_scope_has_its_place_and_is_offered() -> None:
    named = {value for name, value in vars(scopes.Scope).items() if name.isupper() and name != "HIERARCHY"}
    assert named == set(Scope.HIERARCHY) == set(provider_settings()["SCOPES"])


@pytest.mark.parametrize(
    ("granted", "expanded"),
    [
        ([], set()),
        (["mcp:read"], {"mcp:read"}),
        (["mcp:write"], {"mcp:read", "mcp:write"}),
        (["mcp:admin"], {"mcp:read", "mcp:write", "mcp:admin"}),
        (["mcp:admin", "own"], {"mcp:read", "mcp:write", "mcp:admin", "own"}),
        (["MCP:ADMIN", "mcp:administrator"], {"MCP:ADMIN", "mcp:administrator"}),
    ],
)
def test_J179_a_scope_implies_the_weaker_ones(granted: list[str], expanded: set[str]) -> None:
    assert expand(granted) == expanded


def test_scopes_are_joined_in_one_order() -> None:
    assert join(["own", "mcp:admin", "mcp:read", "another", "own"]) == "mcp:read mcp:admin another own"


def test_clients_are_told_to_ask_for_what_the_site_does(settings: Any) -> None:
    assert default_scopes() == ("mcp:read", "mcp:write")
    settings.MCP_DJANGO = {"READ_ONLY": True}
    assert default_scopes() == ("mcp:read",)
