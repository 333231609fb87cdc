"""What the manifest demands of the opening of a conversation (`requirements/lifecycle.toml`)."""

import pytest

from mcp_django import site
from mcp_django.functions.declared_functions import Declared
from mcp_django.testing import MCPClient
from tests.factories import make_superuser

pytestmark = pytest.mark.django_db

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
HELLO = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def capabilities(version):
    client = MCPClient(make_superuser(), version=version)
    if version in LEGACY:
        return client.request("initialize", protocolVersion=version, **HELLO)["capabilities"]
    return client.request("server/discover")["capabilities"]


@pytest.mark.parametrize("version", LEGACY)
def test_a_client_that_lost_its_handshake_is_still_served(version):
    client = MCPClient(make_superuser(), version=version)
    assert "query_records" in [tool["name"] for tool in client.tools()]


@pytest.mark.parametrize("version", [*LEGACY, "2026-07-28"])
def test_resources_are_announced_in_each_revision(version):
    assert "resources" in capabilities(version)


@pytest.mark.parametrize("version", [*LEGACY, "2026-07-28"])
@pytest.mark.parametrize("registered", [True, False])
def test_prompts_are_announced_in_each_revision_while_there_are_any(version, registered):
    def greet(request) -> str:
        """Greet."""
        return "Greet me."

    before = site.prompts
    try:
        site.prompts = Declared()
        if registered:
            site.add_prompt(greet)
        assert ("prompts" in capabilities(version)) is registered
    finally:
        site.prompts = before
