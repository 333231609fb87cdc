"""Every example of the page on asking questions, asked of the example shop."""

import io
import json
import re
from pathlib import Path

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import transaction
from django.db.models import Count, F, Sum

if not apps.is_installed("example_project.shop"):
    pytest.skip("needs the settings of the example project", allow_module_level=True)

from evals.shop import quiet
from example_project.shop.models import Customer, Order, OrderLine, Product
from mcp_django.testing import MCPClient

pytestmark = pytest.mark.django_db
PAGE = (Path(__file__).parents[2] / "docs" / "asking.md").read_text()
CALLS = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
FILTERS = re.findall(r"^\| `(\{.*?\})` \|", PAGE, re.MULTILINE)
ROWS = re.findall(r"^\| (`(?:status|created|total)[^|]*) \|", PAGE, re.MULTILINE)
GROUPS = [name for row in ROWS for name in re.findall(r"`([^`]*)`", row)]


@pytest.fixture(scope="module", autouse=True)
def shop(django_db_setup, django_db_blocker):
    """The data of the example, loaded once and rolled back after the last test."""
    with quiet(), django_db_blocker.unblock(), transaction.atomic():
        # First: the history of the rows is that of the accounts.
        get_user_model().objects.create_superuser("admin")
        call_command("load_places", min_population=200_000, stdout=io.StringIO(), stderr=io.StringIO())
        call_command("load_shop", orders=300, stdout=io.StringIO(), stderr=io.StringIO())
        yield
        transaction.set_rollback(True)


@pytest.fixture
def client():
    return MCPClient(get_user_model().objects.get(username="admin"))


def answered(client, name, **arguments):
    result = client.call(name, **arguments)
    assert not result.is_error, result.text
    return result.structured


def test_the_examples_of_each_model_work_as_they_stand(client):
    labels = [row[0] for row in answered(client, "list_models")["rows"]]
    assert len(labels) > 10
    for label in labels:
        examples = answered(client, "describe_model", model=label)["examples"]
        assert [example["tool"] for example in examples] == ["query_records", "aggregate_records"]
        for example in examples:
            answered(client, example["tool"], **example["arguments"])


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call['name']} {call['arguments']['model']}")
def test_the_examples_find_something(client, call):
    arguments = dict(call["arguments"])
    if call["name"] == "get_record":
        arguments["pk"] = answered(client, "query_records", model=arguments["model"], limit=1)["rows"][0][0]
        found = answered(client, call["name"], **arguments)
        assert set(found["related"]) == {name.partition(":")[0] for name in arguments["related"]}
        return
    found = answered(client, call["name"], **arguments)
    never_sold = "lines" in arguments.get("filters", {})
    assert found["rows"] or never_sold
    assert len(CALLS) > 10


@pytest.mark.parametrize("text", FILTERS)
def test_the_filters_of_the_table_work(client, text):
    assert len(FILTERS) == 8
    answered(client, "query_records", model="shop.customer", filters=json.loads(text))


@pytest.mark.parametrize("text", GROUPS)
def test_the_groups_of_the_table_work(client, text):
    assert answered(client, "aggregate_records", model="shop.order", group_by=[text])["rows"]


def test_the_answers_are_those_of_the_orm(client):
    never = answered(client, "query_records", model="shop.product", filters={"lines": {"none": {}}}, limit=200)
    assert {row[0] for row in never["rows"]} == {str(product.pk) for product in Product.objects.filter(lines=None)}
    revenue = {"function": "sum", "field": "quantity*unit_price", "as": "revenue"}
    asked = {"model": "shop.orderline", "aggregates": [revenue], "group_by": ["product.category.name"], "limit": 200}
    sold = {name: float(value) for name, value in answered(client, "aggregate_records", **asked)["rows"]}
    expected = OrderLine.objects.values_list("product__category__name").annotate(
        revenue=Sum(F("quantity") * F("unit_price"))
    )
    assert sold == pytest.approx({name: float(value) for name, value in expected})
    refunded = {"function": "count", "where": {"status": "refunded"}, "as": "refunded"}
    counted = answered(client, "aggregate_records", model="shop.order", aggregates=[refunded, "count"])["rows"]
    assert counted == [[Order.objects.filter(status="refunded").count(), Order.objects.count()]]
    asked = {"model": "shop.customer", "filters": {"orders": {"count__gte": 2}}, "limit": 1, "count": True}
    busy = Customer.objects.annotate(number=Count("orders")).filter(number__gte=2).count()
    assert answered(client, "query_records", **asked)["count"] == busy
