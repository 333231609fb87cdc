"""Approval rules hold for the ViewSets of a model, of whose calls nothing is known but the arguments."""

import pytest

from tests.approval_rules import approve, make_manager, make_rule
from tests.factories import make_superuser
from tests.restapp import views
from tests.restapp.calls import make_order, mcp
from tests.restapp.models import Order
from tests.restapp.site import site

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.restapp.urls")]


@pytest.fixture
def root():
    return make_superuser()


@pytest.fixture
def manager():
    return make_manager()


def waits(call):
    assert call.is_error is False, call.text
    assert call.structured.get("state") == "waiting", call.text
    return call.structured["change"]


def test_a_rule_on_a_model_holds_for_its_viewset(root, manager):
    make_rule(labels=["restapp.order"], condition={"total__gt": 100})
    order = make_order(root, "A1")
    number = waits(mcp(root).call("partial_update_orders", pk=order.pk, note="x"))
    order.refresh_from_db()
    assert order.note == ""
    change = approve(manager, number, site)
    assert change.state == "done", change.outcome
    order.refresh_from_db()
    assert order.note == "x"


def test_a_viewset_that_finds_its_rows_by_its_own_code_is_one_of_their_model(root, manager, monkeypatch):
    monkeypatch.setattr(views.OrderViewSet, "queryset", None)
    monkeypatch.setattr(views.OrderViewSet, "get_queryset", lambda view: Order.objects.all())
    make_rule(labels=["restapp.order"])
    waits(mcp(root).call("partial_update_orders", pk=make_order(root, "A1").pk, note="x"))


def test_rows_that_a_deletion_takes_with_it_count(root, manager):
    make_rule(labels=["restapp.item"], kinds=["delete"])
    order = make_order(root, "A1")
    assert not mcp(root).call("partial_update_orders", pk=order.pk, note="x").is_error
    order.refresh_from_db()
    assert order.note == "x"
    number = waits(mcp(root).call("destroy_orders", pk=order.pk))
    change = approve(manager, number, site)
    assert change.state == "done", change.outcome
    assert not Order.objects.exists()


def test_what_a_method_of_its_own_does_to_rows_is_not_known(root, manager):
    make_rule(labels=["restapp.order"], kinds=["update"])
    order = make_order(root, "A1")
    waits(mcp(root).call("mark_paid_orders", pk=order.pk))
    order.refresh_from_db()
    assert order.status == "new"
