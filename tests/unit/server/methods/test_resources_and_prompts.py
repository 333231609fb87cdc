import json

import pytest
from mcp_types.methods import validate_server_result

from mcp_django import site
from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_author, make_superuser, make_user
from tests.testapp.models import Author

pytestmark = pytest.mark.django_db
ALL = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize("method", ["resources/list", "resources/templates/list"])
def test_lists_validate_in_every_revision(method, version):
    result = MCPClient(make_superuser(), version=version).request(method)
    validate_server_result(method, version, result)


@pytest.mark.parametrize("version", ALL)
def test_a_row_is_read_in_every_revision(version):
    author = make_author("Ada")
    client = MCPClient(make_superuser(), version=version)
    result = client.request("resources/read", uri=f"django://testapp/author/{author.pk}")
    validate_server_result("resources/read", version, result)
    assert "Ada" in result["contents"][0]["text"]


def test_R15_the_list_holds_models_and_not_rows():
    for _ in range(30):
        make_author()
    client = MCPClient(make_user("viewer", "testapp.view_author"))
    uris = [item["uri"] for item in client.request("resources/list")["resources"]]
    assert "django://testapp/author" in uris
    assert len([uri for uri in uris if uri.count("/") > 2]) < 5


@pytest.mark.parametrize(("version", "code"), [("2025-11-25", -32002), ("2026-07-28", -32602)])
def test_missing_forbidden_and_foreign_uris_get_one_answer(version, code):
    author = make_author()
    client = MCPClient(make_user("viewer", "testapp.view_tag"), version=version)
    uris = [
        f"django://testapp/author/{author.pk}",
        "django://testapp/author/999999",
        "django://testapp/nosuch/1",
        "django://auth/user/1",
        "file:///etc/passwd",
        "http://127.0.0.1/",
        "data:,x",
    ]
    for uri in uris:
        error = client.send("resources/read", {"uri": uri}).json()["error"]
        assert error == {"code": code, "message": "Resource not found", "data": {"uri": uri}}


def test_a_function_is_a_resource_while_it_is_registered():
    def policy(request) -> str:
        """What may be returned."""
        return "Everything."

    site.add_resource("shop://policy", policy)
    try:
        client = MCPClient(make_superuser())
        assert client.request("resources/list")["resources"][0]["uri"] == "shop://policy"
        assert client.read("shop://policy")[0]["text"] == "Everything."
    finally:
        site.remove_resource("shop://policy")


def test_every_row_is_reached_by_following_pages_from_the_first():
    for number in range(47):
        make_author(f"Author {number:02}")
    client = MCPClient(make_user("viewer", "testapp.view_author"))
    seen, uri = [], "django://testapp/author"
    while uri:
        page = json.loads(client.read(uri)[0]["text"])
        seen += [row[page["columns"].index("name")] for row in page["rows"]]
        uri = page.get("next")
    assert seen == [f"Author {number:02}" for number in range(47)]


def test_reading_needs_the_scope():
    with pytest.raises(MCPError) as caught:
        MCPClient(make_superuser(), scopes=[]).read("django://testapp/author")
    assert caught.value.status == 403


def test_194_what_is_read_says_how_long_it_may_be_kept_and_by_whom(monkeypatch):
    def policy(request) -> str:
        """What may be returned."""
        return "Everything."

    monkeypatch.setattr(site.exposures[Author], "cache_ttl_ms", 5000)
    site.add_resource("shop://policy", policy, ttl_ms=60_000, public=True)
    try:
        client = MCPClient(make_superuser())
        shared = client.request("resources/read", uri="shop://policy")
        own = client.request("resources/read", uri=f"django://testapp/author/{make_author().pk}")
        older = MCPClient(make_superuser("older"), version="2025-11-25").request("resources/read", uri="shop://policy")
    finally:
        site.remove_resource("shop://policy")
    assert (shared["ttlMs"], shared["cacheScope"]) == (60_000, "public")
    assert (own["ttlMs"], own["cacheScope"]) == (5000, "private")
    assert set(older) == {"contents"}
