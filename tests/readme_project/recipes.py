"""Run within the README's project, which has no `mcp.py` then: each recipe of the cookbook does what it promises.

Reads `{heading: source}` from standard input and prints what is wrong, one line each. Every recipe is declared in a
process of its own, on the project's own site.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.core import mail
from django.db import connection
from django.test import TestCase
from django.test.utils import setup_test_environment
from shop.models import Customer, Order

# What the first call loads is loaded once, and not in each child.
import mcp_django.oauth.urls
import mcp_django.transports.http.django_views  # noqa: F401
from mcp_django.testing import MCPClient

Check = Callable[[MCPClient, MCPClient, MCPClient], None]
CHECKS: dict[str, Check] = {}


def recipe(heading: str) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        CHECKS[heading] = check
        return check

    return add


def rows(client: MCPClient, model: str = "shop.order", **arguments: Any) -> list[Any]:
    result = client.call("query_records", model=model, **arguments)
    assert not result.is_error, result.text
    found: list[Any] = result.structured["rows"]
    return found


def names(client: MCPClient) -> set[str]:
    return {tool["name"] for tool in client.tools()}


@recipe("Show users only their own rows")
def own_rows(ada: MCPClient, reader: MCPClient, nobody: MCPClient) -> None:
    assert [row[1] for row in rows(ada)] == ["A-1", "A-2"]
    assert [row[1] for row in rows(reader)] == ["A-2"]
    assert reader.call("get_record", model="shop.order", pk="1").is_error


@recipe("Open a model to users who are not staff")
def not_staff(ada: MCPClient, reader: MCPClient, nobody: MCPClient) -> None:
    assert len(rows(reader)) == 2
    assert nobody.tools() == []


@recipe("Hide a field from some users")
def hidden_field(ada: MCPClient, reader: MCPClient, nobody: MCPClient) -> None:
    assert rows(ada, fields=["total"], filters={"total__gte": 10})
    assert reader.call("query_records", model="shop.order", filters={"total__gte": 10}).is_error


@recipe("Make one model read-only")
def read_only(ada: MCPClient, reader: MCPClient, nobody: MCPClient) -> None:
    assert len(rows(ada)) == 2
    assert ada.call("update_record", model="shop.order", pk="1", values={"status": "new"}).is_error
    assert not ada.call("update_record", model="shop.customer", pk="1", values={"name": "Grace H."}).is_error


@recipe("Add a computed column without a query for each row")
def computed(ada: MCPClient, reader: MCPClient, nobody: MCPClient) -> None:
    assert [row[2] for row in rows(ada, "shop.customer")] == [1, 1]


@recipe("Enforce a rule on every write")
def rule(ada: MCPClient, reader: MCPClient, nobody: MCPClient) -> None:
    refused = ada.call("update_record", model="shop.order", pk="1", values={"status": "shipped"})
    assert refused.is_error
    assert "A shipped order needs a carrier." in refused.text
    both = {"status": "shipped", "carrier": "UPS"}
    assert not ada.call("update_record", model="shop.order", pk="1", values=both).is_error


@recipe("Delete softly")
def softly(ada: MCPClient, reader: MCPClient, nobody: MCPClient) -> None:
    first = ada.call("delete_record", model="shop.order", pk="1")
    done = ada.call("delete_record", model="shop.order", pk="1", confirm_token=first.structured["confirm_token"])
    assert not done.is_error, done.text
    assert [row[1] for row in rows(ada)] == ["A-2"]
    assert Order.objects.get(pk=1).status == "deleted"
    assert "1 brought back" in ada.call("restore_order", number="A-1").text
    assert [row[1] for row in rows(ada)] == ["A-1", "A-2"]
    assert "restore_order" not in names(reader)


# Of the page about tenants
@recipe("By a column")
def tenant_column(ada: MCPClient, reader: MCPClient, nobody: MCPClient) -> None:
    linus = get_user_model().objects.get(username="Linus")
    # Customers are exposed by the admin, which is for staff.
    linus.is_staff = True
    linus.save()
    linus.groups.add(Group.objects.create(name="Linus"))
    linus.user_permissions.add(*Permission.objects.filter(codename__in=["change_order", "view_customer"]))
    assert rows(ada) == []
    assert [row[1] for row in rows(reader)] == ["A-2"]
    assert reader.call("aggregate_records", model="shop.order").structured["rows"] == [[1]]
    assert reader.call("update_record", model="shop.order", pk="1", values={"status": "new"}).is_error
    moved = reader.call("update_record", model="shop.order", pk="2", values={"customer": 1})
    assert "own customers only" in moved.text, moved.text
    assert not reader.call("update_record", model="shop.order", pk="2", values={"status": "new"}).is_error


# Of the page about actions
@recipe("Buttons of the change page")
def own_button(ada: MCPClient, reader: MCPClient, nobody: MCPClient) -> None:
    pressed = []
    model_admin = admin.site.get_model_admin(Order)
    vars(model_admin)["response_change"] = lambda request, obj: pressed.append(obj)
    assert not ada.call("update_record", model="shop.order", pk="1", values={"status": "new"}).is_error
    # The admin's page would have looked for its button.
    assert pressed == []
    assert "1 orders are paid" in ada.call("pay_orders_shop_order", pks=["1"]).text
    assert Order.objects.get(pk=1).status == "paid"


@recipe("Tell others only of writes that are done")
def told(ada: MCPClient, reader: MCPClient, nobody: MCPClient) -> None:
    arguments = {"model": "shop.order", "pk": "1", "values": {"status": "sent"}}
    tried = ada.call("update_record", **arguments, dry_run=True)
    assert "tell" in str(tried.structured["on_commit"]), tried.text
    assert mail.outbox == []
    # The transaction of this program is never committed.
    with TestCase.captureOnCommitCallbacks(execute=True):
        assert not ada.call("update_record", **arguments).is_error
    assert [message.body for message in mail.outbox] == ["A-1 is sent now."]


@recipe("Confirm an action that cannot be undone")
def confirmed(ada: MCPClient, reader: MCPClient, nobody: MCPClient) -> None:
    first = ada.call("cancel_shop_order", pks=["1"], reason="Lost")
    assert Order.objects.get(pk=1).status == "paid"
    token = first.structured["confirm_token"]
    ada.call("cancel_shop_order", pks=["1"], reason="Lost", confirm_token=token)
    assert Order.objects.get(pk=1).status == "cancelled"


@recipe("Return a typed result from a tool")
def typed(ada: MCPClient, reader: MCPClient, nobody: MCPClient) -> None:
    result = ada.call("revenue").structured
    assert (result["orders"], float(result["total"])) == (2, 30)
    (tool,) = (tool for tool in ada.tools() if tool["name"] == "revenue")
    assert set(tool["outputSchema"]["properties"]) == {"orders", "total"}


@recipe("Ask the user in the middle of a tool")
def asked(ada: MCPClient, reader: MCPClient, nobody: MCPClient) -> None:
    ada.answers, ada.capabilities = {"carrier": {"carrier": "UPS"}}, {"elicitation": {"form": {}}}
    result = ada.call("ship", order="1")
    assert "A-1 goes with UPS." in result.text, result.text


@recipe("Tell the model what to do instead")
def instead(ada: MCPClient, reader: MCPClient, nobody: MCPClient) -> None:
    assert not ada.call("refund", order="1").is_error
    again = ada.call("refund", order="1")
    assert again.is_error
    assert "use cancel instead" in again.text


@recipe("Offer a tool to some users only")
def some_users(ada: MCPClient, reader: MCPClient, nobody: MCPClient) -> None:
    assert "tax_rate" not in names(ada)
    assert "tax_rate" in names(nobody)


@recipe("Give a report as a file")
def report(ada: MCPClient, reader: MCPClient, nobody: MCPClient) -> None:
    (block,) = ada.call("order_report").content
    assert block["resource"]["mimeType"] == "text/csv"
    assert "A-1,10.00" in block["resource"]["text"]


@recipe("Give the model your house rules")
def house_rules(ada: MCPClient, reader: MCPClient, nobody: MCPClient) -> None:
    assert "30 days" in ada.read("shop://rules/returns")[0]["text"]


@recipe("Prepare a task as a prompt")
def prompted(ada: MCPClient, reader: MCPClient, nobody: MCPClient) -> None:
    messages = ada.request("prompts/get", name="triage", arguments={"order": "1"})["messages"]
    assert messages[1]["content"]["resource"]["uri"] == "django://shop/order/1"


@recipe("Announce changes that send no signals")
def announced(ada: MCPClient, reader: MCPClient, nobody: MCPClient) -> None:
    assert "2 shipped." in ada.call("ship_all").text


def prepare() -> tuple[Any, Any, Any]:
    """Make two orders, and users: one with all permissions, one who may view orders, one of the group finance."""
    Order.objects.all().delete()
    Customer.objects.all().delete()
    users = get_user_model().objects
    ada, reader, nobody = users.get(username="ada"), users.create_user("Linus"), users.create_user("eve")
    reader.user_permissions.add(Permission.objects.get(codename="view_order"))
    nobody.groups.add(Group.objects.create(name="finance"))
    for pk, (name, total) in enumerate([("Grace", 10), ("Linus", 20)], 1):
        customer = Customer.objects.create(pk=pk, name=name)
        Order.objects.create(pk=pk, number=f"A-{pk}", customer=customer, status="paid", total=total)
    return ada, reader, nobody


def run(heading: str, source: str) -> None:
    """Declare the recipe and check it, in a transaction that is never committed."""
    connection.set_autocommit(False)
    exec(compile(source, heading, "exec"), {"__name__": "recipe"})
    CHECKS[heading](*(MCPClient(user) for user in prepare()))


def failed(heading: str, source: str) -> bool:
    """Run it in a child of this process, which prints why it failed."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] != 0
    status = 1
    try:
        run(heading, source)
        status = 0
    except BaseException:
        print(heading, traceback.format_exc(), flush=True)
    finally:
        os._exit(status)


setup_test_environment()
given: dict[str, str] = json.load(sys.stdin)
print(*(f"{heading} has no test" for heading in given.keys() - CHECKS.keys()), sep="\n", end="")
connection.close()
for heading, source in given.items():
    failed(heading, source)
