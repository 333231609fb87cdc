import pytest

from mcp_django.models import Task
from mcp_django.protocol.errors import InvalidParams
from mcp_django.protocol.tasks import EXTENSION
from mcp_django.testing import EVERYTHING, MCPClient, MCPError
from tests.factories import make_author, make_superuser

pytestmark = pytest.mark.django_db
TASKS = {"extensions": {EXTENSION: {}}}


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


# Tasks


def long_work(request, name: str) -> str:
    """Work long."""
    request.mcp.progress(1, 2, "half")
    return f"{name} {request.mcp.task is not None}"


def test_a_call_that_could_become_a_task_runs_in_its_request(tools):
    tools(long_work, task=True)
    client = MCPClient(make_superuser())
    assert client.call("long_work", name="Ada").text == "Ada False"
    assert not Task.objects.exists()
    assert "get_task" not in [tool["name"] for tool in client.tools()]


def test_the_task_of_a_client_that_takes_tasks_is_run_to_its_end(tools):
    tools(long_work, task=True)
    client = MCPClient(make_superuser(), capabilities=TASKS)
    assert client.call("long_work", name="Ada").text == "Ada True"
    assert Task.objects.get().state == Task.State.COMPLETED


def test_what_a_task_asks_is_answered(tools):
    def ask(request) -> str:
        """Ask on the way."""
        return request.mcp.ask("Who are you?", str, key="who")

    tools(ask, task=True)

    answering = {"capabilities": {**EVERYTHING, **TASKS}, "answers": {"who": {"who": "Ada"}}}
    assert MCPClient(make_superuser(), **answering).call("ask").text == "Ada"


def test_a_task_that_asks_what_has_no_answer_fails_the_test(tools):
    def ask(request) -> str:
        """Ask on the way."""
        return request.mcp.ask("Who are you?", str, key="who")

    tools(ask, task=True)

    client = MCPClient(make_superuser(), capabilities={**EVERYTHING, **TASKS})
    with pytest.raises(MCPError, match="Who are you"):
        client.call("ask")


def test_an_error_of_the_protocol_that_ends_a_task_is_raised(tools):
    def fail(request) -> str:
        """Fail."""
        raise InvalidParams("not so")

    tools(fail, task=True)

    with pytest.raises(MCPError) as caught:
        MCPClient(make_superuser(), capabilities=TASKS).call("fail")
    assert caught.value.code == -32602
