"""Where the work of a call begins: after all questions and refusals, before anything is written, and then once.

There a call goes on as a task, and all that it did before is undone.
"""

from typing import Annotated, Any

import pytest
from django import forms
from django.contrib import admin
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.template import engines
from django.template.response import TemplateResponse

import mcp_django as mcp
from mcp_django import MCPSite
from mcp_django.context.questions import Answers
from mcp_django.context.task_desk import BecomesTask
from mcp_django.exceptions import Cancelled, InputRequired, NotConfirmed, ToolError
from mcp_django.exposures.declared_tasks import TaskOptions
from mcp_django.functions.asked_parameters import Ask
from mcp_django.functions.project_function import resolved
from mcp_django.models import Change
from mcp_django.tools.action_tools import ActionTool, RunAction
from mcp_django.tools.function_tools import FunctionTool
from mcp_django.tools.undo_change import UndoChange
from mcp_django.tools.write_tools import CreateRecord, DeleteRecord, UpdateRecord, WriteRecords
from tests.factories import make_author, make_superuser, make_user
from tests.testapp.models import Author
from tests.tool_calls import call, request_of

pytestmark = pytest.mark.django_db

PAGE = """<form method="post"><input type="hidden" name="_selected_action" value="{{ pk }}">{{ form.as_p }}
<input type="hidden" name="action" value="rename"><input type="submit" name="apply" value="Rename"></form>"""


class NameForm(forms.Form):
    name = forms.CharField()


class AuthorAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    actions = ("shout", "own", "rename", "plain")
    exclude = ("agent",)

    def shout(self, request: HttpRequest, queryset: Any) -> None:
        queryset.update(name="SHOUTED")

    def own(self, request: HttpRequest, queryset: Any) -> None:
        queryset.update(name="own")

    def plain(self, request: HttpRequest, queryset: Any) -> None:
        queryset.update(name="plain")

    def rename(self, request: HttpRequest, queryset: Any) -> TemplateResponse | None:
        form = NameForm(request.POST if "apply" in request.POST else None)
        if form.is_valid():
            queryset.update(name=form.cleaned_data["name"])
            return None
        context = {"form": form, "pk": queryset.first().pk}
        return TemplateResponse(request, engines["django"].from_string(PAGE), context)

    shout.mcp_task = mcp.task(timeout=5)  # type: ignore[attr-defined]
    own.mcp_task = rename.mcp_task = True  # type: ignore[attr-defined]
    own.mcp_atomic = own.mcp_destructive = False  # type: ignore[attr-defined]
    plain.mcp_destructive = False  # type: ignore[attr-defined]
    rename.mcp_form = NameForm  # type: ignore[attr-defined]


admin_site = admin.AdminSite(name="admin")
admin_site.register(Author, AuthorAdmin)
own_site = MCPSite("own", admin_site=admin_site)


class Desk:
    """Makes a task of each call whose author says so, or that writes more than three rows."""

    makes_tasks = True

    def __init__(self) -> None:
        self.begun: list[tuple[Any, int, str]] = []

    def begin_work(self, options: Any, rows: int, using: str) -> None:
        self.begun.append((options, rows, using))
        if options is not None or rows > 3:
            raise BecomesTask(options, using)


@pytest.fixture
def root() -> Any:
    request = request_of(make_superuser(), own_site)
    request.mcp.tasks = Desk()  # type: ignore[assignment]
    return request


def begins(request: Any, tool: Any, **arguments: Any) -> tuple[Any, int, str]:
    """Make a call that has to become a task, and return what the desk was told."""
    before = len(request.mcp.tasks.begun), Change.objects.count(), names()
    with pytest.raises(BecomesTask):
        resolved(tool.call(request, arguments))
    assert (len(request.mcp.tasks.begun) - 1, Change.objects.count(), names()) == before
    told: tuple[Any, int, str] = request.mcp.tasks.begun[-1]
    return told


def names() -> list[str]:
    return list(Author.objects.order_by("pk").values_list("name", flat=True))


def token(request: Any, tool: Any, **arguments: Any) -> str:
    """Make a call that asks first, and return the token that confirms it."""
    asked = call(tool, request, **arguments)
    assert asked["confirmation_required"]
    assert not request.mcp.tasks.begun
    return str(asked["confirm_token"])


def as_task(request: Any) -> None:
    """Let the call of a request be the one of a task, whose work begins where it is."""
    request.mcp.tasks = None


# Function tools


def work(request: Any, number: int) -> str:
    """Work."""
    make_author(f"worked {number}")
    return "done"


async def work_async(request: Any, number: int) -> str:
    """Work."""
    return "done"


