"""Tasks and the worst client: that of another caller, of one who has lost a right, and one that asks for too much."""

import base64
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.http import HttpResponse
from oauth2_provider.models import get_access_token_model

from mcp_django.models import Task
from mcp_django.operating.switches import set_switch
from mcp_django.orm.access import access_of
from mcp_django.scopes import Scope
from mcp_django.tasks import run_task
from mcp_django.tasks.caller_tasks import MAX_OPEN
from mcp_django.testing import MCPClient
from tests.configured import configured
from tests.confirming import tool_of
from tests.factories import make_superuser, make_user
from tests.service_account import ask_by_secret, make_account
from tests.task_calls import ASKS, TaskClient, WaitingClient, asking, codes_of, is_unknown, noting, row_of, text_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

SECRET = "number-4711-of-the-account"


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


# Whose they are


def test_another_user_learns_nothing_of_a_task(client: TaskClient, done: Any) -> None:
    task_id = client.begin("note")
    other = TaskClient(make_superuser("other"))
    assert is_unknown(other, task_id)
    assert row_of(task_id).state == "working"
    client.end(task_id)
    assert is_unknown(other, task_id)


def test_another_client_of_the_same_user_learns_nothing(client: TaskClient, root: Any, done: Any) -> None:
    task_id = client.begin("note", idempotency_key="k")
    other = TaskClient(root)
    tokens = get_access_token_model().objects
    mine = tokens.order_by("pk").last().application
    mine.pk, mine.id, mine.client_id = None, None, "another-client"
    mine.save(force_insert=True)
    last = tokens.order_by("pk").last()
    last.application = mine
    last.save()
    assert is_unknown(other, task_id)
    assert other.begin("note", idempotency_key="k") != task_id


@pytest.mark.urls("tests.two_sites")
def test_another_endpoint_knows_nothing_of_a_task(client: TaskClient, root: Any, done: Any) -> None:
    task_id = client.begin("note")
    assert is_unknown(TaskClient(root, path="/mcp/staff"), task_id)
    assert client.poll(task_id)["status"] == "working"


def test_nobody_signed_in_reads_the_task_of_a_user(client: TaskClient, done: Any) -> None:
    task_id = client.begin("note")
    with configured(AUTHENTICATION_CLASSES=[]):
        assert is_unknown(TaskClient(), task_id)


def test_a_token_for_another_address_has_no_part_in_a_task(client: TaskClient, done: Any) -> None:
    task_id = client.begin("note")
    client.headers = {name: value for name, value in client.headers.items() if name != "Authorization"}
    assert client.send("tasks/get", {"taskId": task_id}).status_code == 401


@pytest.mark.parametrize("wrong", ["", "a\0b", "a" * 257, 7, None, True, ["a"], {"a": 1}, 2**60])
def test_what_is_no_id_is_refused(client: TaskClient, wrong: Any) -> None:
    assert codes_of(client, wrong) <= {-32602, -32600}


@pytest.mark.parametrize("guess", ["a" * 33, "a" * 256, "%", "' OR 1=1 --", "\u202e" * 32, "𝔸" * 32, "0" * 31 + " "])
def test_an_id_that_is_guessed_finds_nothing(client: TaskClient, done: Any, guess: str) -> None:
    client.begin("note")
    assert is_unknown(client, guess)
    run_task(guess)
    assert done == []


def test_an_id_in_other_letters_is_another_id(client: TaskClient, done: Any) -> None:
    task_id = client.begin("note")
    assert is_unknown(client, f"{task_id[:-1]} ")
    Task.objects.filter(pk=task_id).update(id="abc" + task_id[3:])
    assert is_unknown(client, "ABC" + task_id[3:])


@pytest.mark.parametrize("wrong", [None, 7, ["a"], "a\0", "a" * 5000, {"a": "b"}])
def test_get_task_refuses_what_is_no_id(root: Any, done: Any, wrong: Any) -> None:
    client = WaitingClient(root)
    assert client.call("get_task", task=wrong).is_error


def test_get_task_does_not_show_the_task_of_another(client: TaskClient, done: Any) -> None:
    task_id = client.begin("note", label=SECRET)
    client.end(task_id)
    told = WaitingClient(make_superuser("other")).call("get_task", task=task_id)
    assert told.is_error
    assert SECRET not in told.text


# A narrowed address


