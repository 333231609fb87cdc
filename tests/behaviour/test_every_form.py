"""Writes through forms as other people's packages make them: scripts, objects, rows within rows, stale rows."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django import forms
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.forms import BaseModelFormSet, modelformset_factory
from django.utils import timezone

from mcp_django import MCPSite
from mcp_django.context.request import MCPRequest
from mcp_django.scopes import Scope
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.write_tools import CreateRecord, UpdateRecord
from tests.factories import make_superuser, make_user
from tests.oddapp.admin import FlatPageAdmin, odd
from tests.oddapp.fields import Blocks, Money, Shape
from tests.oddapp.models import Detail, Kind, Page, Part, Task
from tests.tool_calls import call, refusal, request_of

pytestmark = pytest.mark.django_db
CREATE, UPDATE, GET, DESCRIBE = CreateRecord(), UpdateRecord(), GetRecord(), DescribeModel()
PAGE, TASK = {"model": "oddapp.page"}, {"model": "oddapp.task"}


@pytest.fixture
def root() -> MCPRequest:
    return request_of(make_superuser(), MCPSite("odd", admin_site=odd), scopes=frozenset({Scope.READ, Scope.WRITE}))


@pytest.fixture
def page() -> Page:
    made = Page.objects.create(title="Home", body=Blocks(["a", "b"]), price=Money(Decimal("2.50"), "EUR"))
    for name in ("one", "two"):
        part = Part.objects.create(page=made, name=name, body=Blocks([name]))
        Detail.objects.create(part=part, text=f"{name}, in detail")
    return made


def texts() -> list[str]:
    return list(Detail.objects.order_by("pk").values_list("text", flat=True))


# Widgets that scripts build


def test_a_field_that_is_not_named_keeps_its_value_without_its_widget(root: MCPRequest, page: Page) -> None:
    found = call(UPDATE, root, **PAGE, pk=page.pk, values={"title": "New"})
    page.refresh_from_db()
    assert (page.title, page.body, page.price) == ("New", ["a", "b"], Money(Decimal("2.50"), "EUR"))
    assert found["changed"] == ["title"]
    assert [part.body for part in Part.objects.order_by("pk")] == [["one"], ["two"]]
    assert '"fields": ["Title"]' in LogEntry.objects.get().change_message


def test_rows_of_inlines_keep_what_scripts_have_built(root: MCPRequest, page: Page) -> None:
    part = page.parts.get(name="two")
    call(UPDATE, root, **PAGE, pk=page.pk, values={"parts": [{"pk": part.pk, "name": "zwei"}]})
    part.refresh_from_db()
    assert (part.name, part.body) == ("zwei", ["two"])
    assert texts() == ["one, in detail", "two, in detail"]


def test_a_value_for_such_a_field_is_what_its_text_stands_for(root: MCPRequest, page: Page) -> None:
    found = call(UPDATE, root, **PAGE, pk=page.pk, values={"body": '["c", "d", "e"]'})
    page.refresh_from_db()
    assert (page.body, found["changed"]) == (["c", "d", "e"], ["body"])
    assert "body: A block is empty." in refusal(UPDATE, root, **PAGE, pk=page.pk, values={"body": '["c", " "]'})
    assert "body: Give a list of texts" in refusal(UPDATE, root, **PAGE, pk=page.pk, values={"body": "words"})


def test_a_new_row_gets_the_default_of_such_a_field(root: MCPRequest) -> None:
    call(CREATE, root, **PAGE, values={"title": "A"})
    call(CREATE, root, **PAGE, values={"title": "B", "body": '["x"]', "parts": [{"name": "p", "body": '["y"]'}]})
    assert [list(page.body) for page in Page.objects.order_by("pk")] == [[], ["x"]]
    assert Part.objects.get().body == ["y"]


# Rows within rows of inlines


def test_rows_within_rows_of_an_inline_stay_as_they_are(root: MCPRequest, page: Page) -> None:
    one, two = page.parts.order_by("pk")
    rows = [{"pk": one.pk, "name": "eins"}, {"pk": two.pk, "delete": True}, {"name": "three"}]
    found = call(UPDATE, root, **PAGE, pk=page.pk, values={"parts": rows})
    assert found["changed"] == ["parts"]
    assert list(page.parts.order_by("pk").values_list("name", flat=True)) == ["eins", "three"]
    assert texts() == ["one, in detail"]


def test_formsets_of_all_depths_in_one_list_do_no_harm(root: MCPRequest, page: Page, monkeypatch: Any) -> None:
    monkeypatch.setitem(odd._registry, Page, FlatPageAdmin(Page, odd))
    request = request_of(root.user, MCPSite("flat", admin_site=odd))
    part = page.parts.get(name="one")
    call(UPDATE, request, **PAGE, pk=page.pk, values={"title": "New"})
    call(UPDATE, request, **PAGE, pk=page.pk, values={"parts": [{"pk": part.pk, "name": "eins"}, {"name": "three"}]})
    call(CREATE, request, **PAGE, values={"title": "Other", "parts": [{"name": "first"}]})
    assert list(Part.objects.order_by("pk").values_list("name", flat=True)) == ["eins", "two", "three", "first"]
    assert texts() == ["one, in detail", "two, in detail"]
    assert [*call(GET, request, **PAGE, pk=page.pk)["inlines"]] == ["parts"]


# Values with a class of their own


def test_money_is_written_as_it_is_shown_and_by_its_parts(root: MCPRequest, page: Page) -> None:
    found = call(UPDATE, root, **PAGE, pk=page.pk, values={"price": "12.50 USD"})
    page.refresh_from_db()
    assert (page.price, found["changed"]) == (Money(Decimal("12.50"), "USD"), ["price"])
    call(UPDATE, root, **PAGE, pk=page.pk, values={"price": [3, "EUR"]})
    page.refresh_from_db()
    assert page.price == Money(Decimal(3), "EUR")
    call(UPDATE, root, **PAGE, pk=page.pk, values={"price": None})
    page.refresh_from_db()
    assert page.price is None
    assert call(UPDATE, root, **PAGE, pk=page.pk, values={"price": "12.50 USD"})["changed"] == ["price"]


def test_an_amount_alone_keeps_its_currency(root: MCPRequest, page: Page) -> None:
    call(UPDATE, root, **PAGE, pk=page.pk, values={"price": 5})
    page.refresh_from_db()
    assert page.price == Money(Decimal(5), "EUR")


@pytest.mark.parametrize("value", ["a lot", "12.50 XXX", [1], {"amount": 1}, True])
def test_what_is_no_money_is_refused_in_words(root: MCPRequest, page: Page, value: Any) -> None:
    assert "\nprice: " in refusal(UPDATE, root, **PAGE, pk=page.pk, values={"price": value})
    assert Page.objects.get().price == Money(Decimal("2.50"), "EUR")


def test_the_parts_of_a_value_are_described(root: MCPRequest) -> None:
    schema = call(DESCRIBE, root, **PAGE, detail=True)["input_schema"]["properties"]
    assert (schema["price"]["minItems"], schema["price"]["maxItems"]) == (2, 2)
    assert "decimal number" in schema["price"]["description"]
    assert "EUR" in schema["price"]["description"]
    assert "WKT, EWKT or GeoJSON" in schema["place"]["description"]
    assert "SRID 4326" in schema["place"]["description"]
    assert "place geometry" in call(DESCRIBE, root, **PAGE)["fields"]


# Geometries


@pytest.mark.parametrize(
    "value",
    [
        "POINT(4 5)",
        "SRID=4326;POINT (4 5)",
        {"type": "Point", "coordinates": [4, 5]},
        json.dumps({"type": "Point", "coordinates": [4.0, 5.0]}),
    ],
)
def test_a_geometry_has_the_srid_of_its_field_unless_it_says_another(root: MCPRequest, page: Page, value: Any) -> None:
    found = call(UPDATE, root, **PAGE, pk=page.pk, values={"place": value})
    page.refresh_from_db()
    assert page.place == Shape("POINT (4 5)", 4326)
    assert found["changed"] == ["place"]
    shown = call(GET, root, **PAGE, pk=page.pk)["fields"]["place"]
    assert call(UPDATE, root, **PAGE, pk=page.pk, values={"place": shown})["changed"] == []


def test_a_geometry_of_another_srid_is_transformed(root: MCPRequest, page: Page) -> None:
    call(UPDATE, root, **PAGE, pk=page.pk, values={"place": "SRID=3857;POINT (111319.49 222638.98)"})
    page.refresh_from_db()
    assert page.place == Shape("POINT (1 2)", 4326)


@pytest.mark.parametrize(
    "value", ["LINESTRING (1 2, 3 4)", "here", {"type": "Point"}, {"type": "Point", "coordinates": {"x": 1}}, [1, 2], 7]
)
def test_what_is_no_geometry_of_the_field_is_refused_in_words(root: MCPRequest, page: Page, value: Any) -> None:
    assert "\nplace: " in refusal(UPDATE, root, **PAGE, pk=page.pk, values={"place": value})


# Rows that would not be entered today


def test_what_is_not_named_is_not_validated(root: MCPRequest) -> None:
    old, gone = Kind.objects.create(name="old", active=False), 987
    task = Task.objects.create(name="", state="lost", kind=old, parent_id=gone)
    found = call(UPDATE, root, **TASK, pk=task.pk, values={"starts": "2026-01-02T10:00:00Z"})
    assert found["changed"] == ["starts"]
    task.refresh_from_db()
    assert (task.name, task.state, task.kind, task.parent_id) == ("", "lost", old, gone)
    assert task.starts == datetime(2026, 1, 2, 10, tzinfo=UTC)


def test_a_dangling_key_that_may_be_empty_stays_too(root: MCPRequest) -> None:
    task = Task.objects.create(name="a", parent_id=987)
    Task._meta.get_field("parent").null = True
    call(UPDATE, root, **TASK, pk=task.pk, values={"name": "b"})
    task.refresh_from_db()
    assert (task.name, task.parent_id) == ("b", 987)


def test_what_is_named_is_validated_with_the_rest_of_the_row(root: MCPRequest) -> None:
    kind = Kind.objects.create(name="k")
    Task.objects.create(name="taken", kind=kind)
    task = Task.objects.create(name="free", kind=kind)
    values = {"name": "taken"}
    assert "already exists" in refusal(UPDATE, root, **TASK, pk=task.pk, values=values)
    assert "\nstate: " in refusal(UPDATE, root, **TASK, pk=task.pk, values={"state": "lost"})
    kind.active = False
    kind.save()
    assert "\nkind: " in refusal(UPDATE, root, **TASK, pk=task.pk, values={"kind": kind.pk})


@pytest.mark.parametrize("hour", [0, 1])
def test_both_moments_of_an_ambiguous_hour_are_written_as_they_are_shown(root: MCPRequest, hour: int) -> None:
    moment = datetime(2025, 10, 26, hour, 30, tzinfo=UTC)
    task = Task.objects.create(name="a", starts=datetime(2025, 10, 26, 1 - hour, 30, tzinfo=UTC))
    with timezone.override(ZoneInfo("Europe/Berlin")):
        found = call(UPDATE, root, **TASK, pk=task.pk, values={"starts": moment.isoformat()})
        task.refresh_from_db()
        assert (task.starts, found["changed"]) == (moment, ["starts"])
        shown = call(GET, root, **TASK, pk=task.pk)["fields"]["starts"]
        assert call(UPDATE, root, **TASK, pk=task.pk, values={"starts": shown})["changed"] == []
        assert "ambiguous" in refusal(UPDATE, root, **TASK, pk=task.pk, values={"starts": "2025-10-26T02:30:00"})


# Odd pages


def site_of(monkeypatch: Any, options: type[Any], model: Any = Task) -> MCPRequest:
    """Return a request to a site where the model's admin is of this class."""
    monkeypatch.setitem(odd._registry, model, options(model, odd))
    return request_of(make_superuser(), MCPSite("own", admin_site=odd), scopes=frozenset({Scope.READ, Scope.WRITE}))