@pytest.mark.parametrize("function", [work, work_async])
def test_the_work_of_a_function_begins_once_its_arguments_are_right(function: Any, root: Any) -> None:
    tool = FunctionTool(function, destructive=False, task=mcp.task(timeout=5))
    with pytest.raises(ToolError, match="number"):
        resolved(tool.call(root, {"number": "many"}))
    assert not root.mcp.tasks.begun
    assert begins(root, tool, number=1) == (TaskOptions(timeout=5), 0, "")


@pytest.mark.parametrize("function", [work, work_async])
def test_the_work_of_a_function_begins_once_it_is_confirmed(function: Any, root: Any) -> None:
    tool = FunctionTool(function, task=True)
    with pytest.raises(InputRequired) as asked:
        resolved(tool.call(root, {"number": 1}))
    assert not root.mcp.tasks.begun
    shown = tool.ask(root, {"number": 1}, asked.value).structured
    assert shown is not None
    tool.take_answers(root, {"number": 1, "confirm_token": shown["confirm_token"]})
    assert begins(root, tool, number=1) == (TaskOptions(), 0, "")


def test_the_work_of_a_function_begins_once_its_questions_are_answered(root: Any) -> None:
    def pay(request: Any, carrier: Annotated[str, Ask("Which carrier?")]) -> str:
        return carrier

    tool = FunctionTool(pay, destructive=False, task=True)
    with pytest.raises(InputRequired):
        tool.call(root, {})
    assert not root.mcp.tasks.begun
    root.mcp.answers = Answers({"carrier": "DHL"}, direct=True, trusted=True)
    begins(root, tool)
    as_task(root)
    assert tool.call(root, {}).to_wire()["content"][0]["text"] == "DHL"  # type: ignore[union-attr]


def test_a_function_that_is_only_tried_is_no_task(root: Any) -> None:
    tool = FunctionTool(work, destructive=False, dry_run=True, task=True)
    assert call(tool, root, number=1, dry_run=True)["result"] == "done"
    assert not root.mcp.tasks.begun
    assert names() == []


def test_a_function_without_a_task_never_asks_the_desk(root: Any) -> None:
    FunctionTool(work, destructive=False).call(root, {"number": 1})
    assert not root.mcp.tasks.begun
    assert names() == ["worked 1"]


def test_an_atomic_function_is_one_transaction_with_its_task(root: Any) -> None:
    def half(request: Any) -> str:
        make_author("half")
        raise ToolError("No more.")

    tool = FunctionTool(half, destructive=False, task=mcp.task(atomic=True))
    assert tool.is_atomic(root, {})
    assert begins(root, tool) == (TaskOptions(atomic=True), 0, "default")
    as_task(root)
    with pytest.raises(ToolError, match="No more"):
        tool.call(root, {})
    assert names() == []


def test_an_atomic_function_is_undone_when_it_is_cancelled(root: Any) -> None:
    def long(request: Any) -> str:
        make_author("long")
        request.mcp.cancelled = True
        return "done"

    as_task(root)
    with pytest.raises(Cancelled):
        FunctionTool(long, destructive=False, task=mcp.task(atomic=True)).call(root, {})
    assert names() == []


def test_a_result_that_is_too_long_undoes_an_atomic_function(root: Any, settings: Any) -> None:
    def long(request: Any) -> str:
        make_author("long")
        return "x" * 50_000

    as_task(root)
    with pytest.raises(ToolError, match="Nothing was changed: ask for less"):
        FunctionTool(long, destructive=False, task=mcp.task(atomic=True)).call(root, {})
    assert names() == []


def test_an_async_function_is_not_atomic() -> None:
    with pytest.raises(ImproperlyConfigured, match="an async function is not atomic"):
        MCPSite().add_tool(work_async, task=mcp.task(atomic=True))


def test_the_results_of_a_task_have_no_announced_form() -> None:
    def count(request: Any) -> int:
        return 1

    assert FunctionTool(count, destructive=False).output_schema
    assert FunctionTool(count, destructive=False, task=True).output_schema is None
    assert FunctionTool(count, read_only=True, task=True).output_schema is None


# Actions

RUN = RunAction()


def action(name: str, pk: int, **more: Any) -> dict[str, Any]:
    return {"model": "testapp.author", "action": name, "pks": [pk], **more}


def test_the_work_of_an_action_begins_once_it_is_confirmed(root: Any) -> None:
    pk = make_author("Ada").pk
    confirmed = token(root, RUN, **action("shout", pk))
    assert begins(root, RUN, **action("shout", pk, confirm_token=confirmed)) == (TaskOptions(timeout=5), 0, "default")


def test_a_token_confirms_one_task_alone(root: Any) -> None:
    pk = make_author("Ada").pk
    confirmed = token(root, RUN, **action("shout", pk))
    begins(root, RUN, **action("shout", pk, confirm_token=confirmed))
    with pytest.raises(NotConfirmed):
        RUN.call(root, action("shout", pk, confirm_token=confirmed))


