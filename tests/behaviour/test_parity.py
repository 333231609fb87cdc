"""The admin and the endpoint give the same verdicts: whatever the user, the permissions, the rows and the operation.

Every case is done in the admin's own views, undone, and done again through the endpoint. A caller may name
the rows that he may see and no others, which the admin's own forms do not look at: a case with another row is refused.
"""

import io
import logging
import os
from datetime import UTC, datetime
from typing import Any

import pytest
from django import forms
from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.models import CHANGE
from django.core.management import call_command
from django.db import transaction
from django.test import override_settings
from django.utils import timezone
from hypothesis import HealthCheck, Phase, assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

if not apps.is_installed("tests.parity.depot"):
    pytest.skip("needs the settings of the parity project", allow_module_level=True)

from example_project.shop.models import Document, Order, Product, Review, Shipment, StaffProfile, StockMovement
from tests.cases import drawn
from tests.parity import outcomes
from tests.parity.admin_side import AdminSide, request_as, seen
from tests.parity.cases import ZONES, contents_for, lines_for, make_person, missing_key, named_rows, value_for
from tests.parity.depot.data import make_depot
from tests.parity.depot.models import Crate, Shelf
from tests.parity.mcp_side import MCPSide
from tests.parity.outcomes import Outcome, undone

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.parity.urls")]

QUICK = {
    "PASSWORD_HASHERS": ["django.contrib.auth.hashers.MD5PasswordHasher"],
    "STORAGES": settings.STORAGES | {"default": {"BACKEND": "django.core.files.storage.InMemoryStorage"}},
    "MIDDLEWARE": [*settings.MIDDLEWARE, "tests.parity.admin_side.LeaveUnreadPagesBlank"],
    "MCP_DJANGO": settings.MCP_DJANGO | {"BASE_URL": "http://testserver", "RATES": {"calls": None}},
}
# Of 2,000 cases in all.
CASES = int(os.environ.get("PARITY_CASES", drawn(2000)))
MODELS = sorted(
    (model for model in admin.site._registry if model._meta.app_label in ("shop", "places")),
    key=lambda model: model._meta.label,
)
# The depot has few rows, and most of the hooks.
DEPOT = [Crate, Crate, Crate, Shelf]
SHELF_EDITS: list[tuple[str, Any]] = [("zone", "cold"), ("zone", "wet"), ("active", False)]
ACTIONS = ["mark_shipped", "cancel_orders", "recalculate_totals", "export_csv", "refund", "nothing"]
# The one whole year of the sample data, which ends yesterday.
YEAR = datetime.now(UTC).year - 1
# What the sidebar of the admin's list sends, and what a caller says for it.
FILTERS: dict[Any, list[tuple[dict[str, str], dict[str, Any]]]] = {
    Order: [
        ({"status__exact": "paid"}, {"status": "paid"}),
        ({"size": "large"}, {"size": "large"}),
        ({"size": "small", "status__exact": "shipped"}, {"size": "small", "status": "shipped"}),
        ({"created__year": f"{YEAR}"}, {"created__year": YEAR}),
        (
            {"created__gte": f"{YEAR}-01-01 00:00:00+00:00", "created__lt": f"{YEAR + 1}-01-01 00:00:00+00:00"},
            {"created": {"gte": f"{YEAR}-01-01", "lt": f"{YEAR + 1}-01-01"}},
        ),
    ],
    Review: [({"rating__exact": "5"}, {"rating": 5})],
    Product: [({"active__exact": "1"}, {"active": True})],
    StockMovement: [({"reason__exact": "sale"}, {"reason": "sale"})],
    Shipment: [
        ({"carrier__exact": "dhl"}, {"carrier": "dhl"}),
        ({"delivered_at__isempty": "1"}, {"delivered_at": None}),
    ],
    Crate: [({"state__exact": "sealed"}, {"state": "sealed"})],
    Shelf: [({}, {})],
}
# Columns by which both sort, with the path of what they sort by; rows that are equal have no order of their own.
ORDERS: dict[Any, list[tuple[str, str]]] = {
    Order: [("number", "number"), ("total", "total"), ("city", "customer__city__name"), ("created", "created")],
    Review: [("rating", "rating"), ("title", "title")],
    Product: [("price", "price"), ("name", "name")],
    StockMovement: [("quantity", "quantity")],
    Shipment: [("carrier", "carrier"), ("delivered_at", "delivered_at")],
    Crate: [("code", "code"), ("rank", "rank"), ("weight", "weight")],
    Shelf: [("name", "name"), ("zone", "zone")],
}
READING = ("list", "suggest", "view")
WORDS = ["", "a", "DE", "an er", "'", "100", "%", "ship", "C", "s1", "4", '"new york"', "x" * 30]


