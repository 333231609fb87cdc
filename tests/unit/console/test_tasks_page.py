"""Operators see tasks and cancel them on a page of the admin, as far as their permissions go."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from mcp_django.context.call_record import CallRecord
from mcp_django.models import CallEntry, Task
from mcp_django.operating.call_log_storage import row_of, store
from mcp_django.tasks import run_task
from tests.configured import configure
from tests.factories import make_author, make_user
from tests.making_tasks import HOUR, MINUTE, SECOND, ended, make_task, running
from tests.task_calls import ASKS, TaskClient
from tests.testapp.models import Author
from tests.unit.console.conftest import url

pytestmark = pytest.mark.django_db
VIEW, CHANGE, CALLS = "mcp_django.view_task", "mcp_django.change_task", "mcp_django.view_callentry"
BrowserOf = Callable[..., Client]


def page_of(task: Task) -> str:
    return f"{url('tasks')}?task={task.pk}"


def cancel(browser: Client, task: Task, reason: str = "") -> Any:
    return browser.post(url("tasks"), {"cancel": task.pk, "reason": reason}, follow=True)


def state() -> str:
    return Task.objects.get().state


# The list


def test_tasks_are_listed_with_what_an_operator_asks_about_them(admin: Client) -> None:
    running(5 * MINUTE, progress=1, total=4, message="Book 3", attempt=2)
    ended("failed", outcome="The worker was lost that did this.")
    text = admin.get(url("tasks"), {"list": "all"}).text
    for part in ("run_action", "testapp.book.reprice", "ada", "Claude", "Book 3", 'value="25.0"', "attempt 2"):
        assert part in text
    assert "5\xa0minutes" in text
    assert "The worker was lost that did this." in text


def test_each_value_leads_to_the_list_of_its_tasks(admin: Client) -> None:
    make_task(username="bob", client_name="", client_id="https://codex.example/a&b", tool="export")
    make_task()
    page = admin.get(url("tasks"))
    [line] = [line for line in page.context["lines"] if line["task"].user == "bob"]
    for key in ("user", "client", "tool"):
        narrowed = admin.get(url("tasks") + line["urls"][key])
        assert [found["task"].user for found in narrowed.context["lines"]] == ["bob"]
        assert len(admin.get(url("tasks") + narrowed.context["chips"][0]["url"]).context["lines"]) == 2


def test_many_are_on_several_pages_by_few_queries(admin: Client, django_assert_max_num_queries: Any) -> None:
    for number in range(60):
        make_task(number * SECOND, username=f"user-{number}")
    with django_assert_max_num_queries(9):
        page = admin.get(url("tasks"), {"tool": "run_action"})
    assert len(page.context["lines"]) == 50
    assert "list=open&amp;tool=run_action&amp;page=2" in page.text
    assert len(admin.get(url("tasks"), {"page": "2"}).context["lines"]) == 10
    assert admin.get(url("tasks"), {"page": "x"}).status_code == 200


def test_it_is_told_that_perhaps_no_worker_runs(admin: Client) -> None:
    make_task(30 * SECOND)
    assert "perhaps none runs" not in admin.get(url("tasks")).text
    make_task(2 * MINUTE)
    assert "1 task has waited for a worker for more than a minute" in admin.get(url("tasks")).text
    assert "There are none." in admin.get(url("tasks"), {"list": "failed"}).text


# One task


def test_a_task_is_shown_with_its_calls_in_the_log(admin: Client, browser_of: BrowserOf) -> None:
    task = running(run="b" * 32)
    made, run = CallRecord(outcome="ok"), CallRecord(outcome="ok")
    store([row_of(made), row_of(run)])
    Task.objects.update(call=made.id.hex, run=run.id.hex)
    calls = [entry.pk for entry in CallEntry.objects.order_by("pk")]
    text = admin.get(page_of(task)).text
    for key in calls:
        assert f"/admin/mcp_django/callentry/{key}/change/" in text
    assert "1\xa0hour" in text
    text = browser_of("guard", VIEW).get(page_of(task)).text
    assert "run_action" in text
    assert "/change/" not in text


def test_neither_arguments_nor_results_are_shown(admin: Client) -> None:
    task = ended(
        "completed", kept=b"sealed arguments", asked=b"sealed answers", result=b"sealed results", arguments="d" * 64
    )
    for text in (admin.get(page_of(task)).text, admin.get(url("tasks")).text):
        assert "sealed" not in text
        assert "d" * 64 not in text


def test_texts_of_clients_and_tools_are_inert(admin: Client) -> None:
    odd = "<script>alert(1)</script>"
    task = running(tool=odd, model=odd, client_name=odd, username=odd, message=odd, outcome=odd, site=odd)
    for text in (admin.get(page_of(task)).text, admin.get(url("tasks"), {"user": odd}).text):
        assert "<script>alert" not in text


@pytest.mark.parametrize("key", ["nothing", "0" * 33, "\0", "' OR 1=1 --", "é"])
def test_what_is_no_task_is_not_found(admin: Client, key: str) -> None:
    make_task()
    assert admin.get(url("tasks"), {"task": key}).status_code == 404
    assert admin.post(url("tasks"), {"cancel": key}).status_code == 404
    assert state() == "working"


# Cancelling


def test_an_operator_cancels_a_task_and_the_log_says_who(admin: Client, call_log: Any) -> None:
    task = running()
    assert "Cancel this task?" in admin.get(page_of(task)).text
    page = cancel(admin, task, "Wrong\nprices")
    assert "The task is cancelled." in page.text
    assert state() == "cancelled"
    assert Task.objects.get().outcome == "Cancelled by root. Reason given: Wrong\N{REPLACEMENT CHARACTER}prices"
    assert "Cancel this task?" not in page.text
    [entry] = call_log()
    assert (entry.method, entry.tool, entry.model) == ("console/cancel_task", "run_action", "testapp.book")
    assert (entry.username, entry.outcome, entry.writes, entry.client_name) == ("root", "ok", True, "console")


def test_a_task_of_a_site_that_is_gone_is_cancelled_too(admin: Client) -> None:
    cancel(admin, make_task(site="gone"))
    assert state() == "cancelled"


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled"])
def test_what_has_ended_is_not_cancelled(admin: Client, how: str) -> None:
    task = ended(how, outcome="As it was.")
    page = cancel(admin, task)
    assert "had already ended" in page.text
    assert (state(), Task.objects.get().outcome) == (how, "As it was.")
    assert "Cancel this task?" not in page.text


def test_what_is_done_by_then_is_told(admin: Client) -> None:
    stays = "What it has done by then stays"
    assert stays not in admin.get(page_of(make_task())).text
    assert stays not in admin.get(page_of(running(atomic=True))).text
    assert stays in admin.get(page_of(running())).text


# Who may do what


def test_who_may_only_view_tasks_sees_no_button_and_cancels_nothing(browser_of: BrowserOf, call_log: Any) -> None:
    task = running()
    reader = browser_of("reader", VIEW)
    text = reader.get(page_of(task)).text
    assert "run_action" in text
    assert 'name="cancel"' not in text
    assert cancel(reader, task).status_code == 403
    assert state() == "working"
    assert not call_log()


def test_who_may_change_tasks_cancels_those_of_others(browser_of: BrowserOf) -> None:
    task = running(user=str(make_user("owner").pk), username="owner")
    guard = browser_of("guard", CHANGE)
    assert 'name="cancel"' in guard.get(page_of(task)).text
    cancel(guard, task)
    assert state() == "cancelled"


@pytest.mark.parametrize("permissions", [(), (CALLS,), ("mcp_django.view_change", "mcp_django.change_switch")])
def test_who_has_no_permission_for_tasks_learns_nothing_of_them(
    browser_of: BrowserOf, permissions: tuple[str, ...]
) -> None:
    task = make_task(2 * MINUTE, username="eve")
    eve = browser_of("eve", *permissions)
    for answer in (eve.get(url("tasks")), eve.get(page_of(task)), cancel(eve, task)):
        assert answer.status_code == 403
    assert state() == "working"
    assert url("tasks") not in eve.get("/admin/").text
    if CALLS in permissions:
        assert url("tasks") not in eve.get(url("overview")).text


@pytest.mark.parametrize("browser", [Client, lambda: signed_in(make_user("user", VIEW, CHANGE, staff=False))])
def test_who_is_not_of_the_staff_is_led_to_the_sign_in(browser: Callable[[], Client]) -> None:
    task = make_task()
    there = browser()
    for answer in (there.get(page_of(task)), there.post(url("tasks"), {"cancel": task.pk})):
        assert answer.status_code == 302
        assert "/login/" in answer.headers["Location"]
    assert state() == "working"


def signed_in(user: User, **options: Any) -> Client:
    browser = Client(**options)
    browser.force_login(user)
    return browser


def test_nothing_but_the_form_of_the_page_cancels(admin: Client) -> None:
    task = make_task()
    for answer in (admin.get(url("tasks"), {"cancel": task.pk}), admin.get(f"{page_of(task)}&cancel={task.pk}")):
        assert answer.status_code == 200
    for method in ("put", "patch", "delete", "options"):
        assert getattr(admin, method)(page_of(task)).status_code == 405
    assert admin.post(url("tasks"), {"task": task.pk}).status_code == 403
    assert admin.post(page_of(task)).status_code == 403
    other_site = signed_in(User.objects.get(username="root"), enforce_csrf_checks=True)
    assert other_site.post(url("tasks"), {"cancel": task.pk}).status_code == 403
    assert state() == "working"


# Where it is linked


def test_the_index_of_the_admin_leads_to_the_page(browser_of: BrowserOf) -> None:
    guard = browser_of("guard", VIEW)
    assert "/admin/mcp_django/task/" in guard.get("/admin/").text
    assert guard.get("/admin/mcp_django/task/").headers["Location"] == url("tasks")
    other = browser_of("other", CALLS)
    assert "/admin/mcp_django/task/" not in other.get("/admin/").text
    assert other.get("/admin/mcp_django/task/", follow=True).status_code == 403


def test_the_overview_says_how_many_are_open(admin: Client, browser_of: BrowserOf) -> None:
    assert f"{url('tasks')}?list=open" not in admin.get(url("overview")).text
    ended("completed", HOUR)
    make_task()
    make_task(state="input_required")
    text = admin.get(url("overview")).text
    assert f'<a href="{url("tasks")}?list=open">2 tasks wait or run</a>' in text
    assert "wait or run" not in browser_of("reader", CALLS).get(url("overview")).text


# With a client and a worker


@pytest.fixture
def bulk(settings: Any) -> dict[str, Any]:
    """The arguments of a write that becomes a task, for which no worker is there."""
    configure(settings, TASK_ROWS=1, TASK_BACKEND="tests.task_calls.put_aside")
    for name in ("Ada", "Ben"):
        make_author(name)
    return {"model": "testapp.author", "filters": {"id__gte": 0}, "values": {"name": "Ida"}}


def caller() -> TaskClient:
    user = make_user("caller", "testapp.view_author", "testapp.change_author")
    return TaskClient(user, capabilities=ASKS, answers={"_confirm": True})


def test_a_client_is_told_that_an_operator_has_cancelled_its_task(admin: Client, bulk: dict[str, Any]) -> None:
    client = caller()
    task_id = client.begin("update_record", **bulk)
    page = admin.get(f"{url('tasks')}?task={task_id}")
    assert (page.context["task"].standing, page.context["task"].user) == ("waiting", "caller")
    cancel(admin, Task.objects.get(), "Stocktaking")
    told = client.poll(task_id)
    assert (told["status"], told["statusMessage"]) == ("cancelled", "Cancelled by root. Reason given: Stocktaking")
    run_task(task_id)
    assert set(Author.objects.values_list("name", flat=True)) == {"Ada", "Ben"}


def test_the_calls_that_made_and_ran_a_task_are_those_of_the_log(
    admin: Client, bulk: dict[str, Any], call_log: Any
) -> None:
    client = caller()
    task_id = client.begin("update_record", **bulk)
    client.end(task_id)
    logged = {entry.call_id: entry for entry in call_log()}
    page = admin.get(f"{url('tasks')}?task={task_id}")
    task = page.context["task"]
    assert (task.standing, task.what) == ("completed", "testapp.author")
    assert page.context["calls"] == {"call": logged[task.row.call], "run": logged[task.row.run]}
    assert page.context["calls"]["run"].rows_changed == 2
