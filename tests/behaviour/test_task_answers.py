"""Answers and confirmations of tasks: only to what was asked, once, and by whoever was asked."""

import time
from typing import Any

import pytest

from mcp_django.models import Task
from mcp_django.tasks import run_task
from mcp_django.testing import MCPError
from tests.approval_rules import make_rule
from tests.configured import configure, configured
from tests.confirming import page_of, say, signed_in, tool_of
from tests.factories import make_author, make_superuser
from tests.question_rounds import YES, accept
from tests.task_calls import ASKS, TaskClient, asking, is_unknown, noting, text_of
from tests.testapp.models import Author

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


@pytest.fixture
def root() -> Any:
    return make_superuser()


@pytest.fixture
def client(root: Any) -> TaskClient:
    return TaskClient(root)


@pytest.fixture
def done() -> Any:
    with noting() as done:
        yield done


@pytest.fixture
def asker() -> Any:
    with asking() as named:
        yield named


# Questions


def asked_of(client: TaskClient, task_id: str) -> dict[str, Any]:
    """Let a worker run a task, and return its open questions."""
    run_task(task_id)
    found = client.poll(task_id)
    assert found["status"] == "input_required", found
    questions: dict[str, Any] = found["inputRequests"]
    return questions


def field_of(question: Any) -> str:
    """Return the name of the only field of a question."""
    [field] = question["params"]["requestedSchema"]["properties"]
    return str(field)


def answer(client: TaskClient, task_id: str, **answers: Any) -> None:
    client.request("tasks/update", taskId=task_id, inputResponses=answers)


def test_a_task_that_asks_for_ever_ends_and_uses_no_key_twice(root: Any) -> None:
    def ask_on(request: Any) -> str:
        """Ask."""
        number = 0
        while True:
            request.mcp.ask("Next?", str, key=["a", "a-2"][number % 2] if number < 2 else f"a-{number}")
            number += 1

    client = TaskClient(root, capabilities=ASKS)
    with tool_of(ask_on, destructive=False, task=True):
        task_id = client.begin("ask_on")
        used: set[str] = set()
        for _ in range(40):
            run_task(task_id)
            found = client.poll(task_id)
            if found["status"] != "input_required":
                break
            assert used.isdisjoint(found["inputRequests"])
            used |= found["inputRequests"].keys()
            answers = {key: accept(**{field_of(item): "x"}) for key, item in found["inputRequests"].items()}
            answer(client, task_id, **answers)
    assert found["status"] == "completed"
    assert "Gave up" in text_of(found["result"])


def test_a_task_that_refuses_each_answer_uses_no_key_twice(root: Any) -> None:
    def pick(request: Any) -> str:
        """Pick."""
        first = request.mcp.ask("A number?", int, key="name")
        return str(request.mcp.ask(f"And {first}?", int, key="name-1"))

    client = TaskClient(root, capabilities=ASKS)
    with tool_of(pick, destructive=False, task=True):
        task_id = client.begin("pick")
        used: list[str] = []
        for content in ("no", "neither", 1, "no", 2):
            [(key, question)] = asked_of(client, task_id).items()
            assert key not in used
            used.append(key)
            answer(client, task_id, **{key: accept(**{field_of(question): content})})
        run_task(task_id)
        assert text_of(client.poll(task_id)["result"]) == "2"


@pytest.mark.parametrize(
    "given",
    [
        {"other": accept(name="Eve")},
        {"_confirm": YES},
        {"questions": {}, "given": {}},
        {"": {}},
        {"name\u202e": accept(name="Eve")},
    ],
)
def test_answers_to_what_was_not_asked_are_left_alone(root: Any, asker: Any, given: Any) -> None:
    client = TaskClient(root, capabilities=ASKS)
    task_id = client.begin("name_it")
    asked_of(client, task_id)
    answer(client, task_id, **given)
    assert client.poll(task_id)["status"] == "input_required"
    run_task(task_id)
    assert asker == []


@pytest.mark.parametrize("given", [None, [], "yes", {"name": None}, {"name": "yes"}, {"name": [1]}, 5])
def test_answers_that_are_no_answers_are_refused(root: Any, asker: Any, given: Any) -> None:
    client = TaskClient(root, capabilities=ASKS)
    task_id = client.begin("name_it")
    asked_of(client, task_id)
    with pytest.raises(MCPError) as refused:
        client.request("tasks/update", taskId=task_id, inputResponses=given)
    assert refused.value.code == -32602
    assert asker == []


