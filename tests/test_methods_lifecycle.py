import pytest
from mcp_types.methods import validate_server_result

from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_superuser

pytestmark = pytest.mark.django_db
LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
HELLO = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@pytest.mark.parametrize("version", LEGACY)
def test_R3_initialize_answers_with_the_revision_asked_for(version):
    client = MCPClient(make_superuser(), version=version)
    result = client.request("initialize", protocolVersion=version, **HELLO)
    validate_server_result("initialize", version, result)
    assert result["protocolVersion"] == version


@pytest.mark.parametrize("version", ["1999-01-01", "2026-07-28", "2099-01-01", "", "latest"])
def test_R3_initialize_offers_another_revision_and_never_refuses(version):
    client = MCPClient(make_superuser(), version="2025-11-25")
    assert client.request("initialize", protocolVersion=version, **HELLO)["protocolVersion"] == "2025-11-25"


def test_discover_names_all_revisions_capabilities_and_the_server():
    result = MCPClient(make_superuser()).request("server/discover")
    validate_server_result("server/discover", "2026-07-28", result)
    assert result["supportedVersions"] == ["2026-07-28", *reversed(LEGACY)]
    assert "tools" in result["capabilities"]
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"] == {"name": "django", "version": "1"}
    assert result["cacheScope"] == "private"


def test_R17_nothing_is_announced_that_the_site_does_not_have():
    capabilities = MCPClient(make_superuser()).request("server/discover")["capabilities"]
    assert set(capabilities) <= {"tools", "resources", "prompts"}


@pytest.mark.parametrize("version", LEGACY)
def test_ping_is_answered_in_the_legacy_era(version):
    assert MCPClient(make_superuser(), version=version).request("ping") == {}


@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel", "resources/subscribe"])
def test_D58_methods_of_the_other_era_are_unknown_in_this_one(method):
    with pytest.raises(MCPError) as caught:
        MCPClient(make_superuser()).request(method)
    assert (caught.value.status, caught.value.code) == (404, -32601)


def test_D62_what_a_client_calls_itself_changes_nothing():
    client = MCPClient(make_superuser(), version="2025-11-25")
    result = client.request(
        "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "admin", "version": "root"}
    )
    assert result["serverInfo"]["name"] == "django"
