"""What a task runs under: switches, budgets and rights of that moment, and the surroundings of its call."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.cache import cache
from django.db import connections
from django.test import Client
from django.urls import get_script_prefix, set_script_prefix
from django.utils import timezone, translation
from django.utils.translation import gettext
from oauth2_provider.models import get_access_token_model

from mcp_django.models import Task
from mcp_django.oauth.stored_tokens import issue_token
from mcp_django.operating.switches import set_switch
from mcp_django.scopes import Scope
from mcp_django.server.stored_calls import StoredCall
from mcp_django.signin import SignInFact
from mcp_django.tasks import heartbeats, run_task
from mcp_django.tasks.heartbeats import Heartbeat
from mcp_django.tasks.stored_tasks import StoredTask
from mcp_django.testing import MCPClient
from tests.configured import configure
from tests.confirming import tool_of
from tests.factories import make_author, make_superuser
from tests.oauth_flow import ORIGIN, RESOURCE
from tests.sitesapp.urls import by_url
from tests.task_calls import TaskClient, is_unknown, noting, row_of, text_of
from tests.testapp.models import Author
from tests.two_sites import staff

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


# Switches, settings and budgets


@pytest.mark.parametrize("kind", ["everything", "writes", "tool", "user", "client"])
def test_what_is_switched_off_while_a_task_waits_is_not_run(
    client: TaskClient, root: Any, done: Any, kind: str
) -> None:
    task_id = client.begin("note")
    set_switch(kind, {"tool": "note", "user": root, "client": row_of(task_id).client_id}.get(kind, ""))
    run_task(task_id)
    assert done == []
    assert row_of(task_id).state == "completed"


@pytest.mark.parametrize(("kind", "target"), [("model", "testapp.author"), ("writes", ""), ("tool", "update_record")])
def test_a_write_is_not_run_once_its_model_is_switched_off(
    client: TaskClient, settings: Any, kind: str, target: str
) -> None:
    configure(settings, TASK_ROWS=1)
    rows = [{"pk": make_author(f"a{number}").pk, "name": "new"} for number in range(3)]
    task_id = client.begin("update_record", model="testapp.author", rows=rows)
    set_switch(kind, target)
    run_task(task_id)
    assert not Author.objects.filter(name="new").exists()


def test_the_last_call_of_a_budget_is_done_and_the_next_one_is_not(
    client: TaskClient, done: Any, settings: Any, clean_cache: None
) -> None:
    configure(settings, BUDGETS={"user": {"calls": 2}})
    first, second = client.begin("note"), client.begin("note")
    assert "used up" in client.call("note").text
    assert text_of(client.end(first)) == "noted "
    assert text_of(client.end(second)) == "noted "
    assert len(done) == 2


def test_a_budget_that_is_used_up_ends_a_task_that_waits(
    client: TaskClient, done: Any, settings: Any, clean_cache: None
) -> None:
    task_id = client.begin("note")
    configure(settings, BUDGETS={"user": {"rows_written": 0}})
    assert "used up" in text_of(client.end(task_id))
    assert done == []


@pytest.fixture
def clean_cache() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


# The request of a task


def test_a_dry_run_is_no_task(client: TaskClient, settings: Any) -> None:
    configure(settings, TASK_ROWS=1)
    rows = [{"pk": make_author(f"a{number}").pk, "name": "new"} for number in range(3)]
    assert not client.call("update_record", model="testapp.author", rows=rows, dry_run=True).is_error
    assert not Task.objects.exists()


class Stamp:
    """Middleware for calls."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        request.stamp = request.user.get_username()
        return self.get_response(request)


def test_middleware_for_calls_runs_in_the_worker_as_in_a_request(client: TaskClient, settings: Any) -> None:
    def stamp(request: Any) -> str:
        """Stamp."""
        return str(request.stamp)

    configure(settings, CALL_MIDDLEWARE=["tests.behaviour.test_task_surroundings.Stamp"])
    with tool_of(stamp, destructive=False, task=True):
        assert text_of(client.end(client.begin("stamp"))) == text_of(
            MCPClient(client_user()).request("tools/call", name="stamp", arguments={})
        )


def client_user() -> Any:
    return get_user_model().objects.get(username="root")


def test_headers_of_the_caller_are_not_kept(client: TaskClient, done: Any) -> None:
    client.headers |= {"X-Forwarded-User": "admin", "Cookie": "sessionid=1", "Accept-Language": "de"}
    client.end(client.begin("note"))
    [request] = done
    assert not {"HTTP_AUTHORIZATION", "HTTP_COOKIE", "HTTP_X_FORWARDED_USER"} & request.META.keys()


