"""What the card says, against what its schema and that of the registry's entry ask for."""

import re

import pytest
from django.test import override_settings

from mcp_django.protocol.versions import Revisions
from mcp_django.transports.server_card import card

NAME = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")
SETTINGS = {
    "BASE_URL": "https://mcp.shop.example",
    "SERVER": {
        "name": "the shop",
        "title": "The shop",
        "version": "2.1.0",
        "description": "Orders and products.",
        "website": "https://shop.example/help",
        "icon": "/static/icon.png",
    },
}


def test_a_card_says_who_the_server_is_and_where() -> None:
    with override_settings(MCP_DJANGO=SETTINGS):
        assert card(None, "/mcp") == {
            "$schema": "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json",
            "name": "example.shop.mcp/the-shop",
            "title": "The shop",
            "description": "Orders and products.",
            "version": "2.1.0",
            "websiteUrl": "https://shop.example/help",
            "icons": [{"src": "https://mcp.shop.example/static/icon.png"}],
            "remotes": [
                {
                    "type": "streamable-http",
                    "url": "https://mcp.shop.example/mcp",
                    "supportedProtocolVersions": list(Revisions.SUPPORTED),
                }
            ],
        }


@pytest.mark.parametrize("base", ["http://127.0.0.1:8000", "http://[::1]:8000", "http://localhost:8000"])
@pytest.mark.parametrize("name", ["django", "Bücher & mehr", "///", "x" * 150])
def test_every_name_is_one_that_the_schemas_take(base: str, name: str) -> None:
    with override_settings(MCP_DJANGO={"BASE_URL": base, "SERVER": {"name": name}}):
        found = card(None, "/mcp")
    assert NAME.fullmatch(found["name"])
    assert 3 <= len(found["name"]) <= 200
    assert 1 <= len(found["title"]) <= 100
    assert 1 <= len(found["description"]) <= 100
