import pytest

from mcp_django.testing import MCPClient, MCPError
from tests.factories import make_author, make_superuser

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
def test_the_client_speaks_every_revision(version):
    assert MCPClient(make_superuser(), version=version).tools()


def test_a_client_without_a_user_is_not_signed_in():
    with pytest.raises(MCPError) as caught:
        MCPClient().tools()
    assert caught.value.status == 401


def test_a_call_gives_text_and_structure():
    make_author("Ada")
    found = MCPClient(make_superuser()).call("query_records", model="testapp.author", fields=["name"])
    assert not found.is_error
    assert ["Ada"] in [row[-1:] for row in found.structured["rows"]]


def test_an_error_for_the_model_is_a_result_and_one_for_the_program_is_raised():
    client = MCPClient(make_superuser())
    assert client.call("query_records", model="no.such").is_error
    with pytest.raises(MCPError) as caught:
        client.call("no_such_tool")
    assert caught.value.code == -32602


def test_what_a_call_asks_is_answered_until_it_asks_no_more(tools):
    @tools
    def greet(request) -> str:
        """Greet."""
        name = request.mcp.ask("Who are you?", str, key="who")
        mood = request.mcp.sample("A mood?", key="mood").text
        return f"Hello {name}, {mood}"

    mood = {"role": "assistant", "content": {"type": "text", "text": "glad"}, "model": "m"}
    client = MCPClient(make_superuser(), answers={"who": {"who": "Ann"}, "mood": mood})
    assert client.call("greet").text == "Hello Ann, glad"


def test_none_declines_and_a_question_without_an_answer_fails_the_test(tools):
    @tools
    def greet(request) -> str:
        """Greet."""
        return request.mcp.ask("Who are you?", str, key="who")

    user = make_superuser()
    declined = MCPClient(user, answers={"who": None}).call("greet")
    assert declined.is_error
    assert "declined" in declined.text
    with pytest.raises(AssertionError, match="no answer to 'who': Who are you"):
        MCPClient(user, answers={}).call("greet")