def test_texts_of_the_work_do_not_break_its_row(client: TaskClient) -> None:
    def evil(request: Any) -> str:
        """Evil."""
        request.mcp.progress(1, float("nan"), "\0\x1b[31m\ud800\u202e𝔸" * 100)
        time.sleep(0.05)
        request.mcp.task.task.renew(**request.mcp.task.heartbeat.progress)
        return "fine"

    with tool_of(evil, destructive=False, task=True):
        task_id = client.begin("evil")
        assert text_of(client.end(task_id)) == "fine"
    assert "\0" not in row_of(task_id).message


@pytest.mark.parametrize("value", [10**30, "\ud800", float("nan"), "a\0b"])
def test_a_result_that_is_odd_ends_the_task_as_it_ends_a_call(client: TaskClient, value: Any) -> None:
    def odd(request: Any) -> Any:
        """Odd."""
        return {"odd": value}

    with tool_of(odd, destructive=False, task=True):
        inline = MCPClient(client_user()).call("odd")
        task_id = client.begin("odd")
        run_task(task_id)
        found = client.poll(task_id)
    assert found["status"] == "completed", found
    assert found["result"].get("isError", False) == inline.is_error
    assert inline.is_error or found["result"]["structuredContent"] == inline.structured


def test_odd_arguments_come_to_the_task_as_to_a_call(client: TaskClient, done: Any) -> None:
    inline = MCPClient(client_user())
    for label in ("\u202e", "𝔸" * 1000, "\x1b[31m", "'\"\\"):
        assert text_of(client.end(client.begin("note", label=label))) == inline.call("note", label=label).text


# While it runs


