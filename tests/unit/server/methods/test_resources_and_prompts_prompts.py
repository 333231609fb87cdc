import json

import pytest
from mcp_types.methods import validate_server_result

from mcp_django import Audio, EmbeddedResource, Image, Message, ResourceLink, Text, site
from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author

pytestmark = pytest.mark.django_db
ALL = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]


@pytest.fixture(autouse=True)
def prompt():
    def introduce(request, author: Author) -> str:
        """Introduce an author."""
        return f"Introduce {author.name}."

    site.add_prompt(introduce)
    yield
    site.remove_prompt("introduce")


@pytest.mark.parametrize("version", ALL)
def test_prompts_are_listed_and_got_in_every_revision(version):
    author = make_author("Ada")
    client = MCPClient(make_superuser(), version=version)
    listed = client.request("prompts/list")
    validate_server_result("prompts/list", version, listed)
    assert listed["prompts"][0]["name"] == "introduce"
    got = client.request("prompts/get", name="introduce", arguments={"author": str(author.pk)})
    validate_server_result("prompts/get", version, got)
    assert got["messages"][0]["content"]["text"] == "Introduce Ada."


@pytest.fixture
def portrait():
    def portrait(request, author: Author):
        """Everything on an author."""
        return [
            "Text",
            Text("Block"),
            Image(b"image"),
            Audio(b"audio"),
            EmbeddedResource("shop://policy", "Everything."),
            ResourceLink(f"django://testapp/author/{author.pk}", "author"),
            author,
            Message("assistant", "Answer"),
            Message("assistant", author),
        ]

    site.add_prompt(portrait)
    yield
    site.remove_prompt("portrait")


@pytest.mark.parametrize("version", ALL)
def test_every_kind_of_content_is_valid_in_every_revision(version, portrait):
    author = make_author("Ada", secret_token="hidden value")
    client = MCPClient(make_superuser(), version=version)
    got = client.request("prompts/get", name="portrait", arguments={"author": str(author.pk)})
    validate_server_result("prompts/get", version, got)
    assert [message["role"] for message in got["messages"]] == ["user"] * 7 + ["assistant"] * 2
    for message in (got["messages"][6], got["messages"][8]):
        embedded = message["content"]["resource"]
        assert embedded["uri"] == f"django://testapp/author/{author.pk}"
        assert json.loads(embedded["text"])["label"] == "Ada"
    assert "hidden value" not in json.dumps(got)


def test_125_a_row_among_the_arguments_is_one_that_the_caller_may_view(portrait):
    hidden = make_author()
    client = MCPClient(make_user("viewer", "testapp.view_book"))
    errors = []
    for pk in (hidden.pk, 999999):
        response = client.send("prompts/get", {"name": "portrait", "arguments": {"author": str(pk)}})
        errors.append(response.json()["error"]["message"].replace(str(pk), "PK"))
    assert errors[0] == errors[1]
    assert 'no author with pk "PK"' in errors[0]


def test_125_a_row_that_a_prompt_returns_is_not_shown_to_who_may_not_view_it():
    def leak(request):
        """Return a row whoever asks."""
        return hidden

    hidden = make_book("Hidden", owner=make_user("other"))
    site.add_prompt(leak)
    try:
        client = MCPClient(make_user("viewer", "testapp.view_book"))
        error = client.send("prompts/get", {"name": "leak"}).json()["error"]
    finally:
        site.remove_prompt("leak")
    assert error == {"code": -32602, "message": "Not found"}


@pytest.mark.parametrize("arguments", [{}, {"author": "999"}, {"author": "x"}, {"author": "1", "other": "1"}])
def test_a_wrong_argument_is_an_error_for_the_client(arguments):
    with pytest.raises(MCPError) as caught:
        MCPClient(make_superuser()).request("prompts/get", name="introduce", arguments=arguments)
    assert caught.value.code == -32602


def test_an_unknown_prompt_is_named():
    with pytest.raises(MCPError, match="Unknown prompt: nosuch"):
        MCPClient(make_superuser()).request("prompts/get", name="nosuch")