def load(name: str, **options: Any) -> None:
    call_command(name, stdout=io.StringIO(), stderr=io.StringIO(), **options)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Refusals are what this is about."""
    caplog.set_level(logging.CRITICAL)


@pytest.fixture(scope="module", autouse=True)
def example(django_db_setup: None, django_db_blocker: Any) -> Any:
    with override_settings(**QUICK), django_db_blocker.unblock(), transaction.atomic():
        load("load_places", min_population=3_000_000)
        load("load_shop", orders=20)
        make_depot()
        yield
        transaction.set_rollback(True)


def cases(share: float) -> Any:
    """Draw so many of all cases, always the same ones."""

    def decorate(test: Any) -> Any:
        drawn = given(st.data())(test)
        return hypothesis_settings(
            max_examples=max(5, int(CASES * share)),
            deadline=None,
            derandomize=True,
            database=None,
            # A case is small as it is drawn, and each step of making it smaller would take as long as the case.
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )(drawn)

    return decorate


def both(user: Any, name: str, *arguments: Any) -> tuple[Outcome, Outcome]:
    """Do it on both sides, each of them undone afterwards."""
    found = []
    before = outcomes.tables(arguments[0]) if name not in READING else {}
    for side in (AdminSide, MCPSide):
        with undone():
            outcome = getattr(side(user), name)(*arguments)
            outcome.rows, outcome.history = outcomes.rows(before), outcomes.history()
            found.append(outcome)
    return found[0], found[1]


def some_model(draw: Any) -> Any:
    return draw(st.sampled_from(DEPOT if draw(st.booleans()) else MODELS))


def some_pk(draw: Any, model: Any) -> Any:
    keys = list(model._base_manager.order_by("pk").values_list("pk", flat=True))
    return draw(st.sampled_from([*keys[:30], missing_key(model)]))


def sees_everything(user: Any) -> bool:
    """Return whether the user may open every row of the shop or of the depot."""
    depot = user.has_perms(["depot.view_shelf", "depot.view_crate"])
    names = [f"{model._meta.app_label}.view_{model._meta.model_name}" for model in MODELS]
    return depot or (user.has_perms(names) and not StaffProfile.objects.filter(user=user).exists())


def some_values(draw: Any, model: Any, fields: Any) -> dict[str, Any]:
    # A file is no text, and a row does not change its primary key: the admin would leave the old row and add another.
    closed = (forms.FileField,)
    names = sorted(n for n, field in fields.items() if not isinstance(field, closed) and n != model._meta.pk.name)
    chosen = draw(st.lists(st.sampled_from(names), max_size=3, unique=True)) if names else []
    return {name: value_for(draw, fields[name]) for name in chosen}


@cases(0.12)
def test_a_row_is_shown_to_the_same_people(data: st.DataObject) -> None:
    draw = data.draw
    with undone():
        model = some_model(draw)
        user, pk = make_person(draw, model, []), some_pk(draw, model)
        theirs, ours = both(user, "view", model, pk)
        assert ours.verdict == theirs.verdict, ours.shown


@cases(0.1)
def test_a_list_has_the_same_rows_in_the_same_order(data: st.DataObject) -> None:
    draw = data.draw
    with undone():
        model = some_model(draw)
        user = make_person(draw, model, [])
        search = draw(st.sampled_from(WORDS)) if admin.site.get_model_admin(model).search_fields else ""
        theirs, ours = both(user, "list", model, search, {}, "")
        if search and theirs.shown and not sees_everything(user):
            # The admin's search tells of related rows that its user may not open.
            assert ours.shown == [pk for pk in theirs.shown if pk in ours.shown]
            return
        assert (ours.verdict, ours.shown if theirs.shown is not None else None) == (theirs.verdict, theirs.shown)


@cases(0.12)
def test_a_list_is_filtered_and_sorted_alike(data: st.DataObject) -> None:
    draw = data.draw
    with undone():
        model = draw(st.sampled_from(list(FILTERS)))
        user = make_person(draw, model, ["view_customer", "view_city"])
        asked, said = draw(st.sampled_from([*FILTERS[model], ({}, {})]))
        column, path = draw(st.sampled_from(ORDERS[model]))
        order = draw(st.sampled_from(["", "-"])) + column
        client, browser = MCPSide(user), AdminSide(user)
        theirs, ours = browser.list(model, "", asked, order), client.list(model, "", said, order)
        assert ours.verdict == theirs.verdict, ours.shown
        if theirs.shown is not None:
            assert sorted(ours.shown) == sorted(theirs.shown)
            values = {str(pk): value for pk, value in model._base_manager.values_list("pk", path)}
            # What has no value is last in ours, and where the database puts it on the page.
            expected = sorted((values[pk] for pk in theirs.shown), key=lambda value: value is None)
            assert [values[pk] for pk in ours.shown] == expected


@cases(0.03)
def test_the_rows_of_a_relation_are_found_alike(data: st.DataObject) -> None:
    draw = data.draw
    with undone():
        user = make_person(draw, Crate, [])
        field = Crate._meta.get_field("shelf")
        theirs, ours = both(user, "suggest", field, draw(st.sampled_from(WORDS)))
        assert ours.verdict == theirs.verdict, ours.shown
        if theirs.shown is not None:
            choosable = {str(pk) for pk in Shelf.objects.filter(active=True).values_list("pk", flat=True)}
            assert [pk for pk in ours.shown if pk in choosable] == theirs.shown


def check_write(theirs: Outcome, ours: Outcome, is_nameable: bool) -> None:
    if not is_nameable or (theirs.verdict == "refused" and ours.verdict == "invalid"):
        # What the page has no control for, such as a row of another order, is not valid here. A model that a user may
        # add to or delete from, but not view, is not there at all.
        assert ours.verdict != "done", ours.shown
        assert not ours.history
        return
    assert (ours.verdict, ours.errors) == (theirs.verdict, theirs.errors), ours.shown
    assert ours.rows == theirs.rows
    # The admin has an entry for a row in which nothing was changed, and the endpoint has none.
    assert ours.history == [entry for entry in theirs.history if (entry[1], entry[3]) != (CHANGE, "")]


@cases(0.17)
def test_a_row_is_added_or_refused_alike(data: st.DataObject) -> None:
    draw = data.draw
    with undone(), timezone.override(draw(st.sampled_from(ZONES))):
        model = some_model(draw)
        assume(model is not Document)
        user = make_person(draw, model, [])
        fields = AdminSide(user).fields(model, None)
        values = {name: value_for(draw, field) for name, field in sorted(fields.items()) if draw(st.integers(0, 4))}
        values = {name: value for name, value in values.items() if "image" not in name}
        theirs, ours = both(user, "add", model, values)
        sees = seen(user)
        check_write(theirs, ours, all(sees(*row) for row in [(model, None), *named_rows(fields, values)]))


@cases(0.18)
def test_a_row_is_changed_or_refused_alike(data: st.DataObject) -> None:
    draw = data.draw
    with undone(), timezone.override(draw(st.sampled_from(ZONES))):
        model = some_model(draw)
        user, pk = make_person(draw, model, []), some_pk(draw, model)
        fields = AdminSide(user).fields(model, pk)
        values = some_values(draw, model, fields)
        if model is Crate and not draw(st.integers(0, 3)):
            # Not everybody has these, and nobody where the crate is closed.
            values |= draw(st.sampled_from([{"note": "n"}, {"weight": 3}, {"hidden": True}]))
        theirs, ours = both(user, "change", model, pk, values)
        sees = seen(user)
        check_write(theirs, ours, all(sees(*row) for row in [(model, None), *named_rows(fields, values)]))


@cases(0.04)
def test_a_field_of_the_list_is_written_or_refused_alike(data: st.DataObject) -> None:
    draw = data.draw
    with undone():
        model = draw(st.sampled_from([Crate, Shelf]))
        user, pk = make_person(draw, model, []), some_pk(draw, model)
        name, value = draw(st.sampled_from([("rank", "7"), ("rank", "x")] if model is Crate else SHELF_EDITS))
        theirs, ours = both(user, "edit", model, pk, name, value)
        # A row that the list leaves out may have a page all the same.
        assume(model is Crate or theirs.verdict != "refused")
        row = model._base_manager.filter(pk=pk).first()
        request = request_as(user)
        if row is not None and not admin.site.get_model_admin(model).has_change_permission(request, row):
            # The admin's list asks for the permission of the model alone.
            assert ours.verdict == "refused", ours.shown
            assert not ours.history
        else:
            check_write(theirs, ours, True)


@cases(0.1)
def test_the_rows_of_an_inline_are_written_or_refused_alike(data: st.DataObject) -> None:
    draw = data.draw
    with undone():
        model = draw(st.sampled_from([Order, Crate]))
        others = ("orderline",) if model is Order else ("item", "remark")
        user = make_person(
            draw, model, [f"{verb}_{name}" for name in others for verb in ("view", "add", "change", "delete")]
        )
        pk = some_pk(draw, model)
        fields = AdminSide(user).fields(model, pk)
        values = some_values(draw, model, fields) if draw(st.booleans()) else {}
        values |= {"lines": lines_for(draw, pk)} if model is Order else contents_for(draw, pk)
        theirs, ours = both(user, "change", model, pk, values)
        sees = seen(user)
        check_write(theirs, ours, all(sees(*row) for row in [(model, None), *named_rows(fields, values)]))


@cases(0.07)
def test_a_row_is_deleted_or_refused_alike(data: st.DataObject) -> None:
    draw = data.draw
    with undone():
        model = some_model(draw)
        related = ["delete_orderline", "delete_shipment", "delete_review", "delete_item", "delete_remark"]
        user = make_person(draw, model, related)
        pk = some_pk(draw, model)
        check_write(*both(user, "delete", model, pk), seen(user)(model, None))


@cases(0.07)
def test_an_action_does_the_same_or_nothing(data: st.DataObject) -> None:
    draw = data.draw
    with undone():
        model = draw(st.sampled_from([Order, Crate]))
        user = make_person(draw, model, ["refund_order"])
        sees = seen(user)
        keys = [pk for pk in model.objects.order_by("pk").values_list("pk", flat=True) if sees(model, pk)]
        picked = draw(st.lists(st.sampled_from(keys or [1]), min_size=1, max_size=4, unique=True))
        form = {"reason": draw(st.sampled_from(["late", "goodwill", "weather"])), "comment": "", "amount": "1.50"}
        name = draw(st.sampled_from(ACTIONS if model is Order else ["seal", "visit", "nothing"]))
        theirs, ours = both(user, "act", model, name, picked, form)
        crates = Crate.objects.filter(pk__in=picked) if name == "seal" else []
        request = request_as(user)
        if not all(admin.site.get_model_admin(Crate).has_change_permission(request, crate) for crate in crates):
            # The admin asks for the permission of the model alone.
            assert (ours.verdict, ours.history) == ("refused", []), ours.shown
            return
        assert ours.rows == theirs.rows, ours.shown