def test_links_to_rows_that_are_not_exposed_are_written_by_key_as_a_foreign_key_is(root: MCPRequest) -> None:
    ann, bob = make_user("ann"), make_user("bob")
    assert "watchers" in call(DESCRIBE, root, **TASK)["write_only"]
    values = {"name": "a", "parent": Kind.objects.create(name="k").pk, "watchers": [ann.pk, bob.pk]}
    task = Task.objects.get(pk=call(CREATE, root, **TASK, values=values)["pk"])
    assert {*task.watchers.all()} == {ann, bob}
    assert call(UPDATE, root, **TASK, pk=task.pk, values={"watchers": [bob.pk]})["changed"] == ["watchers"]
    call(UPDATE, root, **TASK, pk=task.pk, values={"name": "b"})
    assert {*task.watchers.all()} == {bob}
    assert "\nwatchers: " in refusal(UPDATE, root, **TASK, pk=task.pk, values={"watchers": [bob.pk, 987]})


def test_a_select_without_a_blank_posts_its_first_choice(monkeypatch: Any) -> None:
    class PositionForm(forms.ModelForm):
        position = forms.ChoiceField(choices=[("Group", [("first", "First")]), ("last", "Last")])

        class Meta:
            model = Task
            fields = ["name"]

    class Positioned(admin.ModelAdmin):
        form = PositionForm
        placed: Any = []

        def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
            self.placed.append(form.cleaned_data["position"])
            super().save_model(request, obj, form, change)

    request = site_of(monkeypatch, Positioned)
    assert call(DESCRIBE, request, **TASK)["write_only"] == "position"
    task = Task.objects.create(name="a", parent_id=987)
    call(UPDATE, request, **TASK, pk=task.pk, values={"name": "b"})
    call(UPDATE, request, **TASK, pk=task.pk, values={"position": "last"})
    assert Positioned.placed == ["first", "last"]
    assert "\nposition: " in refusal(UPDATE, request, **TASK, pk=task.pk, values={"position": None})


