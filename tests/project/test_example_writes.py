"""What the example tells of writes: a round of prices, a merge, and a change of many rows that is taken back."""

import json
from decimal import ROUND_HALF_UP, Decimal

import pytest
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model

if not apps.is_installed("example_project.shop"):
    pytest.skip("needs the settings of the example project", allow_module_level=True)

from evals.trials import digests
from example_project.shop.models import Customer, Order, Product, Review
from example_project.shop.sampledata import stories
from example_project.shop.views import QUESTIONS
from mcp_django.testing import MCPClient
from tests.documentation import DOCS, blocks_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shop")]
# Fewer than the evals have, as each test reads all rows several times.
SHOP_ORDERS = 200

ROUND = {
    "model": "shop.product",
    "filters": {"category.name": "Knives"},
    "values": {"price": {"field": "price*1.05", "round": "0.10"}},
}
CANCELLATION = {"model": "shop.order", "filters": {"status": "pending"}, "values": {"status": "cancelled"}}


def manager(**answers):
    """Return the client of the demo's manager, who answers what is asked, or cannot be asked."""
    return MCPClient(get_user_model().objects.get(username="admin"), answers=answers or None)


def done(client, tool, **arguments):
    """Call a tool; where it gives a preview, show that nothing is done yet, and call again with its token."""
    before = digests()
    result = client.call(tool, **arguments)
    assert not result.is_error, result.text
    if not result.structured.get("confirmation_required"):
        return result.structured, {}
    assert digests() == before
    preview = result.structured
    result = client.call(tool, **arguments, confirm_token=preview["confirm_token"])
    assert not result.is_error, result.text
    return result.structured, preview["difference"]


def prices():
    return dict(Product.objects.filter(category__name="Knives").values_list("sku", "price"))


def raised(price):
    return (price * Decimal("1.05") * 10).quantize(Decimal(1), ROUND_HALF_UP) / 10


def merge():
    """Return the writes that make the two customers one, as a model sends them that has found their keys."""
    former, present = (Customer.objects.get(name=name).pk for name in (stories.FORMER_NAME, stories.PRESENT_NAME))
    moved = {"filters": {"customer": former}, "values": {"customer": present}}
    return [
        {"op": "update", "model": "shop.order", **moved},
        {"op": "update", "model": "shop.review", **moved},
        {"op": "delete", "model": "shop.customer", "pk": former},
    ]


def test_the_start_page_asks_for_each_story():
    asked = " ".join(QUESTIONS)
    for words in ("all knives by five per cent", stories.FORMER_NAME, stories.PRESENT_NAME, "Then take that back"):
        assert words in asked


def test_a_round_of_prices_is_tried_made_and_taken_back():
    client, before, state = manager(), prices(), digests()
    tried = client.call("update_record", **ROUND, dry_run=True)
    assert not tried.is_error, tried.text
    assert tried.structured["counts"] == {"shop.product": {"changed": len(before)}}
    assert prices() == before
    written, difference = done(client, "update_record", **ROUND, version=tried.structured["version"])
    assert difference["summary"] == f"{len(before)} products: price"
    assert prices() == {sku: raised(price) for sku, price in before.items()} != before
    assert {name for name, digest in digests().items() if digest != state[name]} == {"Product"}
    undone, difference = done(client, "undo_change", change=written["change"])
    assert undone["undone"]
    assert len(difference["changed"]["shop.product"]) == 20
    assert digests() == state


def test_prices_that_changed_since_they_were_tried_are_not_raised():
    client = manager()
    tried = client.call("update_record", **ROUND, dry_run=True)
    Product.objects.filter(category__name="Knives").update(price=5)
    refused = client.call("update_record", **ROUND, version=tried.structured["version"])
    assert refused.is_error
    assert set(prices().values()) == {Decimal(5)}


def test_two_customers_become_one_in_one_call_and_two_again():
    client, writes, state = manager(_confirm=True), merge(), digests()
    former = Customer.objects.get(name=stories.FORMER_NAME)
    present = Customer.objects.get(name=stories.PRESENT_NAME)
    orders, reviews = (set(model.objects.filter(customer=former)) for model in (Order, Review))
    tried = client.call("write_records", writes=writes, dry_run=True)
    assert not tried.is_error, tried.text
    assert tried.structured["counts"] == {
        "shop.order": {"changed": len(orders)},
        "shop.review": {"changed": len(reviews)},
        "shop.customer": {"deleted": 1},
    }
    assert tried.structured["summary"].endswith("customer Ada Ibarra deleted")
    assert digests() == state
    written = client.call("write_records", writes=writes)
    assert not written.is_error, written.text
    assert orders <= set(present.orders.all())
    assert reviews <= set(present.reviews.all())
    assert not Customer.objects.filter(pk=former.pk).exists()
    undone = client.call("undo_change", change=written.structured["change"])
    assert not undone.is_error, undone.text
    assert digests() == state
    assert set(former.orders.all()) == orders


def test_a_merge_that_is_declined_leaves_two_customers():
    state = digests()
    declined = manager(_confirm=None).call("write_records", writes=merge())
    assert declined.is_error
    assert digests() == state