def test_the_work_of_an_action_that_manages_its_own_transactions_is_none(root: Any) -> None:
    assert begins(root, RUN, **action("own", make_author("Ada").pk)) == (TaskOptions(), 0, "")


def test_the_work_of_an_action_with_a_page_begins_when_the_page_is_answered(root: Any) -> None:
    pk = make_author("Ada").pk
    confirmed = token(root, RUN, **action("rename", pk))
    answered = action("rename", pk, form={"name": "Bea"}, confirm_token=confirmed)
    assert begins(root, RUN, **answered) == (TaskOptions(), 0, "default")


def test_an_action_without_a_task_never_asks_the_desk(root: Any) -> None:
    call(RUN, root, **action("plain", make_author("Ada").pk))
    assert not root.mcp.tasks.begun
    assert names() == ["plain"]


def test_what_the_caller_may_not_run_never_begins() -> None:
    request = request_of(make_user("ada", "testapp.view_author"), own_site)
    request.mcp.tasks = Desk()  # type: ignore[assignment]
    with pytest.raises(ToolError):
        RUN.call(request, action("shout", make_author("Ada").pk))


def test_each_tool_of_an_action_knows_its_task(root: Any) -> None:
    exposure = own_site.exposures[Author]
    found = {name: ActionTool(one) for name, one in exposure.get_actions(root).items()}
    assert found["shout"].declared_task(root, {}) == TaskOptions(timeout=5)
    assert found["plain"].declared_task(root, {}) is None
    assert RUN.declared_task(root, action("shout", 1)) == TaskOptions(timeout=5)
    assert RUN.declared_task(root, action("plain", 1)) is None
    assert RUN.declared_task(root, {"model": "testapp.nothing", "action": "shout"}) is None
    assert RUN.declared_task(root, {}) is None


# Writes of many rows


def authors(count: int) -> list[int]:
    return [make_author(f"A{number}").pk for number in range(1, count + 1)]


def test_the_update_of_many_rows_begins_once_it_is_confirmed(root: Any) -> None:
    tool, arguments = UpdateRecord(), {"model": "testapp.author", "pks": authors(4), "values": {"name": "one"}}
    confirmed = token(root, tool, **arguments)
    assert begins(root, tool, **arguments, confirm_token=confirmed) == (None, 4, "default")


def test_the_deletion_of_many_rows_begins_once_it_is_confirmed(root: Any) -> None:
    tool, arguments = DeleteRecord(), {"model": "testapp.author", "pks": authors(4)}
    confirmed = token(root, tool, **arguments)
    assert begins(root, tool, **arguments, confirm_token=confirmed) == (None, 4, "default")


def test_rows_with_values_of_their_own_begin_at_once_where_none_asks(root: Any) -> None:
    rows = [{"pk": pk, "name": f"B{pk}"} for pk in authors(4)]
    assert begins(root, UpdateRecord(), model="testapp.author", rows=rows) == (None, 4, "default")


def test_several_writes_begin_by_the_rows_that_all_of_them_write(root: Any) -> None:
    one, *others = authors(4)
    writes = [
        {"op": "update", "model": "testapp.author", "pks": others, "values": {"name": "one"}},
        {"op": "delete", "model": "testapp.author", "pk": one},
    ]
    confirmed = token(root, WriteRecords(), writes=writes)
    assert begins(root, WriteRecords(), writes=writes, confirm_token=confirmed) == (None, 4, "default")


def test_taking_back_begins_by_the_rows_that_come_back(root: Any) -> None:
    desk = root.mcp.tasks
    as_task(root)
    rows = [{"pk": pk, "name": f"B{pk}"} for pk in authors(4)]
    change = call(UpdateRecord(), root, model="testapp.author", rows=rows)["change"]
    root.mcp.tasks = desk
    assert begins(root, UndoChange(), change=change) == (None, 4, "default")


def test_a_write_of_one_row_is_no_task(root: Any) -> None:
    call(CreateRecord(), root, model="testapp.author", values={"name": "Ada"})
    assert {rows for _, rows, _ in root.mcp.tasks.begun} == {0}


def test_a_write_that_is_only_tried_is_no_task(root: Any) -> None:
    arguments = {"model": "testapp.author", "pks": authors(4), "values": {"name": "one"}, "dry_run": True}
    call(UpdateRecord(), root, **arguments)
    assert not root.mcp.tasks.begun


def test_a_write_that_is_refused_never_begins(root: Any) -> None:
    arguments = {"model": "testapp.author", "pks": [*authors(4), 10_000], "values": {"name": "one"}}
    with pytest.raises(ToolError):
        UpdateRecord().call(root, arguments)
    assert not root.mcp.tasks.begun
