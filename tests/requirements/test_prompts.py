"""What the manifest demands of prompts (`requirements/prompts.toml`)."""

import base64

import pytest

from mcp_django import Audio, EmbeddedResource, Image, site
from mcp_django.testing import MCPClient
from tests.factories import make_superuser, make_user

pytestmark = pytest.mark.django_db

BYTES = bytes(range(256))


@pytest.fixture
def prompts():
    """Make functions prompts of the default site while a test runs."""
    before = site.prompts
    yield site.add_prompt
    site.prompts = before


def test_the_list_depends_on_the_authority_alone(prompts):
    def review(request) -> str:
        """Review."""
        return "Review it."

    def reprice(request) -> str:
        """Change prices."""
        return "Change them."

    prompts(review)
    prompts(reprice, permissions=["testapp.change_book"])
    viewer, editor = make_user("viewer", "testapp.view_book"), make_user("editor", "testapp.change_book")

    def names(client):
        return [prompt["name"] for prompt in client.request("prompts/list")["prompts"]]

    first, second = MCPClient(viewer), MCPClient(viewer)
    assert names(first) == ["review"]
    first.request("prompts/get", name="review")
    assert names(first) == names(second) == ["review"]
    assert names(MCPClient(editor)) == ["review", "reprice"]


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
def test_pictures_sounds_and_resources_of_a_message_are_whole(version, prompts):
    def show(request):
        """Show it."""
        return [
            Image(BYTES, "image/webp"),
            Audio(BYTES, "audio/ogg"),
            EmbeddedResource("shop://terms", "Terms", "text/markdown"),
            EmbeddedResource("shop://logo", BYTES, "image/png"),
        ]

    prompts(show)
    messages = MCPClient(make_superuser(), version=version).request("prompts/get", name="show")["messages"]
    image, audio, text, blob = (message["content"] for message in messages)
    for block, kind, mime_type in ((image, "image", "image/webp"), (audio, "audio", "audio/ogg")):
        assert (block["type"], block["mimeType"]) == (kind, mime_type)
        assert base64.b64decode(block["data"], validate=True) == BYTES
    assert text["resource"] == {"uri": "shop://terms", "mimeType": "text/markdown", "text": "Terms"}
    assert (blob["resource"]["uri"], blob["resource"]["mimeType"]) == ("shop://logo", "image/png")
    assert base64.b64decode(blob["resource"]["blob"], validate=True) == BYTES


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
def test_what_fails_inside_is_an_internal_error(version, prompts):
    def broken(request) -> str:
        """Break."""
        raise RuntimeError("secret")

    prompts(broken)
    response = MCPClient(make_superuser(), version=version).send("prompts/get", {"name": "broken"})
    assert (response.status_code, response.json()["error"]["code"]) == (200, -32603)
    assert "secret" not in response.text
