"""``get_task``: to whom it is offered, and what it tells."""

import json
from typing import Any

import pytest
from django.contrib import admin
from django.http import HttpRequest

import mcp_django as mcp
from mcp_django import MCPSite, ModelExposure, ToolError
from mcp_django.context.tool_results import ToolResult
from mcp_django.protocol.content import Text
from mcp_django.protocol.tasks import EXTENSION
from mcp_django.protocol.versions import Revisions
from mcp_django.scopes import Scope
from mcp_django.tools.get_task import GetTask
from tests.factories import make_superuser, make_user
from tests.testapp.models import Author, Book
from tests.tool_calls import request_of

pytestmark = pytest.mark.django_db


class Desk:
    """Tells what it was asked."""

    def __init__(self, *, makes_tasks: bool = True) -> None:
        self.makes_tasks = makes_tasks

    def told(self, task_id: str) -> ToolResult:
        return ToolResult(content=[Text(f"about {task_id}")])


class Plain(ModelExposure):
    fields = "__all__"
    actions = ("recount",)

    @mcp.action
    def recount(self, request: HttpRequest, queryset: Any) -> None: ...


class WithTask(Plain):
    @mcp.action(task=True)
    def recount(self, request: HttpRequest, queryset: Any) -> None: ...


class OfAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    actions = ("recount",)

    def recount(self, request: HttpRequest, queryset: Any) -> None: ...

    recount.mcp_task = True  # type: ignore[attr-defined]


class Dynamic(admin.ModelAdmin):  # type: ignore[type-arg]
    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        return {"recount": (OfAdmin.recount, "recount", "Recount")}


def site_of(*exposures: type[ModelExposure]) -> MCPSite:
    site = MCPSite("tasks")
    for model, exposure in zip((Author, Book), exposures, strict=False):
        site.register(model, exposure)
    return site


def site_of_admin(kind: type[Any]) -> MCPSite:
    admin_site = admin.AdminSite(name="admin")
    admin_site.register(Author, kind)
    return MCPSite("tasks", admin_site=admin_site)


def site_with_function(**options: Any) -> MCPSite:
    def export(request: HttpRequest) -> None:
        """Export."""

    site = MCPSite("tasks")
    site.add_tool(export, **options)
    return site


def offers(site: MCPSite, user: Any = None, *, desk: Any = None, **options: Any) -> bool:
    options.setdefault("scopes", frozenset({Scope.READ, Scope.WRITE}))
    request = request_of(user or make_superuser(), site, version=Revisions.LATEST, **options)
    request.mcp.tasks = desk or Desk()
    listed = "get_task" in {tool.name for tool in site.get_tools(request)}
    assert (site.get_tool(request, "get_task") is not None) is listed
    return listed


def test_it_is_not_offered_where_no_tool_can_become_a_task() -> None:
    assert not offers(site_of(Plain))


@pytest.mark.parametrize(
    "site",
    [
        site_of(WithTask),
        site_of(Plain, WithTask),
        site_of_admin(OfAdmin),
        site_of_admin(Dynamic),
        site_with_function(task=True),
        site_with_function(task=mcp.task(timeout=5), read_only=True),
    ],
)
def test_it_is_offered_where_a_function_or_an_action_can_become_a_task(site: MCPSite) -> None:
    assert offers(site)


def test_it_is_not_offered_to_callers_who_have_no_such_tool() -> None:
    assert not offers(site_of(WithTask), make_user("ada", "testapp.view_author"))
    assert offers(site_of(WithTask), make_user("bob", "testapp.view_author", "testapp.change_author"))
    assert not offers(site_with_function(task=True, permissions=["testapp.add_author"]), make_user("cid"))


def test_it_is_not_offered_to_tokens_that_have_no_such_tool() -> None:
    root = make_superuser()
    assert not offers(site_of(WithTask), root, scopes=frozenset({Scope.READ}))
    assert not offers(site_with_function(task=True), root, scopes=frozenset({Scope.READ}))
    assert offers(site_with_function(task=True, read_only=True), root, scopes=frozenset({Scope.READ}))


def test_it_is_not_offered_to_clients_that_take_tasks() -> None:
    assert not offers(site_of(WithTask), capabilities={"extensions": {EXTENSION: {}}})


def test_it_is_not_offered_where_there_are_no_tasks() -> None:
    assert not offers(site_of(WithTask), desk=Desk(makes_tasks=False))
    request = request_of(make_superuser("other"), site_of(WithTask))
    assert not GetTask().has_permission(request)


def test_what_is_registered_later_counts() -> None:
    site, root = site_of(Plain), make_superuser()
    assert not offers(site, root)
    site.register(Book, WithTask)
    assert offers(site, root)


def test_it_tells_what_the_desk_tells() -> None:
    request = request_of(make_superuser())
    request.mcp.tasks = Desk()  # type: ignore[assignment]
    assert GetTask().call(request, {"task": "abc"}).content == [Text("about abc")]


@pytest.mark.parametrize("arguments", [{}, {"task": ""}, {"task": 5}, {"task": ["abc"]}, {"task": "abc", "more": 1}])
def test_it_takes_one_task(arguments: dict[str, Any]) -> None:
    request = request_of(make_superuser())
    request.mcp.tasks = Desk()  # type: ignore[assignment]
    with pytest.raises(ToolError):
        GetTask().call(request, arguments)


def test_it_costs_few_tokens() -> None:
    assert len(json.dumps(GetTask().definition(), separators=(",", ":"))) < 340