def test_whoever_deletes_a_customer_first_is_shown_what_would_go():
    """Reviews go with their customer; orders hold it back."""
    client = manager()
    former = Customer.objects.get(name=stories.FORMER_NAME)
    [orders, reviews, deletion] = merge()
    tried = client.call("write_records", writes=[orders, deletion], dry_run=True)
    assert not tried.is_error, tried.text
    assert tried.structured["counts"]["shop.review"] == {"deleted": former.reviews.count()}
    refused = client.call("write_records", writes=[reviews, deletion], dry_run=True)
    assert refused.is_error
    assert former.orders.exists()


def test_a_cancellation_of_many_orders_is_taken_back():
    client, state = manager(), digests()
    pending = set(Order.objects.filter(status="pending"))
    other = Order.objects.exclude(status="pending").first()
    written, difference = done(client, "update_record", **CANCELLATION)
    assert difference["summary"].startswith(f"{len(pending)} orders: status pending -> cancelled")
    assert set(Order.objects.filter(status="cancelled")) >= pending
    # What others write meanwhile to another column stays.
    Order.objects.filter(pk=min(order.pk for order in pending)).update(note="Call first")
    undone, _ = done(client, "undo_change", change=written["change"])
    assert undone["undone"]
    assert set(Order.objects.filter(status="pending")) == pending
    assert Order.objects.filter(note="Call first").count() == 1
    assert {name for name, digest in digests().items() if digest != state[name]} == {"Order"}
    assert Order.objects.get(pk=other.pk).status == other.status


def test_an_order_that_was_sent_meanwhile_holds_the_way_back():
    client = manager()
    written, _ = done(client, "update_record", **CANCELLATION)
    cancelled = Order.objects.filter(status="cancelled")
    order = cancelled.latest("created")
    Order.objects.filter(pk=order.pk).update(status="shipped")
    refused = client.call("undo_change", change=written["change"])
    assert refused.is_error
    assert order.number in refused.text
    assert not Order.objects.filter(status="pending").exists()


def test_the_clerk_of_one_country_changes_its_orders_alone():
    clerk = MCPClient(get_user_model().objects.get(username="warehouse"))
    pending = Order.objects.filter(status="pending")
    # Not on each day there are open orders of Germany and of others.
    for orders in (Order.objects.filter(country="DE"), Order.objects.exclude(country="DE")):
        Order.objects.filter(pk__in=orders.values("pk")[:2]).update(status="pending")
    elsewhere = set(pending.exclude(country="DE"))
    own = set(pending.filter(country="DE"))
    assert own
    assert elsewhere
    written, difference = done(clerk, "update_record", **CANCELLATION)
    assert difference["counts"] == {"shop.order": {"changed": len(own)}}
    assert set(Order.objects.filter(status="pending")) == elsewhere
    done(clerk, "undo_change", change=written["change"])
    assert set(Order.objects.filter(status="pending")) == own | elsewhere


def test_the_history_of_the_admin_has_both_ways():
    client = manager()
    order = Order.objects.filter(status="pending").first()
    history = LogEntry.objects.filter(object_id=str(order.pk), content_type__model="order")
    before = history.count()
    written, _ = done(client, "update_record", **CANCELLATION)
    done(client, "undo_change", change=written["change"])
    assert history.count() == before + 2


def examples():
    """Return the calls and answers in the documentation of writes, in their order."""
    return [json.loads(block.text) for block in blocks_of(DOCS / "safe-writes.md") if block.language == "json"]


def test_the_difference_in_the_documentation_is_the_one_of_its_merge():
    former, present = (Customer.objects.get(name=name) for name in (stories.FORMER_NAME, stories.PRESENT_NAME))
    former.reviews.all().delete()
    orders = former.orders.count()
    [moved, _, deletion] = merge()
    told = next(example for example in examples() if "summary" in example)
    tried = manager().call("write_records", writes=[moved, deletion], dry_run=True)
    assert not tried.is_error, tried.text
    found = tried.structured
    assert found.keys() - told.keys() <= {"next"}
    assert found["summary"] == told["summary"].replace("5 orders", f"{orders} orders")
    assert found["counts"] == {**told["counts"], "shop.order": {"changed": orders}}
    assert found["deleted"] == {"shop.customer": [[former.pk, former.name]]}
    [row, *_] = found["changed"]["shop.order"]
    assert row.keys() == told["changed"]["shop.order"][0].keys()
    assert row["columns"] == {"customer": [[former.pk, former.name], [present.pk, present.name]]}


def test_the_calls_in_the_documentation_can_be_made():
    client = manager()
    calls = [example for example in examples() if {"rows", "writes"} & example.keys()]
    assert len(calls) >= 2
    for arguments in calls:
        tool = "write_records" if "writes" in arguments else "update_record"
        tried = client.call(tool, **arguments, dry_run=True)
        assert not tried.is_error, tried.text
        written, difference = done(client, tool, **arguments)
        assert difference["summary"] == tried.structured["summary"]
        assert not client.call("undo_change", change=written["change"], dry_run=True).is_error
