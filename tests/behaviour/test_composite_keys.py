"""Keys of several columns and keys of free text, end to end."""

import contextlib
from datetime import date
from typing import Any

import orjson
import pytest
from django.contrib.admin.models import LogEntry

import mcp_django as mcp
from mcp_django import MCPSite, ModelExposure, ToolError
from mcp_django.orm.access import access_of
from mcp_django.orm.uris import Address, ParsedURI
from mcp_django.resources.model_resources import Resources
from mcp_django.tools.action_tools import RunAction
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import CreateRecord, DeleteRecord, UpdateRecord
from tests.factories import make_superuser
from tests.fieldapp.models import Guest, Night, Seat, Term
from tests.library import reader
from tests.tool_calls import call, refusal, site_with

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

GET, QUERY, CREATE, UPDATE, DELETE = GetRecord(), QueryRecords(), CreateRecord(), UpdateRecord(), DeleteRecord()
ODD = [
    "a/b",
    "..",
    ".",
    "50 %",
    "%2F",
    "?x=1",
    "#y",
    "schema",
    "é",
    "e\u0301",
    "🙂",
    "a b",
    '["a","b"]',
    "ü/../ü",
    "+",
    "\\",
]


class SeatExposure(ModelExposure):
    fields = "__all__"
    actions = ["clear"]

    @mcp.action(permissions=["change"], destructive=False)
    def clear(self, request: Any, queryset: Any) -> str:
        """Clear seats."""
        return f"{queryset.update(note='')} cleared"


@pytest.fixture
def site() -> MCPSite:
    found = site_with(Guest, Night, Term)
    found.register(Seat, SeatExposure)
    return found


@pytest.fixture
def asking(site: MCPSite) -> Any:
    return reader(make_superuser(), site)


def seat(hall: str = "A", number: int = 1, **values: Any) -> Seat:
    return Seat.objects.create(hall=hall, number=number, **values)


def test_row_124_a_composite_key_is_created_read_changed_and_deleted(asking: Any) -> None:
    made = call(CREATE, asking, model="fieldapp.seat", values={"hall": "a/b", "number": 7, "note": "n"})
    assert made["pk"] == '["a/b","7"]'
    pk = made["pk"]
    for given in (pk, ["a/b", "7"], ["a/b", 7]):
        assert call(GET, asking, model="fieldapp.seat", pk=given)["fields"]["number"] == 7
    assert call(GET, asking, uri=made["uri"])["pk"] == pk
    changed = call(UPDATE, asking, model="fieldapp.seat", pk=pk, values={"note": "m"})
    assert changed["changed"] == ["note"]
    assert Seat.objects.get().note == "m"
    preview = call(DELETE, asking, model="fieldapp.seat", pk=pk)
    call(DELETE, asking, model="fieldapp.seat", pk=pk, confirm_token=preview["confirm_token"])
    assert not Seat.objects.exists()
    assert {entry.object_id for entry in LogEntry.objects.all()} == {str(("a/b", 7))}
    assert LogEntry.objects.count() == 3


def test_row_149_a_row_is_never_added_over_another_one(asking: Any) -> None:
    seat(note="kept")
    said = refusal(CREATE, asking, model="fieldapp.seat", values={"hall": "A", "number": 1, "note": "lost"})
    assert "SELECT" not in said
    assert "INSERT" not in said
    assert Seat.objects.get().note == "kept"


def test_a_row_does_not_change_its_key(asking: Any) -> None:
    seat(note="kept")
    said = refusal(UPDATE, asking, model="fieldapp.seat", pk='["A","1"]', values={"number": 2})
    assert "You cannot write 'number'" in said
    assert list(Seat.objects.values_list("hall", "number")) == [("A", 1)]


def test_composite_keys_are_paged_filtered_sorted_and_counted(asking: Any) -> None:
    for number in range(7):
        seat("AB"[number % 2], number)
    seen: list[Any] = []
    cursor: dict[str, Any] = {}
    while True:
        page = call(QUERY, asking, model="fieldapp.seat", limit=3, count=True, fields=["number"], **cursor)
        assert page["count"] == 7
        seen += page["rows"]
        if "next_cursor" not in page:
            break
        cursor = {"cursor": page["next_cursor"]}
    expected = sorted((hall, number) for hall, number in Seat.objects.values_list("hall", "number"))
    assert seen == [[f'["{hall}","{number}"]', number] for hall, number in expected]
    for ordering in (["pk"], ["-pk"], ["-number"], ["note", "-hall"]):
        first = call(QUERY, asking, model="fieldapp.seat", limit=4, ordering=ordering)
        rest = call(QUERY, asking, model="fieldapp.seat", limit=4, ordering=ordering, cursor=first["next_cursor"])
        assert len({row[0] for row in [*first["rows"], *rest["rows"]]}) == 7
    found = call(QUERY, asking, model="fieldapp.seat", filters={"hall": "B", "number__gt": 1}, fields=["number"])
    assert [row[1] for row in found["rows"]] == [3, 5]
    counted = call(AggregateRecords(), asking, model="fieldapp.seat", aggregates=["count"], group_by=["hall"])
    assert counted["rows"] == [["A", 4], ["B", 3]]
    asked = [
        "count:pk",
        "count_distinct:pk",
        {"function": "count_distinct", "field": "pk", "as": "b", "where": {"hall": "B"}},
    ]
    counted = call(AggregateRecords(), asking, model="fieldapp.seat", aggregates=asked)
    assert counted["rows"] == [[7, 7, 3]]
    counted = call(AggregateRecords(), asking, model="fieldapp.seat", aggregates=asked, group_by=["hall"])
    assert counted["rows"] == [["A", 4, 4, 0], ["B", 3, 3, 3]]
    for wrong in ({"aggregates": ["max:pk"]}, {"group_by": ["pk"]}, {"aggregates": ["sum:pk"]}):
        assert "pk" in refusal(AggregateRecords(), asking, model="fieldapp.seat", **wrong)
    described = call(DescribeModel(), asking, model="fieldapp.seat", detail=True)
    assert any(line.startswith("pk: key, pk, read-only") for line in described["fields"])


