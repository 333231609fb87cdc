"""What the manifest demands of resources (`requirements/resources.toml`)."""

import json
import re

import pytest

from mcp_django import site
from mcp_django.testing import MCPClient
from tests.factories import make_author, make_book, make_superuser, make_user

pytestmark = pytest.mark.django_db

# RFC 3986, appendix A: what a URI is made of, with its percent-encoding whole.
URI = re.compile(r"[a-z][a-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-F]{2})+")
FETCHED_BY_CLIENTS = ("http:", "https:", "file:", "data:")


def listed(client):
    """Every resource, and every page of the list."""
    found, params = [], {}
    while True:
        page = client.request("resources/list", **params)
        found += page["resources"]
        if "nextCursor" not in page:
            return found
        params = {"cursor": page["nextCursor"]}


def test_the_list_depends_on_the_authority_alone():
    viewer, root = make_user("viewer", "testapp.view_author"), make_superuser()
    first, second = MCPClient(viewer), MCPClient(viewer)
    before = listed(first)
    first.call("query_records", model="testapp.author")
    first.read("django://testapp/author")
    assert listed(first) == listed(second) == before
    assert len(listed(MCPClient(root))) > len(before)
    assert listed(MCPClient(viewer)) == before


def test_a_template_has_a_type_where_all_that_it_leads_to_have_it():
    client = MCPClient(make_superuser())
    book = make_book()
    templates = client.request("resources/templates/list")["resourceTemplates"]
    typed = {template["name"]: template["mimeType"] for template in templates if "mimeType" in template}
    read = {
        "record": f"django://testapp/book/{book.pk}",
        "records": "django://testapp/book?ordering=-title",
        "schema": "django://testapp/book/schema",
    }
    # Files have whatever type they have.
    assert typed.keys() == read.keys()
    for name, uri in read.items():
        assert {contents["mimeType"] for contents in client.read(uri)} == {typed[name]}


def test_uris_have_a_scheme_of_their_own_and_the_form_of_rfc_3986():
    for number in range(25):
        make_author(f"Zoë / {number} %2F?")
    client = MCPClient(make_superuser())
    uris = [resource["uri"] for resource in listed(client)]
    page = json.loads(client.read("django://testapp/author?search=Zo%C3%AB&ordering=-name")[0]["text"])
    uris += [page["next"], client.read(page["next"])[0]["uri"]]
    for uri in uris:
        assert URI.fullmatch(uri), uri
        assert not uri.startswith(FETCHED_BY_CLIENTS)
    for template in client.request("resources/templates/list")["resourceTemplates"]:
        assert not template["uriTemplate"].startswith(FETCHED_BY_CLIENTS)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
def test_what_fails_inside_is_an_internal_error(version):
    def broken(request) -> str:
        """Break."""
        raise RuntimeError("secret")

    site.add_resource("shop://broken", broken)
    try:
        response = MCPClient(make_superuser(), version=version).send("resources/read", {"uri": "shop://broken"})
    finally:
        site.remove_resource("shop://broken")
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (200, -32603)
    assert "secret" not in response.text
