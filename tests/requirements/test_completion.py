"""What the manifest demands of completion (`requirements/utilities.toml`)."""

from typing import Literal

import pytest
from django.test import override_settings

from mcp_django import site
from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_author, make_superuser, make_user
from tests.testapp.models import Author

pytestmark = pytest.mark.django_db

ALL = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
HELLO = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
MCP = {"BASE_URL": "http://testserver"}
TEMPLATE = "django://{app_label}/{model_name}/{pk}"


def paint(request, author: Author, colour: Literal["red", "dark red", "green"] = "red") -> str:
    """Paint."""
    return f"{author} in {colour}"


@pytest.fixture(autouse=True)
def prompt():
    before = site.prompts
    site.add_prompt(paint)
    yield
    site.prompts = before


def complete(client, name, value, ref=None):
    ref = ref or {"type": "ref/prompt", "name": "paint"}
    return client.request("completion/complete", ref=ref, argument={"name": name, "value": value})["completion"]


@pytest.mark.parametrize("version", ALL)
def test_completions_are_announced_where_a_revision_knows_them(version):
    client = MCPClient(make_superuser(), version=version)
    if version == ALL[-1]:
        found = client.request("server/discover")
    else:
        found = client.request("initialize", protocolVersion=version, **HELLO)
    assert ("completions" in found["capabilities"]) is (version > "2024-11-05")


@pytest.mark.parametrize("version", ALL)
def test_values_are_sorted_by_how_well_they_fit(version):
    client = MCPClient(make_superuser(), version=version)
    assert complete(client, "colour", "red")["values"] == ["red", "dark red"]
    assert complete(client, "colour", "RE")["values"] == ["red", "dark red", "green"]
    assert complete(client, "colour", "")["values"] == ["red", "dark red", "green"]


def test_rows_are_found_by_a_part_of_what_they_are_called():
    ada, _ = make_author("Ada Lovelace"), make_author("Grace Hopper")
    client = MCPClient(make_superuser())
    assert complete(client, "author", "lovel")["values"] == [str(ada.pk)]


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    "params",
    [
        {"ref": {"type": "ref/prompt", "name": "no_such"}, "argument": {"name": "colour", "value": ""}},
        {"ref": {"type": "ref/prompt", "name": "paint"}, "argument": {"name": "no_such", "value": ""}},
        {"ref": {"type": "ref/prompt", "name": "paint"}, "argument": {"name": "colour"}},
        {"ref": {"type": "ref/prompt", "name": "paint"}},
        {"ref": {"type": "ref/other", "name": "paint"}, "argument": {"name": "colour", "value": ""}},
        {"argument": {"name": "colour", "value": ""}},
        {"ref": {"type": "ref/prompt", "name": "paint"}, "argument": {"name": "colour", "value": 5}},
        {"ref": {"type": "ref/resource", "uri": "shop://{no}/such"}, "argument": {"name": "no", "value": ""}},
    ],
)
def test_what_cannot_be_completed_is_an_error_of_the_parameters(version, params):
    with pytest.raises(MCPError) as caught:
        MCPClient(make_superuser(), version=version).request("completion/complete", **params)
    assert caught.value.code == -32602


@pytest.mark.parametrize("value", ["%", "_", "'; DROP TABLE x; --", "\\", "x" * 5_000, "é", "\u202e"])
def test_what_was_typed_is_data_only(value):
    make_author("Ada")
    client = MCPClient(make_superuser())
    for name in ("author", "colour"):
        assert complete(client, name, value)["values"] == []


def test_what_fails_inside_is_an_internal_error():
    def broken(request, value, context):
        raise RuntimeError("secret")

    site.add_prompt(paint, name="broken", complete={"colour": broken})
    params = {"ref": {"type": "ref/prompt", "name": "broken"}, "argument": {"name": "colour", "value": ""}}
    response = MCPClient(make_superuser()).send("completion/complete", params)
    assert response.json()["error"]["code"] == -32603
    assert "secret" not in response.text


def test_values_are_of_rows_that_the_caller_may_view():
    author = make_author("Ada")
    assert complete(MCPClient(make_superuser()), "author", "Ada")["values"] == [str(author.pk)]
    other = MCPClient(make_user("other", "testapp.view_tag"))
    assert complete(other, "author", "Ada")["values"] == []
    assert complete(other, "author", str(author.pk))["values"] == []
    ref = {"type": "ref/resource", "uri": TEMPLATE}
    assert "author" not in complete(other, "model_name", "", ref)["values"]


def test_the_rate_is_limited():
    client = MCPClient(make_superuser())
    with override_settings(MCP_DJANGO=MCP | {"RATES": {"completions": "2/h"}}):
        for _ in range(2):
            assert complete(client, "colour", "r")["values"]
        with pytest.raises(MCPError) as caught:
            complete(client, "colour", "r")
    assert caught.value.code == -32603
    assert caught.value.data["retryAfter"] > 0
