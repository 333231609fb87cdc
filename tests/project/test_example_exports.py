"""What the example tells of files that leave the chat: the orders of a year, for somebody's spreadsheet."""

import csv
import io
from zipfile import ZipFile

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model

if not apps.is_installed("example_project.shop"):
    pytest.skip("needs the settings of the example project", allow_module_level=True)

from example_project.shop.models import Order
from mcp_django.exports.kept_exports import KeptExport
from mcp_django.testing import MCPClient
from tests.confirming import path_of, signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("shop")]
SHOP_ORDERS = 200
ASKED = {"model": "shop.order", "fields": ["number", "customer", "country", "total"], "ordering": ["created"]}


@pytest.fixture(autouse=True)
def exports(settings, tmp_path):
    """The folder of the demo's exports, elsewhere."""
    disk = settings.STORAGES["mcp_exports"]
    settings.STORAGES = {**settings.STORAGES, "mcp_exports": {**disk, "OPTIONS": {"location": tmp_path}}}
    return tmp_path


def user(name):
    return get_user_model().objects.get(username=name)


def exported(name, **arguments):
    told = MCPClient(user(name)).call("export_records", **{**ASKED, **arguments})
    assert not told.is_error, told.text
    return told.structured


def downloaded(name, told):
    response = signed_in(user(name)).get(path_of(told["url"]))
    assert response.status_code == 200
    return b"".join(response.streaming_content)


def test_all_orders_leave_the_chat_as_a_table():
    told = exported("admin")
    rows = list(csv.DictReader(io.StringIO(downloaded("admin", told).decode("utf-8-sig"))))
    assert len(rows) == told["rows"] == Order.objects.count() == SHOP_ORDERS
    stored = Order.objects.order_by("created", "pk").values_list("number", "customer__name", "total")
    assert [(row["number"], row["customer.label"], row["total"]) for row in rows] == [
        (number, name, str(total)) for number, name, total in stored
    ]


def test_the_warehouse_takes_its_own_orders_only():
    rows = csv.DictReader(io.StringIO(downloaded("warehouse", exported("warehouse")).decode("utf-8-sig")))
    assert {row["country"] for row in rows} == {"DE"}


def test_the_link_of_the_admin_is_worth_nothing_to_the_manager():
    path = path_of(exported("admin")["url"])
    assert signed_in(user("manager")).get(path).status_code == 404


def test_totals_leave_it_as_a_workbook(exports):
    told = exported(
        "auditor", fields=[], ordering=[], group_by=["country"], aggregates=["count", "sum:total"], format="xlsx"
    )
    with ZipFile(io.BytesIO(downloaded("auditor", told))) as book:
        assert book.testzip() is None
    assert told["rows"] == Order.objects.values("country").distinct().count()
    (row,) = KeptExport.rows()
    assert (exports / row.stored).stat().st_size == row.size