class KindFormSet(BaseModelFormSet):
    """All kinds, whatever the row."""

    def __init__(self, *args: Any, instance: Any = None, save_as_new: bool = False, **kwargs: Any) -> None:
        self.instance = instance
        super().__init__(*args, **kwargs)

    @classmethod
    def get_default_prefix(cls) -> str:
        return "kinds"


class KindInline(admin.TabularInline):
    model = Kind
    extra = 0
    fields = ["name"]

    def get_formset(self, request: Any, obj: Any = None, **kwargs: Any) -> Any:
        return modelformset_factory(Kind, formset=KindFormSet, fields=["name"], extra=0, can_delete=True)


def test_an_inline_without_a_relation_shows_what_its_formset_holds(monkeypatch: Any, caplog: Any) -> None:
    class WithKinds(admin.ModelAdmin):
        fields = ["name"]
        inlines = [KindInline]

    request = site_of(monkeypatch, WithKinds)
    kind, task = Kind.objects.create(name="k"), Task.objects.create(name="a", parent_id=987)
    assert call(GET, request, **TASK, pk=task.pk)["inlines"] == {"kind_set": [{"pk": kind.pk, "name": "k"}]}
    call(UPDATE, request, **TASK, pk=task.pk, values={"name": "b"})
    call(UPDATE, request, **TASK, pk=task.pk, values={"kind_set": [{"pk": kind.pk, "name": "l"}, {"name": "m"}]})
    assert list(Kind.objects.order_by("pk").values_list("name", flat=True)) == ["l", "m"]
    assert not caplog.records


