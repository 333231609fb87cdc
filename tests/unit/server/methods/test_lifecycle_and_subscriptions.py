import pytest
from django.contrib.auth.models import AnonymousUser
from django.test import override_settings
from mcp_types.methods import CACHEABLE_METHODS, validate_server_result

from mcp_django import MCPSite
from mcp_django import site as default_site
from mcp_django.server.methods.lifecycle_and_subscriptions import CACHEABLE, cache_ttl, capabilities
from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_superuser
from tests.task_calls import WaitingClient
from tests.tool_calls import request_of

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


@pytest.mark.parametrize(
    ("icon", "src"),
    [
        ("/static/icon.png", "http://testserver/static/icon.png"),
        ("https://cdn.example/i.svg", "https://cdn.example/i.svg"),
    ],
)
def test_the_icon_is_told_by_its_whole_url(settings, icon, src):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "SERVER": {"icon": icon}}
    hello = MCPClient(make_superuser(), version="2025-11-25").request(
        "initialize", protocolVersion="2025-11-25", **HELLO
    )
    validate_server_result("initialize", "2025-11-25", hello)
    assert hello["serverInfo"]["icons"] == [{"src": src}]
    found = MCPClient(make_superuser("other")).request("server/discover")
    validate_server_result("server/discover", "2026-07-28", found)
    assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["icons"] == [{"src": src}]


def test_description_and_website_are_told_where_the_settings_have_them(settings):
    told = {"SERVER": {"description": "Orders and products.", "website": "https://shop.example/help"}}
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, **told}
    expected = {"description": told["SERVER"]["description"], "websiteUrl": told["SERVER"]["website"]}
    for version in LEGACY:
        hello = MCPClient(make_superuser(f"v{version}"), version=version).request(
            "initialize", protocolVersion=version, **HELLO
        )
        validate_server_result("initialize", version, hello)
        assert expected.items() <= hello["serverInfo"].items()
    found = MCPClient(make_superuser("other")).request("server/discover")
    assert expected.items() <= found["_meta"]["io.modelcontextprotocol/serverInfo"].items()


def test_discover_names_all_revisions_capabilities_and_the_server():
    result = MCPClient(make_superuser()).request("server/discover")
    validate_server_result("server/discover", "2026-07-28", result)
    assert result["supportedVersions"] == ["2026-07-28", *reversed(LEGACY)]
    assert "tools" in result["capabilities"]
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"] == {"name": "django", "version": "1"}
    assert result["cacheScope"] == "private"


def capabilities_of(site, **options):
    return capabilities(request_of(AnonymousUser(), site, **options))


def test_R17_nothing_is_announced_that_the_site_does_not_have():
    site = MCPSite("own")
    assert set(capabilities_of(site)) == {"tools", "resources", "logging"}
    site.add_resource("x://fixed", lambda request: "", name="fixed")
    assert set(capabilities_of(site)) == {"tools", "resources", "logging"}
    site.add_resource("x://{word}", lambda request, word: "", name="template")
    assert set(capabilities_of(site)) == {"tools", "resources", "logging", "completions"}
    site.remove_resource("x://{word}")
    site.add_prompt(lambda request: "", name="prompt")
    assert set(capabilities_of(site)) == {"tools", "resources", "logging", "completions", "prompts"}
    assert "completions" in capabilities_of(default_site)


def test_R13_news_are_promised_to_a_client_that_can_be_told():
    site = MCPSite("own")
    site.add_prompt(lambda request: "", name="prompt")
    told = capabilities_of(site)
    assert told["tools"] == told["prompts"] == {"listChanged": True}
    assert told["resources"] == {"listChanged": True, "subscribe": True}


def test_R13_no_news_are_promised_where_there_are_none_or_no_way_to_tell_them():
    site = MCPSite("own")
    site.add_prompt(lambda request: "", name="prompt")
    with override_settings(MCP_DJANGO={"EVENTS": False}):
        silent = capabilities_of(site)
    assert silent == capabilities_of(site, can_stream=False)
    assert silent == {"tools": {}, "resources": {}, "prompts": {}, "completions": {}, "logging": {}}


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


def test_194_every_result_says_how_long_it_may_be_kept_and_that_it_is_private():
    times = {"tools": 1, "prompts": 2, "resources": 3, "templates": 4, "read": 5, "discover": 6}
    client = MCPClient(make_superuser())
    with override_settings(MCP_DJANGO={"BASE_URL": "http://testserver", "CACHE_TTL_MS": times}):
        for method, name in CACHEABLE.items():
            params = {"uri": "django://testapp/author"} if method == "resources/read" else {}
            result = client.request(method, **params)
            assert (result["ttlMs"], result["cacheScope"]) == (times[name], "private")


PROVIDER = {"issuer": "https://login.example", "jwks_uri": "https://login.example/jwks", "clients": ["claude"]}


@pytest.mark.parametrize(
    ("turned_on", "names"),
    [
        ({"SERVICE_ACCOUNTS": True}, ["oauth-client-credentials"]),
        ({"IDENTITY_PROVIDERS": [PROVIDER]}, ["enterprise-managed-authorization"]),
        (
            {"SERVICE_ACCOUNTS": True, "IDENTITY_PROVIDERS": [PROVIDER]},
            ["oauth-client-credentials", "enterprise-managed-authorization"],
        ),
    ],
)
def test_extensions_that_are_turned_on_are_told_to_who_knows_of_extensions(settings, turned_on, names):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, **turned_on}
    found = WaitingClient(make_superuser()).request("server/discover")
    validate_server_result("server/discover", "2026-07-28", found)
    assert found["capabilities"]["extensions"] == {f"io.modelcontextprotocol/{name}": {} for name in [*names, "tasks"]}
    for version in LEGACY:
        hello = MCPClient(make_superuser(f"v{version}"), version=version).request(
            "initialize", protocolVersion=version, **HELLO
        )
        validate_server_result("initialize", version, hello)
        assert "extensions" not in hello["capabilities"]


def test_no_extension_is_told_that_is_not_turned_on():
    found = WaitingClient(make_superuser()).request("server/discover")
    assert set(found["capabilities"]["extensions"]) == {"io.modelcontextprotocol/tasks"}


@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        (0, [0, 0, 0, 0, 0, 0]),
        (5000, [5000] * 6),
        ({}, [0, 0, 0, 0, 0, 0]),
        ({"tools": 1, "prompts": 2, "resources": 3, "templates": 4, "read": 5, "discover": 6}, [1, 2, 3, 4, 5, 6]),
    ],
    ids=str,
)
def test_194_each_list_may_be_kept_as_long_as_the_setting_says(configured, expected):
    methods = (
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "server/discover",
    )
    assert set(methods) == set(CACHEABLE) == CACHEABLE_METHODS
    with override_settings(MCP_DJANGO={"CACHE_TTL_MS": configured}):
        assert [cache_ttl(method) for method in methods] == expected


def test_lists_that_are_told_of_when_they_change_may_be_kept_for_a_minute_by_default():
    kept = {method for method in CACHEABLE if cache_ttl(method) == 60_000}
    assert kept == {"tools/list", "prompts/list", "resources/templates/list", "server/discover"}
    assert {cache_ttl(method) for method in CACHEABLE.keys() - kept} == {0}


def test_194_what_no_client_may_keep_has_no_time():
    with override_settings(MCP_DJANGO={"CACHE_TTL_MS": {"tools": 5}}):
        assert cache_ttl("tools/call") == 0