def test_a_call_at_a_narrowed_address_stays_narrow_as_a_task(client: TaskClient) -> None:
    def labels(request: Any) -> list[str]:
        """Name the models."""
        return sorted(exposure.label for exposure in access_of(request).exposures)

    with tool_of(labels, read_only=True, task=True):
        client.path = "/mcp?models=testapp.author"
        inline = MCPClient(get_user_model().objects.get())
        inline.path = client.path
        expected = inline.call("labels").structured
        task_id = client.begin("labels")
        assert client.end(task_id)["structuredContent"] == expected
        client.path = "/mcp"
        wide = client.begin("labels")
        assert client.end(wide)["structuredContent"] != expected
        client.path = "/mcp?models=testapp.author"
        found = client.poll(wide)
        assert found["result"]["isError"]


def test_a_read_only_address_stays_so(client: TaskClient) -> None:
    def scopes(request: Any) -> list[str]:
        """Name the scopes."""
        return sorted(request.mcp.scopes)

    with tool_of(scopes, read_only=True, task=True):
        client.path = "/mcp?read_only=1"
        assert client.end(client.begin("scopes"))["structuredContent"] == {"result": ["mcp:read"]}


# Rights that are lost


@pytest.mark.parametrize("flag", ["is_staff", "is_superuser"])
def test_a_result_is_not_shown_once_a_flag_is_lost(client: TaskClient, root: Any, done: Any, flag: str) -> None:
    task_id = client.begin("note", label=SECRET, idempotency_key="k")
    client.end(task_id)
    setattr(root, flag, False)
    root.save()
    answers = [
        client.send("tasks/get", {"taskId": task_id}),
        client.send("tools/call", {"name": "note", "arguments": {"label": SECRET, "idempotency_key": "k"}}),
    ]
    for answer in answers:
        assert f"noted {SECRET}".encode() not in answer.content
    assert len(done) == 1


def test_a_result_is_not_shown_to_a_token_with_fewer_scopes(root: Any, done: Any) -> None:
    client = TaskClient(root)
    task_id = client.begin("note", label=SECRET)
    client.end(task_id)
    narrow = TaskClient(root, scopes=(Scope.READ,))
    assert SECRET not in str(narrow.poll(task_id))


def test_a_result_is_not_shown_once_the_tool_is_gone(client: TaskClient) -> None:
    def read(request: Any) -> str:
        """Read."""
        return SECRET

    with tool_of(read, read_only=True, task=True):
        task_id = client.begin("read")
        client.end(task_id)
    assert SECRET not in str(client.poll(task_id))


def test_a_result_is_not_shown_while_its_tool_is_switched_off(client: TaskClient, done: Any) -> None:
    task_id = client.begin("note", label=SECRET)
    client.end(task_id)
    set_switch("tool", "note")
    assert SECRET not in str(client.poll(task_id))


def test_a_question_is_not_shown_once_a_permission_is_lost(root: Any) -> None:
    def name_it(request: Any) -> str:
        """Name."""
        return str(request.mcp.ask(f"Is it {SECRET}?", str, key="name"))

    with tool_of(name_it, destructive=False, task=True):
        client = TaskClient(root, capabilities=ASKS)
        task_id = client.begin("name_it")
        run_task(task_id)
        assert SECRET in str(client.poll(task_id))
        root.is_superuser = False
        root.save()
        assert SECRET not in str(client.poll(task_id))


def test_get_task_does_not_show_a_result_either(root: Any, done: Any) -> None:
    client = WaitingClient(root)
    task_id = TaskClient(root).begin("note", label=SECRET)
    run_task(task_id)
    assert SECRET in client.call("get_task", task=task_id).text
    root.is_superuser = False
    root.save()
    assert (
        SECRET not in client.send("tools/call", {"name": "get_task", "arguments": {"task": task_id}}).content.decode()
    )


# What is stored


def test_neither_arguments_nor_results_can_be_read_in_the_table(client: TaskClient, done: Any) -> None:
    handed: list[Any] = []
    task_id = client.begin("note", label=SECRET)
    before = raw_of(task_id)
    client.end(task_id)
    for stored in (before, raw_of(task_id)):
        assert SECRET.encode() not in stored
        assert base64.b64encode(SECRET.encode())[:12] not in stored
    assert handed == []