def test_an_inline_that_cannot_be_shown_is_reported_once(monkeypatch: Any, caplog: Any) -> None:
    class Unrelated(admin.TabularInline):
        model = Kind

    class Broken(admin.ModelAdmin):
        fields = ["name"]
        inlines = [Unrelated]

    request, task = site_of(monkeypatch, Broken), Task.objects.create(name="a", parent_id=987)
    for _ in range(3):
        assert call(GET, request, **TASK, pk=task.pk)["fields"]["name"] == "a"
    assert [record.message for record in caplog.records] == [
        "The inline Unrelated of oddapp.task failed: what depends on it is left out"
    ]


def test_rows_with_dangling_keys_that_the_caller_may_only_view_do_no_harm(monkeypatch: Any) -> None:
    class Viewed(admin.TabularInline):
        model = Task
        fk_name = "kind"
        fields = ["name", "parent"]

        def has_change_permission(self, request: Any, obj: Any = None) -> bool:
            return False

    class KindAdmin(admin.ModelAdmin):
        inlines = [Viewed]

    request = site_of(monkeypatch, KindAdmin, Kind)
    kind = Kind.objects.create(name="k")
    task = Task.objects.create(name="a", kind=kind, parent_id=987)
    assert call(UPDATE, request, model="oddapp.kind", pk=kind.pk, values={"name": "l"})["changed"] == ["name"]
    rows = call(GET, request, model="oddapp.kind", pk=kind.pk)["inlines"]["task_set"]
    assert rows == [{"pk": task.pk, "name": "a", "parent": [987, None]}]
    values = {"task_set": [{"name": "new", "parent": kind.pk}]}
    assert call(UPDATE, request, model="oddapp.kind", pk=kind.pk, values=values)["changed"] == ["task_set"]
    assert "may not change" in refusal(
        UPDATE, request, model="oddapp.kind", pk=kind.pk, values={"task_set": [{"pk": task.pk, "name": "x"}]}
    )
