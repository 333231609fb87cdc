"""Tables that Django does not make: views of the database, which are read like tables and not written."""

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection

from mcp_django import site
from mcp_django.testing import MCPClient
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import CreateRecord, DeleteRecord, UpdateRecord
from tests.factories import make_superuser, make_user
from tests.sitesapp.models import Item, ItemLine, KindTotal
from tests.tool_calls import call, refusal, request_of, site_with

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
TOTAL, LINE = "sitesapp.kindtotal", "sitesapp.itemline"


@pytest.fixture(autouse=True)
def items():
    parent = Item.every.create(kind="p", name="Parent")
    for number in range(6):
        Item.every.create(kind="ab"[number % 2], name=f"Item {number}", parent=parent)


@pytest.fixture
def request_(items):
    return request_of(make_superuser(), site_with(KindTotal, ItemLine))


def test_a_view_is_read_like_a_table(request_):
    found = call(QueryRecords(), request_, model=TOTAL, filters={"items__gte": 2}, ordering=["-kind"], count=True)
    assert (found["rows"], found["count"]) == ([["b", 3], ["a", 3]], 2)
    assert call(GetRecord(), request_, model=TOTAL, pk="p")["fields"]["items"] == 1
    found = call(AggregateRecords(), request_, model=TOTAL, aggregates=["sum:items"])
    assert found["rows"] == [[7]]
    assert call(DescribeModel(), request_, model=TOTAL)["model"] == TOTAL


def test_a_view_is_paged(request_):
    first = call(QueryRecords(), request_, model=TOTAL, limit=2)
    rest = call(QueryRecords(), request_, model=TOTAL, limit=2, cursor=first["next_cursor"])
    assert [row[0] for row in first["rows"] + rest["rows"]] == ["a", "b", "p"]


def test_row_126_a_view_has_permissions_of_its_own():
    reader = make_user("reader", "sitesapp.view_item")
    request = request_of(reader, site_with(KindTotal))
    hidden, missing = refusal(QueryRecords(), request, model=TOTAL), refusal(QueryRecords(), request, model="x.y")
    assert hidden.replace(TOTAL, "x.y") == missing
    reader.user_permissions.add(Permission.objects.get(codename="view_kindtotal"))
    again = request_of(User.objects.get(pk=reader.pk), site_with(KindTotal))
    assert len(call(QueryRecords(), again, model=TOTAL)["rows"]) == 3


@pytest.mark.parametrize("tool", [CreateRecord, UpdateRecord])
def test_a_write_to_a_view_is_refused_with_the_reason(request_, tool):
    arguments = {"values": {"kind": "z", "items": 1}} if tool is CreateRecord else {"pk": "a", "values": {"items": 9}}
    message = refusal(tool(), request_, model=TOTAL, **arguments)
    assert "Nothing was changed" in message
    assert "read-only in the database" in message
    assert "busy" not in message


def test_a_deletion_from_a_view_is_refused_with_the_reason(request_):
    # The deletion is tried before there is anything to confirm.
    assert "read-only in the database" in refusal(DeleteRecord(), request_, model=TOTAL, pk="a")


def test_rows_of_which_several_have_one_key_are_read_as_one_at_a_time(request_):
    """The key that the model declares is none; a page is of rows, and a key gives one of them."""
    found = call(QueryRecords(), request_, model=LINE, fields=["name"], ordering=["name"])
    assert [row[1] for row in found["rows"]] == [f"Item {number}" for number in range(6)]
    assert call(GetRecord(), request_, model=LINE, pk="a")["fields"]["name"].startswith("Item")


def test_row_126_through_the_endpoint_a_view_is_no_way_to_write():
    site.register(KindTotal, fields=["kind", "items"])
    try:
        client = MCPClient(make_superuser())
        assert len(client.call("query_records", model=TOTAL).structured["rows"]) == 3
        told = client.call("update_record", model=TOTAL, pk="a", values={"items": 9})
        assert told.is_error
        assert connection.vendor not in told.text.lower()
    finally:
        site.unregister(KindTotal)
        site._removed.discard(KindTotal)