@pytest.mark.parametrize(
    "given",
    [{}, {"action": 7}, accept(name=5), accept(name=None), {"action": "accept", "content": "x"}, accept(x="\ud800")],
)
def test_an_answer_of_another_type_is_asked_for_again(root: Any, asker: Any, given: Any) -> None:
    client = TaskClient(root, capabilities=ASKS)
    task_id = client.begin("name_it")
    asked_of(client, task_id)
    sent = client.send("tasks/update", {"taskId": task_id, "inputResponses": {"name": given}})
    run_task(task_id)
    assert asker == []
    assert client.poll(task_id)["status"] in ("input_required", "completed"), sent.content


def test_an_answer_counts_once(root: Any, asker: Any) -> None:
    client = TaskClient(root, capabilities=ASKS)
    task_id = client.begin("name_it")
    asked_of(client, task_id)
    answer(client, task_id, name=accept(name="Ann"))
    answer(client, task_id, name=accept(name="Eve"))
    run_task(task_id)
    answer(client, task_id, name=accept(name="Eve"))
    run_task(task_id)
    assert asker == ["Ann"]
    assert text_of(client.poll(task_id)["result"]) == "named Ann"


def test_another_caller_answers_nothing(root: Any, asker: Any) -> None:
    client = TaskClient(root, capabilities=ASKS)
    task_id = client.begin("name_it")
    asked_of(client, task_id)
    assert is_unknown(TaskClient(make_superuser("other"), capabilities=ASKS), task_id)
    run_task(task_id)
    assert asker == []


def test_a_cancelled_task_takes_no_answer_and_an_ended_one_stays_as_it_is(root: Any, asker: Any) -> None:
    client = TaskClient(root, capabilities=ASKS)
    task_id = client.begin("name_it")
    asked_of(client, task_id)
    client.request("tasks/cancel", taskId=task_id)
    answer(client, task_id, name=accept(name="Ann"))
    run_task(task_id)
    assert asker == []
    assert client.poll(task_id)["status"] == "cancelled"
    ended = client.begin("name_it")
    asked_of(client, ended)
    answer(client, ended, name=accept(name="Ann"))
    run_task(ended)
    client.request("tasks/cancel", taskId=ended)
    assert text_of(client.poll(ended)["result"]) == "named Ann"


def test_nobody_confirms_a_deletion_by_an_update(root: Any, settings: Any) -> None:
    configure(settings, TASK_ROWS=1)
    rows = [make_author(f"a{number}") for number in range(3)]
    call = {"model": "testapp.author", "filters": {"name__startswith": "a"}}
    shy = TaskClient(root, capabilities=ASKS)
    asked = shy.request("tools/call", name="delete_record", arguments=call)
    assert asked["resultType"] == "input_required"
    assert not Task.objects.exists()
    client = TaskClient(root)
    token = client.call("delete_record", **call).structured["confirm_token"]
    task_id = client.begin("delete_record", **call, confirm_token=token)
    late = make_author("a late one")
    run_task(task_id)
    answer(client, task_id, _confirm=YES)
    run_task(task_id)
    assert Author.objects.filter(pk__in=[late.pk, *(row.pk for row in rows)]).count() == 4


def test_an_async_tool_asks_and_ends(root: Any) -> None:
    async def name_it(request: Any) -> str:
        """Name."""
        return f"named {request.mcp.ask('Which name?', str, key='name')}"

    client = TaskClient(root, capabilities=ASKS)
    with tool_of(name_it, destructive=False, task=True):
        task_id = client.begin("name_it")
        asked_of(client, task_id)
        answer(client, task_id, name=accept(name="Ann"))
        assert text_of(client.end(task_id)) == "named Ann"


# Tokens that confirm


@pytest.fixture
def wiped() -> Any:
    """What a tool has wiped, which asks before it does."""
    wiped: list[str] = []

    def wipe(request: Any, label: str = "") -> str:
        """Wipe."""
        wiped.append(label)
        return "wiped"

    with tool_of(wipe, task=True):
        yield wiped


