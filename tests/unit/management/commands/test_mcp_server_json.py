import io
import json

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.test import override_settings

from mcp_django.management.commands.mcp_server_json import registry_entry

PUBLIC = {"BASE_URL": "https://shop.example", "SERVER": {"name": "shop"}}


def printed(**options) -> str:
    out = io.StringIO()
    call_command("mcp_server_json", stdout=out, **options)
    return out.getvalue()


def test_the_entry_is_printed_as_json() -> None:
    with override_settings(MCP_DJANGO=PUBLIC):
        entry = json.loads(printed(path="mcp"))
        assert json.loads(printed(path="/mcp/", name="com.example/shop"))["name"] == "com.example/shop"
    assert entry["name"] == "example.shop/shop"
    assert entry["remotes"][0]["url"] == "https://shop.example/mcp"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "nowhere"}, "There is no endpoint at /nowhere"),
        ({"path": "mcp", "name": "shop"}, "is not a name for the registry"),
    ],
)
def test_what_is_missing_is_said(options, said) -> None:
    with override_settings(MCP_DJANGO=PUBLIC), pytest.raises(CommandError, match=said):
        printed(**options)


def test_the_registry_wants_a_public_address() -> None:
    with override_settings(MCP_DJANGO={}), pytest.raises(CommandError, match="BASE_URL"):
        printed(path="mcp")


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "[::1]", "10.0.0.4", "shop.internal"])
def test_an_address_that_only_some_reach_is_refused(host: str) -> None:
    with override_settings(MCP_DJANGO={"BASE_URL": f"http://{host}"}), pytest.raises(CommandError, match="public one"):
        printed(path="mcp")


@pytest.mark.urls("tests.two_sites")
def test_one_of_several_endpoints_has_to_be_named() -> None:
    with override_settings(MCP_DJANGO=PUBLIC), pytest.raises(CommandError, match="--path"):
        printed()


def test_the_registry_gets_the_public_address_and_the_name_it_knows() -> None:
    with override_settings(MCP_DJANGO=PUBLIC):
        entry = registry_entry("/mcp", "com.example/shop")
    assert entry["name"] == "com.example/shop"
    assert entry["remotes"] == [{"type": "streamable-http", "url": "https://shop.example/mcp"}]
    assert entry["$schema"].endswith("/server.schema.json")
    with override_settings(MCP_DJANGO={}), pytest.raises(ImproperlyConfigured):
        registry_entry("/mcp")
