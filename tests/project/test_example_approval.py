"""What the example tells of approval: a refund above 100 waits for the manager, as its page in the docs says."""

import io
import json
import re

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

if not apps.is_installed("example_project.shop"):
    pytest.skip("needs the settings of the example project", allow_module_level=True)

from example_project.shop.management.commands.create_rules import NAME
from example_project.shop.models import Order, Review
from mcp_django.approvals.rules import rule_book
from mcp_django.console.approval_rule_form import ApprovalRuleForm
from mcp_django.models import ApprovalRequest, ApprovalRule, Change
from mcp_django.testing import MCPClient
from tests.documentation import DOCS, blocks_of, section

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shop", "rules")]
SHOP_ORDERS = 200
PAGE = DOCS / "approval.md"


@pytest.fixture
def rules():
    """The rules of the demo, in force."""
    create_rules()
    yield
    rule_book.expire()


@pytest.fixture
def order():
    found = Order.objects.filter(total__gt=150).first()
    Order.objects.filter(pk=found.pk).update(status="delivered")
    return found


def create_rules():
    call_command("create_rules", stdout=io.StringIO())
    rule_book.expire()


def client_of(name):
    return MCPClient(get_user_model().objects.get(username=name))


def refund(client, order, **form):
    return client.call("refund_shop_order", pks=[order.number], form={"reason": "late", **form})


def waits(call):
    assert not call.is_error, call.text
    assert call.structured["state"] == "waiting", call.text
    return call.structured["change"]


def browser(name):
    found = Client()
    assert found.login(username=name, password=name)
    return found


def page_of(number):
    return f"{reverse('admin:mcp_django_console_approvals')}?request={number}"


def status_of(order):
    return Order.objects.get(pk=order.pk).status


def test_a_refund_above_100_waits_for_the_manager_and_is_made_once(order):
    client = client_of("admin")
    number = waits(refund(client, order, amount="120"))
    assert waits(refund(client, order, amount="120")) == number
    assert status_of(order) == "delivered"
    page = browser("manager").get(page_of(number)).text
    assert 'name="yes"' in page
    assert order.number in page
    assert "120" in page
    assert 'name="yes"' not in browser("admin").get(page_of(number)).text
    browser("manager").post(page_of(number), {"request": number, "yes": "1"})
    assert status_of(order) == "refunded"
    assert order.payments.filter(event="refunded", amount=120).count() == 1
    assert refund(client, order, amount="120").structured["done"] is True
    browser("manager").post(page_of(number), {"request": number, "yes": "1"})
    assert order.payments.filter(event="refunded").count() == 1


def test_a_refund_up_to_100_is_confirmed_by_its_own_user(order):
    asked = refund(client_of("admin"), order, amount="100")
    assert asked.structured["confirmation_required"]
    assert not ApprovalRequest.objects.exists()


def test_a_refund_without_an_amount_is_one_of_the_total(order):
    waits(refund(client_of("admin"), order))


def test_the_no_of_the_manager_is_told_with_its_word(order):
    client = client_of("admin")
    number = waits(refund(client, order, amount="120"))
    browser("manager").post(page_of(number), {"request": number, "no": "1", "word": "It came in time."})
    refused = refund(client, order, amount="120")
    assert refused.is_error
    assert "It came in time." in refused.text
    assert status_of(order) == "delivered"


def test_nobody_but_the_manager_decides(order):
    number = waits(refund(client_of("admin"), order, amount="120"))
    for name in ("admin", "auditor", "warehouse"):
        answer = browser(name).post(page_of(number), {"request": number, "yes": "1"})
        assert answer.status_code in (302, 403, 404), name
    assert Change.objects.get(pk=number).state == "waiting"


def calls(order):
    """Return calls of the demo that write, act, or only look."""
    line = {"pk": order.lines.first().pk, "quantity": 7}
    return {
        "write": ("update_record", {"model": "shop.order", "pk": order.pk, "values": {"note": "Call first"}}),
        "inline": ("update_record", {"model": "shop.order", "pk": order.pk, "values": {"lines": [line]}}),
        "action": ("run_action", {"model": "shop.order", "action": "mark_shipped", "pks": [order.pk]}),
        "export": ("run_action", {"model": "shop.order", "action": "export_csv", "pks": [order.pk]}),
        "viewset": ("partial_update_reviews", {"pk": Review.objects.first().pk, "title": "Fine"}),
    }


@pytest.mark.parametrize(
    ("rule", "waiting"),
    [
        ({"labels": ["shop.customer"], "kinds": ["delete"]}, set()),
        ({"labels": ["shop.orderline"], "kinds": ["update"]}, {"inline"}),
        ({"labels": ["shop.order"], "kinds": ["action"]}, {"action"}),
        ({"labels": ["shop.review"], "kinds": ["update"], "condition": {"rating__gt": 90}}, {"viewset"}),
        ({"kinds": ["tool"]}, {"viewset"}),
        ({"rows_above": 10}, set()),
    ],
)
def test_a_rule_reaches_what_the_documentation_says(order, rule, waiting):
    ApprovalRule.objects.all().delete()
    ApprovalRule.objects.create(name="Reaches", permission="shop.approve_refund", **rule)
    rule_book.expire()
    found = set()
    for name, (tool, arguments) in calls(order).items():
        call = client_of("admin").call(tool, **arguments)
        assert not call.is_error, call.text
        if isinstance(call.structured, dict) and call.structured.get("state") == "waiting":
            found.add(name)
    assert found == waiting


def test_the_rule_is_made_once_and_stays_as_somebody_edited_it():
    ApprovalRule.objects.filter(name=NAME).update(is_active=False)
    create_rules()
    assert ApprovalRule.objects.get().is_active is False


def test_the_answer_in_the_documentation_is_the_one_of_the_demo(order):
    (told,) = [json.loads(block.text) for block in blocks_of(PAGE) if block.language == "json"]
    found = refund(client_of("admin"), order, amount="120").structured
    assert found.keys() == told.keys()
    number = str(found["change"])
    for name, value in told.items():
        shown = str(value).replace("42", number).replace("2026-0000993", order.number)
        if name == "message":
            shown, answered = (re.sub(r"until .+", "", text) for text in (shown, found[name]))
            assert shown == answered
        else:
            assert str(found[name]) == shown, name


def test_the_conditions_in_the_documentation_fit_the_orders_of_the_demo():
    table = section(PAGE, "Conditions")
    conditions = re.findall(r"^\| `(\{.+?\})` \|", table, re.MULTILINE)
    assert len(conditions) >= 6
    assert json.dumps(ApprovalRule.objects.get().condition) == conditions[-1]
    for number, condition in enumerate(conditions):
        given = {"name": f"Rule {number}", "effect": "require", "labels": ["shop.order"], "condition": condition}
        form = ApprovalRuleForm({**given, "permission": "shop.approve_refund", "hours": "72"})
        assert form.is_valid(), (condition, form.errors)