def test_a_token_makes_one_task(client: TaskClient, wiped: Any) -> None:
    token = client.call("wipe", label="a").structured["confirm_token"]
    task_id = client.begin("wipe", label="a", confirm_token=token)
    assert "not valid" in client.call("wipe", label="a", confirm_token=token).text
    client.end(task_id)
    assert "not valid" in client.call("wipe", label="a", confirm_token=token).text
    assert wiped == ["a"]
    assert Task.objects.count() == 1


@pytest.mark.parametrize("forged", ["x", "tried:1:2", "\u202e", "a" * 300, 7, True, ["x"]])
def test_a_forged_token_makes_no_task(client: TaskClient, wiped: Any, forged: Any) -> None:
    assert client.call("wipe", label="a", confirm_token=forged).is_error
    token = client.call("wipe", label="a").structured["confirm_token"]
    assert client.call("wipe", label="b", confirm_token=token).is_error
    assert TaskClient(make_superuser("other")).call("wipe", label="a", confirm_token=token).is_error
    assert not Task.objects.exists()
    assert wiped == []


def test_a_token_that_has_expired_makes_no_task(client: TaskClient, wiped: Any) -> None:
    token = client.call("wipe", label="a").structured["confirm_token"]
    with configured(CONFIRMATION_MAX_AGE=1, QUESTION_TIMEOUT=1):
        time.sleep(2.1)
        assert client.call("wipe", label="a", confirm_token=token).is_error
    assert not Task.objects.exists()


def test_a_token_of_a_cancelled_task_is_used_up(client: TaskClient, wiped: Any) -> None:
    token = client.call("wipe", label="a").structured["confirm_token"]
    client.request("tasks/cancel", taskId=client.begin("wipe", label="a", confirm_token=token))
    assert client.call("wipe", label="a", confirm_token=token).is_error
    assert wiped == []


def test_a_token_for_rows_makes_one_task_and_is_not_good_for_others(client: TaskClient, settings: Any) -> None:
    configure(settings, TASK_ROWS=1)
    rows = [make_author(f"a{number}").pk for number in range(3)]
    call = {"model": "testapp.author", "pks": rows, "values": {"name": "one"}}
    token = client.call("update_record", **call).structured["confirm_token"]
    assert client.call("update_record", **{**call, "pks": rows[:2]}, confirm_token=token).is_error
    assert client.call("update_record", **{**call, "values": {"name": "two"}}, confirm_token=token).is_error
    assert not Task.objects.exists()
    task_id = client.begin("update_record", **call, confirm_token=token)
    assert client.call("update_record", **call, confirm_token=token).is_error
    client.end(task_id)
    assert client.call("update_record", **call, confirm_token=token).is_error
    assert Author.objects.filter(name="one").count() == 3
    assert Task.objects.count() == 1


# A person's yes


def test_a_call_that_waits_for_a_person_is_no_task(client: TaskClient, wiped: Any, settings: Any) -> None:
    configure(settings, CONFIRM="person")
    assert client.call("wipe", label="a").structured["state"] == "waiting"
    assert not Task.objects.exists()


def test_a_person_who_is_needed_in_between_is_asked(client: TaskClient, wiped: Any, settings: Any) -> None:
    token = client.call("wipe", label="a").structured["confirm_token"]
    task_id = client.begin("wipe", label="a", confirm_token=token)
    configure(settings, CONFIRM="person")
    result = client.end(task_id)
    assert wiped == []
    assert result["structuredContent"]["state"] == "waiting"


@pytest.mark.parametrize("effect", ["require", "block"])
def test_a_rule_that_is_made_in_between_holds(client: TaskClient, settings: Any, effect: str) -> None:
    configure(settings, TASK_ROWS=1)
    rows = [{"pk": make_author(f"a{number}").pk, "name": "new"} for number in range(3)]
    task_id = client.begin("update_record", model="testapp.author", rows=rows)
    make_rule(effect=effect, labels=["testapp.author"])
    client.end(task_id)
    assert not Author.objects.filter(name="new").exists()


def test_what_a_person_has_confirmed_is_done_at_once(
    client: TaskClient, root: Any, wiped: list[str], settings: Any
) -> None:
    configure(settings, CONFIRM="person")
    waiting = client.call("wipe", label="a")
    say(signed_in(root), page_of(waiting))
    assert wiped == ["a"]
    assert not Task.objects.exists()
