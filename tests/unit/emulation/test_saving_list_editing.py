"""Fields that are edited in the admin's list alone are written by the list's own form."""

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.exceptions import ValidationError
from django.forms import BaseModelFormSet, ModelForm

from mcp_django import MCPSite
from mcp_django.context.request import MCPRequest
from mcp_django.scopes import Scope
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.write_tools import CreateRecord, UpdateRecord
from tests.factories import make_superuser
from tests.oddapp.admin import TaskAdmin, odd
from tests.oddapp.models import Task
from tests.tool_calls import call, refusal, request_of

pytestmark = pytest.mark.django_db
CREATE, UPDATE, DESCRIBE = CreateRecord(), UpdateRecord(), DescribeModel()
TASK = {"model": "oddapp.task"}


class RankForm(ModelForm):
    def clean_rank(self) -> int:
        if self.cleaned_data["rank"] == 13:
            raise ValidationError("Thirteen is bad luck.")
        return int(self.cleaned_data["rank"])


class RankFormSet(BaseModelFormSet):
    def clean(self) -> None:
        if any(form.cleaned_data.get("rank") == 14 for form in self.forms):
            raise ValidationError("Nobody is fourteenth.")


class Ranked(TaskAdmin):
    """Saves, and notes how it was asked to."""

    saved: Any = []
    formset = RankFormSet

    def get_changelist_form(self, request: Any, **kwargs: Any) -> Any:
        return super().get_changelist_form(request, **{"form": RankForm, **kwargs})

    def get_changelist_formset(self, request: Any, **kwargs: Any) -> Any:
        return super().get_changelist_formset(request, **{"formset": RankFormSet, **kwargs})

    def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
        self.saved.append((sorted(form.fields), request.method, change))
        super().save_model(request, obj, form, change)


@pytest.fixture
def root(monkeypatch: Any) -> MCPRequest:
    monkeypatch.setitem(odd._registry, Task, Ranked(Task, odd))
    monkeypatch.setattr(Ranked, "saved", [])
    return request_of(make_superuser(), MCPSite("odd", admin_site=odd), scopes=frozenset({Scope.READ, Scope.WRITE}))


def test_a_field_of_the_list_is_written_by_the_form_of_the_list(root: MCPRequest) -> None:
    task = Task.objects.create(name="", parent_id=987)
    assert call(UPDATE, root, **TASK, pk=task.pk, values={"rank": 5})["changed"] == ["rank"]
    task.refresh_from_db()
    assert (task.rank, task.parent_id, Ranked.saved) == (5, 987, [(["id", "rank"], "POST", True)])
    assert '"fields": ["Rank"]' in LogEntry.objects.get().change_message
    assert call(UPDATE, root, **TASK, pk=task.pk, values={"rank": 5})["changed"] == []
    assert LogEntry.objects.count() == 1


def test_fields_of_the_page_and_of_the_list_are_written_in_one_call(root: MCPRequest) -> None:
    task = Task.objects.create(name="a", parent_id=987)
    assert call(UPDATE, root, **TASK, pk=task.pk, values={"rank": 5, "name": "b"})["changed"] == ["name", "rank"]
    task.refresh_from_db()
    assert (task.name, task.rank, len(Ranked.saved)) == ("b", 5, 2)
    assert "\nrank: Thirteen" in refusal(UPDATE, root, **TASK, pk=task.pk, values={"rank": 13, "name": "c"})


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (13, "rank: Thirteen is bad luck."),
        (14, "(row): “Nobody is fourteenth.”"),
        ([1], "rank: Give one value"),
        ("much", "rank: Enter a whole number."),
        (101, "(row): “Constraint"),
    ],
)
def test_what_the_list_refuses_is_told_in_words(root: MCPRequest, value: Any, line: str) -> None:
    tasks = [Task.objects.create(name=name, parent_id=987) for name in "ab"]
    assert f"\n{line}" in refusal(UPDATE, root, **TASK, pk=tasks[0].pk, values={"rank": value})
    many = {"pks": [task.pk for task in tasks], "values": {"rank": value}}
    assert line.partition(": ")[2] in refusal(UPDATE, root, **TASK, **many)
    assert Ranked.saved == []


def test_many_rows_are_written_so(root: MCPRequest) -> None:
    tasks = [Task.objects.create(name=name, parent_id=987) for name in "ab"]
    arguments = {**TASK, "pks": [task.pk for task in tasks], "values": {"rank": 7}}
    token = call(UPDATE, root, **arguments)["confirm_token"]
    assert call(UPDATE, root, **arguments, confirm_token=token)["changed_rows"] == 2
    assert {*Task.objects.values_list("rank", flat=True)} == {7}


def test_it_is_described_as_writable_but_not_for_new_rows(root: MCPRequest) -> None:
    assert "rank integer update only," in call(DESCRIBE, root, **TASK)["fields"]
    described = call(DESCRIBE, root, **TASK, detail=True)
    assert "rank" in described["update_schema"]["properties"]
    assert "rank" not in described["input_schema"]["properties"]
    assert "cannot write 'rank'" in refusal(CREATE, root, **TASK, values={"name": "a", "rank": 1})


def test_a_column_that_is_not_shown_is_not_edited(root: MCPRequest, monkeypatch: Any) -> None:
    task = Task.objects.create(name="a", parent_id=987)
    monkeypatch.setattr(Ranked, "get_list_display", lambda self, request: ["name"])
    assert "cannot write 'rank'" in refusal(UPDATE, root, **TASK, pk=task.pk, values={"rank": 2})