def test_a_key_may_hold_a_relation_and_a_date(asking: Any) -> None:
    guest = Guest.objects.create(name="Ada")
    made = call(CREATE, asking, model="fieldapp.night", values={"guest": guest.pk, "day": "2026-01-31", "price": 5})
    assert made["pk"] == f'["{guest.pk}","2026-01-31"]'
    assert made["fields"]["guest"] == [guest.pk, "Ada"]
    assert call(GET, asking, uri=made["uri"])["fields"]["day"] == "2026-01-31"
    assert Night.objects.filter(pk=(guest.pk, date(2026, 1, 31))).exists()
    said = refusal(UPDATE, asking, model="fieldapp.night", pk=made["pk"], values={"guest_id": guest.pk})
    assert "You cannot write" in said


def test_actions_take_composite_keys(asking: Any) -> None:
    seat(note="x")
    seat(number=2, note="y")
    seat(number=3, note="z")
    done = call(RunAction(), asking, model="fieldapp.seat", action="clear", pks=['["A","1"]', ["A", 2]])
    assert "2 cleared" in str(done)
    assert list(Seat.objects.order_by("number").values_list("note", flat=True)) == ["", "", "z"]


def test_lists_of_rows_with_composite_keys(site: MCPSite) -> None:
    site.unregister(Guest)
    site.register(Guest, ModelExposure, fields=["name", "seats"])
    asking = reader(make_superuser(), site)
    guest = Guest.objects.create(name="Ada")
    seat(guest=guest)
    page = call(QUERY, asking, model="fieldapp.guest")
    assert page["rows"] == [[guest.pk, "Ada", [['["A","1"]', "A 1"]]]]


@pytest.mark.parametrize("key", ODD, ids=range(len(ODD)))
def test_row_124_a_key_of_free_text_comes_back_as_itself(asking: Any, key: str) -> None:
    for other in ODD:
        Term.objects.create(word=other, meaning=f"<{other}>")
        seat(other, 1, note=f"<{other}>")
    for label, pk, shown in (("fieldapp.term", key, "meaning"), ("fieldapp.seat", [key, 1], "note")):
        found = call(GET, asking, model=label, pk=pk)
        assert found["fields"][shown] == f"<{key}>"
        assert call(GET, asking, uri=found["uri"])["pk"] == found["pk"]
        (contents,) = Resources(asking).find(found["uri"]).read()
        assert f'"pk":{orjson.dumps(found["pk"]).decode()}' in contents["text"]
    address = Address(access_of(asking)[asking.mcp.site.exposures[Term]])
    assert len({address.row(other) for other in ODD}) == len(ODD)
    assert ParsedURI.read(address.row(key)).pk == key


HUGE = [2**63, -(2**63) - 1, 2**64, 10**400, str(2**63), str(10**400), f"-{2**64}"]


@pytest.mark.parametrize("huge", HUGE, ids=range(len(HUGE)))
def test_row_123_numbers_that_no_column_holds_are_refused_or_not_found(asking: Any, huge: Any) -> None:
    guest = Guest.objects.create(name="Ada")
    for label, pk in (
        ("fieldapp.guest", huge),
        ("fieldapp.seat", ["A", huge]),
        ("fieldapp.night", [huge, "2026-01-01"]),
    ):
        said = refusal(GET, asking, model=label, pk=pk)
        assert said == refusal(GET, asking, model="fieldapp.guest", pk=guest.pk + 1)
    refusal(RunAction(), asking, model="fieldapp.seat", action="clear", pks=[["A", huge]])
    refusal(UPDATE, asking, model="fieldapp.guest", pk=huge, values={"name": "x"})
    refusal(DELETE, asking, model="fieldapp.guest", pk=huge)
    refusal(CREATE, asking, model="fieldapp.guest", values={"name": "x", "host": huge})
    refusal(CREATE, asking, model="fieldapp.seat", values={"hall": "x", "number": huge})
    refusal(QUERY, asking, model="fieldapp.guest", filters={"id": huge})
    refusal(QUERY, asking, model="fieldapp.guest", filters={"id__in": [1, huge]})
    refusal(QUERY, asking, model="fieldapp.guest", filters={"host": huge})
    refusal(QUERY, asking, model="fieldapp.seat", filters={"number__gt": huge})
    assert Guest.objects.count() == 1
    with contextlib.suppress(ToolError):
        assert QUERY.call(asking, {"model": "fieldapp.guest", "limit": huge}).structured["returned"] == 1