def raw_of(task_id: str) -> bytes:
    """Return all that is stored of a task."""
    [values] = Task.objects.filter(pk=task_id).values_list()
    return b"|".join(bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode() for value in values)


def test_a_broker_sees_the_id_and_nothing_else(
    client: TaskClient, done: Any, monkeypatch: Any, django_capture_on_commit_callbacks: Any
) -> None:
    handed: list[Any] = []
    monkeypatch.setattr(f"{__name__}.enqueue", lambda *given, **more: handed.append((given, more)))
    with configured(TASK_BACKEND=f"{__name__}.enqueue"), django_capture_on_commit_callbacks(execute=True):
        task_id = client.begin("note", label=SECRET)
    assert handed == [((task_id,), {})]


def enqueue(task_id: str) -> None:
    """What hands on tasks, which a test replaces."""


def test_what_is_stored_of_one_task_cannot_be_moved_to_another(client: TaskClient, root: Any, done: Any) -> None:
    victim = client.begin("note", label=SECRET)
    other = TaskClient(make_superuser("other"))
    mine = other.begin("note", label="mine")
    Task.objects.filter(pk=mine).update(kept=row_of(victim).kept)
    run_task(mine)
    assert done == []
    assert SECRET not in str(other.poll(mine))
    client.end(victim)
    mine = other.begin("note", label="mine")
    other.end(mine)
    Task.objects.filter(pk=mine).update(result=row_of(victim).result)
    assert SECRET not in str(other.poll(mine))


def test_the_call_of_a_task_is_no_result(client: TaskClient, done: Any) -> None:
    task_id = client.begin("note", label=SECRET)
    Task.objects.filter(pk=task_id).update(result=row_of(task_id).kept, state="completed")
    assert SECRET not in str(client.poll(task_id))


def test_a_row_that_is_given_to_another_user_does_not_run_for_them(client: TaskClient, done: Any) -> None:
    task_id = client.begin("note")
    other = make_user("poor")
    Task.objects.filter(pk=task_id).update(user=str(other.pk))
    run_task(task_id)
    assert done == []


# A flood


def test_tasks_that_are_cancelled_give_room(client: TaskClient, done: Any) -> None:
    for _ in range(2 * MAX_OPEN):
        client.request("tasks/cancel", taskId=client.begin("note"))
    client.begin("note")
    assert Task.objects.filter(state="working").count() == 1


def test_callers_do_not_share_their_room(client: TaskClient, done: Any) -> None:
    for _ in range(MAX_OPEN):
        client.begin("note")
    assert client.call("note").is_error
    assert TaskClient(make_superuser("other")).begin("note")


def test_a_token_to_confirm_is_good_once_there_is_room_again(client: TaskClient) -> None:
    wiped: list[int] = []

    def wipe(request: Any) -> str:
        """Wipe."""
        wiped.append(1)
        return "wiped"

    def note(request: Any) -> str:
        """Note."""
        return ""

    with tool_of(wipe, task=True), tool_of(note, destructive=False, task=True):
        for _ in range(MAX_OPEN):
            last = client.begin("note")
        token = client.call("wipe").structured["confirm_token"]
        assert "have not ended" in client.call("wipe", confirm_token=token).text
        client.request("tasks/cancel", taskId=last)
        client.end(client.begin("wipe", confirm_token=token))
    assert wiped == [1]


@configured(SERVICE_ACCOUNTS=True)
def test_a_service_account_of_the_same_user_learns_nothing(client: TaskClient, root: Any, done: Any) -> None:
    task_id = client.begin("note", label=SECRET)
    client.end(task_id)
    account, secret = make_account(user=root, scopes=[Scope.READ, Scope.WRITE])
    program = TaskClient()
    program.headers["Authorization"] = f"Bearer {ask_by_secret(account, secret).json()['access_token']}"
    assert is_unknown(program, task_id)
    own = program.begin("note", label="own")
    assert text_of(program.end(own)) == "noted own"
    assert is_unknown(client, own)


def test_a_file_comes_as_the_result_of_a_task(client: TaskClient) -> None:
    def export(request: Any) -> Any:
        """Export."""
        return HttpResponse(b"\0\xff" + SECRET.encode(), content_type="application/zip")

    with tool_of(export, read_only=True, task=True):
        inline = MCPClient(get_user_model().objects.get()).call("export")
        assert client.end(client.begin("export"))["content"] == inline.content
