from types import SimpleNamespace

import pytest
from django.http import HttpRequest

import mcp_django as mcp
from mcp_django.exposures.declared_actions import Action, ActionOptions
from mcp_django.functions.asked_parameters import finished
from tests.tool_calls import request_of


def test_a_generator_runs_to_its_end_without_mcp():
    seen, request = [], request_of(None)

    class Admin:
        @mcp.action
        def work(self, request, queryset):
            """Work."""
            seen.append(queryset)
            yield 1, 2
            seen.append("end")
            return "done"

        @mcp.action
        def plain(self, request, queryset):
            return queryset

    assert Admin().work(HttpRequest(), "rows") == "done"
    assert seen == ["rows", "end"]
    assert finished(request, Admin().work(request, "rows")) == "done"
    assert request.mcp.last_progress is None
    assert Admin.work.__doc__ == "Work."
    assert Admin().plain(HttpRequest(), 5) == 5


def test_an_action_carries_what_was_declared_of_it():
    @mcp.action(permissions=["view"], description="Look.", destructive=False, read_only=True)
    def look(self, request, queryset): ...

    assert look.mcp_action == ActionOptions(
        permissions=("view",), description="Look.", destructive=False, read_only=True
    )


def test_an_option_that_there_is_not_is_refused_where_it_is_written():
    with pytest.raises(TypeError, match="dangerous"):

        @mcp.action(dangerous=True)
        def look(self, request, queryset): ...


def test_an_action_asks_for_nothing_unless_its_kind_does() -> None:
    bare = Action(SimpleNamespace(label="testapp.author"), "archive", ActionOptions())
    assert bare.fields == {}
    assert bare.asks_for == []