class Blocked:
    """A tool that runs until it is stopped, or for some seconds."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.end = threading.Event()
        self.outcome = "never ran"

    def __call__(self, request: Any) -> str:
        """Work."""
        self.outcome = "stopped"
        self.began.set()
        for number in range(400):
            request.mcp.progress(number)
            if self.end.wait(0.05):
                break
        self.outcome = "ended"
        return "ended"


def lose_access(root: Any) -> None:
    get_access_token_model().objects.all().delete()


def lose_activity(root: Any) -> None:
    get_user_model().objects.update(is_active=False)


def lose_password(root: Any) -> None:
    root.set_password("another")
    root.save()


def lose_tool(root: Any) -> None:
    set_switch("tool", "work")


def lose_all(root: Any) -> None:
    set_switch("everything")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("lose", [lose_access, lose_activity, lose_password, lose_tool, lose_all])
def test_a_task_that_runs_is_stopped_once_its_caller_may_no_longer(root: Any, monkeypatch: Any, lose: Any) -> None:
    monkeypatch.setattr(StoredTask, "HEARTBEAT", 0.1)
    monkeypatch.setattr(heartbeats, "LOOK_EVERY", 0.05)
    blocked = Blocked()

    def work(request: Any) -> str:
        """Work."""
        return blocked(request)

    with tool_of(work, destructive=False, task=True), without_workers(monkeypatch):
        client = TaskClient(root)
        task_id = client.begin("work")
        worker = threading.Thread(target=in_worker, args=(task_id,))
        worker.start()
        try:
            assert blocked.began.wait(10)
            lose(root)
            worker.join(15)
            assert not worker.is_alive()
        finally:
            blocked.end.set()
            worker.join()
    assert blocked.outcome == "stopped"
    row = row_of(task_id)
    assert (row.state, row.lease) == ("completed", None)
    assert "done in part" in row.outcome


@contextmanager
def without_workers(monkeypatch: Any) -> Iterator[None]:
    """Let a test hand tasks on by itself."""
    with monkeypatch.context() as patch:
        patch.setattr(StoredTask, "hand_on", lambda self: None)
        yield


def in_worker(task_id: str) -> None:
    try:
        run_task(task_id)
    finally:
        connections.close_all()


# Where it runs


@contextmanager
def tool_at(at: Any, function: Any, **options: Any) -> Iterator[None]:
    """Make a function a tool of another site, for as long as the block lasts."""
    at.add_tool(function, **options)
    try:
        yield
    finally:
        at.remove_tool(function.__name__)


@pytest.mark.urls("tests.sitesapp.urls")
def test_a_task_is_for_the_tenant_of_its_url() -> None:
    ann = make_superuser("acme-ann")

    def tenant(request: Any) -> str:
        """Name the tenant."""
        return f"{request.resolver_match.kwargs['tenant']} {request.path}"

    with tool_at(by_url, tenant, read_only=True, task=True):
        acme = TaskClient(ann, path="/t/acme/mcp")
        task_id = acme.begin("tenant")
        assert is_unknown(TaskClient(ann, path="/t/other/mcp"), task_id)
        assert text_of(acme.end(task_id)) == "acme /t/acme/mcp"


def test_a_task_runs_below_the_prefix_of_its_call_and_leaves_none(client: TaskClient) -> None:
    def where(request: Any) -> str:
        """Say where."""
        return f"{get_script_prefix()} {request.path} {request.path_info} {request.build_absolute_uri()}"

    with tool_of(where, read_only=True, task=True):
        inline = MCPClient(client_user())
        client.http = inline.http = Client(SCRIPT_NAME="/below")
        client.headers |= {"Authorization": bearer(f"{ORIGIN}/below/mcp")}
        inline.headers |= {"Authorization": client.headers["Authorization"]}
        set_script_prefix("/below/")
        try:
            expected = inline.call("where").text
            task_id = client.begin("where")
            set_script_prefix("/")
            run_task(task_id)
            assert get_script_prefix() == "/"
            set_script_prefix("/below/")
            assert text_of(client.poll(task_id)["result"]) == expected
        finally:
            set_script_prefix("/")


def bearer(resource: str) -> str:
    return f"Bearer {issue_token(client_user(), scopes=(Scope.READ, Scope.WRITE), resource=resource)}"


@pytest.mark.parametrize("language", ["de", "en"])
def test_a_task_speaks_the_language_of_its_call(client: TaskClient, language: str, settings: Any) -> None:
    def speak(request: Any) -> str:
        """Speak."""
        return f"{translation.get_language()} {timezone.get_current_timezone_name()} {gettext('Yes')}"

    with tool_of(speak, read_only=True, task=True):
        inline = MCPClient(client_user())
        client.headers["Accept-Language"] = inline.headers["Accept-Language"] = language
        expected = inline.call("speak").text
        assert text_of(client.end(client.begin("speak"))) == expected


class Badge(SignInFact):
    """What is known of a sign-in."""

    name = "badge"

    def keep(self, request: Any) -> Any:
        return "gold"

    def restore(self, request: Any, value: Any) -> None:
        request.user.badge = value


def test_a_task_has_the_facts_of_the_sign_in(root: Any, settings: Any) -> None:
    def badge(request: Any) -> str:
        """Show the badge."""
        return str(getattr(request.user, "badge", "none"))

    configure(settings, SIGN_IN_FACTS=[Badge])
    client = TaskClient(root)
    token = issue_token(root, scopes=(Scope.READ,), resource=RESOURCE, facts={"badge": "gold"})
    client.headers["Authorization"] = f"Bearer {token}"
    with tool_of(badge, read_only=True, task=True):
        task_id = client.begin("badge")
        assert text_of(client.end(task_id)) == "gold"
        plain = TaskClient(root, scopes=(Scope.READ,))
        assert plain.poll(task_id)["result"]["isError"]


class Looking(Heartbeat):
    """A sign of life that asks once whether the caller may go on."""

    told = "not asked"

    def _beat(self) -> None:
        try:
            self.told = self.refusal()
        finally:
            connections.close_all()


class Moved:
    """Middleware that chooses another URLconf for a host."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        request.urlconf = "tests.two_sites"
        return self.get_response(request)


def test_where_middleware_chooses_the_urlconf_the_task_and_its_sign_of_life_find_the_endpoint(
    root: Any, settings: Any, monkeypatch: Any
) -> None:
    # Threads of their own do not see what the transaction of the test has stored.
    user = client_user()
    monkeypatch.setattr(StoredCall, "user", lambda self, key, **options: user)
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "tests.behaviour.test_task_surroundings.Moved"]
    told: list[str] = []

    def look(request: Any) -> str:
        """Look as the sign of life does, from its thread."""
        run = request.mcp.task
        with Looking(run.task, run.refusal, lambda: None) as beat:
            pass
        told.append(beat.told)
        return "looked"

    with tool_at(staff, look, read_only=True, task=True):
        client = TaskClient(root)
        client.path = "/mcp/staff"
        client.headers["Authorization"] = bearer(f"{ORIGIN}/mcp/staff")
        assert text_of(client.end(client.begin("look"))) == "looked"
    assert told == [""]
