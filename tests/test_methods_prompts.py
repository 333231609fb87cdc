import pytest
from mcp_types.methods import validate_server_result

from mcp_django import site
from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_author, make_superuser
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
    del site.prompts["introduce"]


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


@pytest.mark.parametrize("arguments", [{}, {"author": "999"}, {"author": "x"}, {"author": "1", "other": "1"}])
def test_a_wrong_argument_is_an_error_for_the_client(arguments):
    with pytest.raises(MCPError) as caught:
        MCPClient(make_superuser()).request("prompts/get", name="introduce", arguments=arguments)
    assert caught.value.code == -32602


def test_an_unknown_prompt_is_named():
    with pytest.raises(MCPError, match="Unknown prompt: nosuch"):
        MCPClient(make_superuser()).request("prompts/get", name="nosuch")
