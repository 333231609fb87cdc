"""Every way in which a model can hang on another one: shown where the caller may see both ends, and nowhere else."""

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django import MCPSite, ModelExposure
from mcp_django.orm.labels import MAX_RELATED
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import CreateRecord, UpdateRecord
from tests.factories import make_superuser, make_user
from tests.fieldapp.models import Club, Guest, Membership, Passport, Place, Remark, Restaurant, Seat
from tests.library import query_of, read, reader, shown
from tests.oddapp.models import Bid, Currency
from tests.testapp.models import Loan
from tests.tool_calls import call, refusal, site_with

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

GET, QUERY = GetRecord(), QueryRecords()
CREATE, UPDATE = CreateRecord(), UpdateRecord()
GUEST = ["name", "host", "friends", "clubs", "invited", "passport", "seats", "remarks", "membership_set"]


def everything() -> MCPSite:
    site = site_with(Membership, Place, Restaurant, Seat)
    site.register(Guest, ModelExposure, fields=GUEST)
    site.register(Club, ModelExposure, fields=["name", "guests"])
    site.register(Passport, ModelExposure, fields="__all__")
    site.register(Remark, ModelExposure, fields=["text", "target", "content_type", "object_id"])
    return site


def people() -> tuple[Guest, Guest]:
    ada = Guest.objects.create(name="Ada")
    bob = Guest.objects.create(name="Bob", host=ada)
    ada.friends.add(bob)
    club = Club.objects.create(name="Chess")
    Membership.objects.create(guest=ada, club=club)
    Passport.objects.create(guest=ada, number="P1")
    Seat.objects.create(hall="A", number=Seat.objects.count() + 1, guest=ada)
    Remark.objects.create(target=ada, text="kind")
    return ada, bob


def row_of(site: MCPSite, user: Any, obj: Any) -> dict[str, Any]:
    fields: dict[str, Any] = call(GET, reader(user, site), model=obj._meta.label_lower, pk=str(obj.pk))["fields"]
    return fields


def test_relations_are_shown_from_both_ends() -> None:
    ada, bob = people()
    site, root = everything(), make_superuser()
    club, remark, membership = Club.objects.get(), Remark.objects.get(), Membership.objects.get()
    assert row_of(site, root, ada) == {
        "id": ada.pk,
        "name": "Ada",
        "host": None,
        "friends": [[bob.pk, "Bob"]],
        "clubs": [[club.pk, "Chess"]],
        "invited": [[bob.pk, "Bob"]],
        "passport": [ada.pk, "P1"],
        "seats": [['["A","1"]', "A 1"]],
        "remarks": [[remark.pk, "kind"]],
        "membership_set": [[membership.pk, f"Membership object ({membership.pk})"]],
    }
    other = row_of(site, root, bob)
    assert (other["host"], other["friends"], other["passport"]) == ([ada.pk, "Ada"], [[ada.pk, "Ada"]], None)
    assert row_of(site, root, club)["guests"] == [[ada.pk, "Ada"]]
    assert row_of(site, root, ada.passport)["guest"] == [ada.pk, "Ada"]
    assert row_of(site, root, remark)["target"] == [ada.pk, "Ada", "fieldapp.guest"]


def test_the_three_roads_agree_on_relations() -> None:
    people()
    site = everything()
    request = reader(make_superuser(), site)
    for model in (Guest, Club, Passport, Remark, Seat, Membership):
        query = query_of(request, site.exposures[model])
        plan, tuples, instances = (read(query, road) for road in ("plan", "tuples", "instances"))
        assert shown(plan) == shown(tuples) == shown(instances), model


def test_the_number_of_queries_does_not_depend_on_the_rows() -> None:
    site = everything()
    request = reader(make_superuser(), site)
    counts = []
    for _ in range(2):
        for _ in range(4):
            people()
        for model in (Guest, Club, Remark):
            call(QUERY, request, model=model._meta.label_lower)
            with CaptureQueriesContext(
                connection,
            ) as caught:
                call(QUERY, request, model=model._meta.label_lower)
            counts.append(len(caught))
    assert counts[:3] == counts[3:]


def test_lists_are_cut_and_say_so() -> None:
    ada, _ = people()
    for _ in range(MAX_RELATED + 5):
        Guest.objects.create(name="x", host=ada)
        Remark.objects.create(target=ada, text="r")
    found = call(GET, reader(make_superuser(), everything()), model="fieldapp.guest", pk=ada.pk)
    for name in ("invited", "remarks"):
        assert len(found["fields"][name]) == MAX_RELATED + 1
        assert found["fields"][name][-1] == "…"
        assert f"{name} lists at most {MAX_RELATED}" in found["hint"]


def test_row_131_a_generic_key_is_no_route_to_models_that_are_not_exposed() -> None:
    people()
    user = User.objects.create(username="hidden", first_name="Secret")
    Remark.objects.create(target=user, text="about a user")
    Remark.objects.create(content_type=ContentType.objects.get_for_model(Guest), object_id=999, text="to nothing")
    Remark.objects.create(
        content_type=ContentType.objects.create(app_label="gone", model="gone"), object_id=1, text="x"
    )
    site = everything()
    request = reader(make_superuser(), site)
    page = call(QUERY, request, model="fieldapp.remark", fields=["text", "target", "content_type"])
    targets = {row[1]: row[2] for row in page["rows"]}
    assert targets["kind"][1:] == ["Ada", "fieldapp.guest"]
    assert targets["about a user"] is targets["to nothing"] is targets["x"] is None
    assert all(row[3][1] is None for row in page["rows"])
    for name in ("target", "target__name", "content_type__model", "content_type__app_label"):
        refusal(QUERY, request, model="fieldapp.remark", filters={name: "x"})
        refusal(QUERY, request, model="fieldapp.remark", ordering=[name])
        refusal(AggregateRecords(), request, model="fieldapp.remark", group_by=[name])
    refusal(CREATE, request, model="fieldapp.remark", values={"text": "x", "target": [1, "x"]})


def test_row_131_rows_that_the_caller_may_not_see_are_not_there_at_either_end() -> None:
    class Own(ModelExposure):
        fields = ["name"]

        def get_queryset(self, request: Any) -> Any:
            return super().get_queryset(request).filter(name="Bob")

    ada, bob = people()
    Remark.objects.create(target=bob, text="on Bob")
    site = everything()
    site.unregister(Guest)
    site.register(Guest, Own)
    request = reader(make_superuser(), site)
    page = call(QUERY, request, model="fieldapp.remark", fields=["text", "target"])
    assert [row[1:] for row in page["rows"]] == [["kind", None], ["on Bob", [bob.pk, "Bob", "fieldapp.guest"]]]
    assert call(QUERY, request, model="fieldapp.club", fields=["guests"])["rows"][0][1] == []
    viewer = make_user("viewer", "fieldapp.view_guest")
    site = everything()
    fields = row_of(site, viewer, ada)
    assert not {"clubs", "passport", "seats", "remarks", "membership_set"} & fields.keys()
    assert fields["friends"] == [[bob.pk, "Bob"]]


def test_row_127_rows_that_the_default_manager_hides_are_not_listed_from_the_other_end() -> None:
    from django.utils import timezone

    from tests.factories import make_book
    from tests.testapp.models import Book

    book = make_book()
    kept = Loan.objects.create(book=book, borrower="seen", due=timezone.now())
    Loan.all_objects.create(book=book, borrower="deleted", due=timezone.now(), deleted=timezone.now())
    site = site_with(Loan)
    site.register(Book, ModelExposure, fields=["title", "loans"])
    page = call(QUERY, reader(make_superuser(), site), model="testapp.book")
    assert [item[0] for item in page["rows"][0][2]] == [kept.pk]


def test_row_126_a_child_table_shows_no_more_than_its_parent_does() -> None:
    restaurant = Restaurant.objects.create(name="R", rent="9.50", cuisine="c")
    site = site_with(Restaurant)
    site.register(Place, ModelExposure, fields=["name", "restaurant"])
    root = make_superuser()
    assert row_of(site, root, restaurant) == {
        "place_ptr": [restaurant.pk, "R"],
        "id": restaurant.pk,
        "name": "R",
        "cuisine": "c",
    }
    assert row_of(site, root, Place.objects.get())["restaurant"] == [restaurant.pk, "R"]
    refusal(QUERY, reader(root, site), model="fieldapp.restaurant", filters={"rent": "9.50"})
    viewer = make_user("viewer", "fieldapp.view_place")
    assert "restaurant" not in row_of(site, viewer, Place.objects.get())


def test_row_128_columns_that_are_not_shown_are_not_selected() -> None:
    people()
    site = MCPSite()
    site.register(Guest, ModelExposure, fields=["invited", "remarks"])
    site.register(Remark, ModelExposure, fields=["text"])
    request = reader(make_superuser(), site)
    call(QUERY, request, model="fieldapp.guest", fields=["id"])
    with CaptureQueriesContext(connection) as caught:
        call(QUERY, request, model="fieldapp.guest", fields=["id"])
    assert '"fieldapp_guest"."name"' not in str([query["sql"] for query in caught])
    with CaptureQueriesContext(connection) as caught:
        call(QUERY, request, model="fieldapp.guest", fields=["remarks"])
    assert "host_id" not in str([query["sql"] for query in caught])


def test_a_child_and_its_parent_are_written_together() -> None:
    request = reader(make_superuser(), everything())
    made = call(CREATE, request, model="fieldapp.restaurant", values={"name": "R", "cuisine": "c", "rent": "5"})
    again = call(UPDATE, request, model="fieldapp.restaurant", pk=made["pk"], values={"name": "S"})
    assert again["fields"] == {"name": "S"}
    assert Restaurant.objects.values_list("name", "cuisine").get() == ("S", "c")
    assert Place.objects.get().name == "S"


def test_relations_to_the_model_itself_and_to_many_are_written_by_key() -> None:
    ada, bob = people()
    request = reader(make_superuser(), everything())
    shown_host = [ada.pk, "Ada"]
    found = call(
        UPDATE, request, model="fieldapp.guest", pk=bob.pk, values={"host": shown_host, "friends": [shown_host]}
    )
    assert found["changed"] == []
    found = call(UPDATE, request, model="fieldapp.guest", pk=bob.pk, values={"host": None, "friends": []})
    assert (found["fields"]["host"], found["fields"]["friends"]) == (None, [])
    for name in ("invited", "passport", "remarks", "seats"):
        refusal(UPDATE, request, model="fieldapp.guest", pk=bob.pk, values={name: []})


def test_what_relations_are_is_said_in_words() -> None:
    request = reader(make_superuser(), everything())
    lines = [
        line
        for label in ("fieldapp.guest", "fieldapp.remark")
        for line in call(DescribeModel(), request, model=label, detail=True)["fields"]
    ]
    words = {line.partition(":")[0]: line.partition(": ")[2] for line in lines}
    assert words["invited"] == "list of integer → fieldapp.guest, read-only"
    assert words["passport"] == "integer → fieldapp.passport, read-only"
    assert words["seats"] == "list of key → fieldapp.seat, read-only"
    assert words["remarks"] == "list of integer → fieldapp.remark, read-only"
    assert words["target"].startswith("[key, label, model] of any record, read-only")


def test_a_primary_key_that_is_a_relation_is_one_everywhere() -> None:
    ada, bob = people()
    Passport.objects.create(guest=bob, number="P0")
    site = everything()
    request = reader(make_superuser(), site)
    asked = {"model": "fieldapp.passport", "fields": ["guest", "guest.name", "number"], "ordering": ["-guest.name"]}
    assert call(QUERY, request, **asked)["rows"] == [[[bob.pk, "Bob"], "Bob", "P0"], [[ada.pk, "Ada"], "Ada", "P1"]]
    grouped = call(
        AggregateRecords(),
        request,
        model="fieldapp.passport",
        group_by=["guest.name", "guest"],
        aggregates=["count", "count_distinct:guest.name"],
        ordering=["guest.name"],
    )
    assert grouped["rows"] == [["Ada", [ada.pk, "Ada"], 1, 1], ["Bob", [bob.pk, "Bob"], 1, 1]]
    found = call(GET, request, model="fieldapp.passport", pk=ada.pk, fields=["guest.name"])
    assert (found["pk"], found["uri"]) == (ada.pk, f"django://fieldapp/passport/{ada.pk}")
    assert found["fields"] == {"guest": [ada.pk, "Ada"], "guest__name": "Ada"}
    # What is shown can be sent back.
    assert call(GET, request, model="fieldapp.passport", pk=[ada.pk, "Ada"])["pk"] == ada.pk
    assert call(QUERY, request, model="fieldapp.passport", filters={"guest": "Bob"})["returned"] == 1
    described = call(DescribeModel(), request, model="fieldapp.passport", detail=True)
    assert described["fields"][0] == "guest: integer → fieldapp.guest, pk, required"
    assert call(DescribeModel(), request, model="fieldapp.passport")["fields"] == "guest* fieldapp.guest, number*"


def test_the_key_of_a_child_table_leads_to_its_parent() -> None:
    restaurant = Restaurant.objects.create(name="Aux", cuisine="French")
    site, root = everything(), make_superuser()
    request = reader(root, site)
    asked = {"model": "fieldapp.restaurant", "fields": ["place_ptr.name"], "ordering": ["place_ptr.rent"]}
    assert call(QUERY, request, **asked)["rows"] == [[[restaurant.pk, "Aux"], "Aux"]]
    assert row_of(site, root, restaurant)["place_ptr"] == [restaurant.pk, "Aux"]


def test_a_key_that_is_a_relation_tells_nothing_of_rows_that_are_hidden() -> None:
    class Own(ModelExposure):
        fields = ["name"]

        def get_queryset(self, request: Any) -> Any:
            return super().get_queryset(request).filter(name="Bob")

    ada, bob = people()
    Passport.objects.create(guest=bob, number="P0")
    site = everything()
    site.unregister(Guest)
    site.register(Guest, Own)
    request = reader(make_superuser(), site)
    asked = {"model": "fieldapp.passport", "fields": ["guest", "guest.name"], "ordering": ["guest.name:nulls_last"]}
    assert call(QUERY, request, **asked)["rows"] == [[[bob.pk, "Bob"], "Bob"], [[ada.pk, None], None]]
    viewer = reader(make_user("viewer", "fieldapp.view_passport"), everything())
    rows = call(QUERY, viewer, model="fieldapp.passport", fields=["guest"])["rows"]
    assert rows == [[[ada.pk, None]], [[bob.pk, None]]]
    refusal(QUERY, viewer, model="fieldapp.passport", fields=["guest.name"])


def test_a_method_of_the_admin_comes_before_a_relation_of_its_name() -> None:
    class GuestAdmin(admin.ModelAdmin):
        list_display = ("name", "invited", "remarks", "passport")

        @admin.display
        def invited(self, guest: Guest) -> str:
            return "a method"

        @admin.display
        def remarks(self, guest: Guest) -> str:
            return "another one"

    class RemarkAdmin(admin.ModelAdmin):
        list_display = ("text", "target")
        readonly_fields = ("target",)

        @admin.display
        def target(self, remark: Remark) -> str:
            return "hidden"

    people()
    own = admin.AdminSite("relations")
    own.register(Guest, GuestAdmin)
    own.register(Remark, RemarkAdmin)
    request = reader(make_superuser(), MCPSite(admin_site=own))
    page = call(QUERY, request, model="fieldapp.guest", fields=["name", "invited", "remarks"])
    assert [row[1:] for row in page["rows"]] == [[name, "a method", "another one"] for name in ("Ada", "Bob")]
    page = call(QUERY, request, model="fieldapp.remark", fields=["target"])
    assert [row[1] for row in page["rows"]] == ["hidden"]


class OpenCurrencies(ModelExposure):
    """Not all rows are the caller's, and their label is made of two columns."""

    fields = ["code", "name", "bids"]

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).exclude(code="XXX")


class CountedBids(ModelExposure):
    fields = ["name", "currency", "paid_in", "size"]

    def size(self, bid: Bid) -> int:
        return len(bid.name)


@pytest.mark.parametrize("bids", [{"fields": ["name", "currency", "paid_in"]}, {"exposure_class": CountedBids}])
@pytest.mark.parametrize("currencies", [{"fields": ["code", "name", "bids"]}, {"exposure_class": OpenCurrencies}, None])
def test_a_foreign_key_to_another_column_is_known_by_the_primary_key_everywhere(bids: Any, currencies: Any) -> None:
    site = MCPSite()
    site.register(Bid, **bids)
    if currencies is not None:
        site.register(Currency, **currencies)
    Currency.objects.create(code="AAA", number=2, name="A")
    dollar = Currency.objects.create(code="USD", number=1, name="Dollar")
    euro = Currency.objects.create(code="EUR", number=978, name="Euro")
    first = Bid.objects.create(name="a", currency=dollar, paid_in=euro)
    Bid.objects.create(name="b", currency=euro)
    request, label = reader(make_superuser(), site), "oddapp.bid"
    shown_as = {row.code: [row.pk, str(row) if currencies is not None else None] for row in (dollar, euro)}
    page = call(QUERY, request, model=label)
    assert [row[1:4] for row in page["rows"]] == [
        ["a", shown_as["USD"], shown_as["EUR"]],
        ["b", shown_as["EUR"], None],
    ]
    fields = call(GET, request, model=label, pk=first.pk)["fields"]
    assert (fields["currency"], fields["paid_in"]) == (shown_as["USD"], shown_as["EUR"])
    for name in ("currency", "currency_id"):
        found = call(QUERY, request, model=label, filters={name: euro.pk}, fields=["name"])["rows"]
        assert [row[1] for row in found] == ["b"]
    for filters, names in (
        ({"currency__in": [dollar.pk]}, ["a"]),
        ({"not": {"currency": dollar.pk}}, ["b"]),
        ({"paid_in__isnull": True}, ["b"]),
        ({"paid_in": euro.pk}, ["a"]),
    ):
        assert [row[1] for row in call(QUERY, request, model=label, filters=filters)["rows"]] == names
    if currencies is None:
        assert "integer" in refusal(QUERY, request, model=label, filters={"currency": "EUR"})
    else:
        # What the column holds is no key, but a unique value that the caller can read.
        found = call(QUERY, request, model=label, filters={"currency": "EUR"}, fields=["name"])["rows"]
        assert [row[1] for row in found] == ["b"]
    assert "integer" in refusal(QUERY, request, model=label, filters={"currency": "XXX"})
    totals = call(AggregateRecords(), request, model=label, group_by=["currency"])["rows"]
    assert {tuple(row[0]) for row in totals} == {tuple(shown_as["USD"]), tuple(shown_as["EUR"])}
    described = call(DescribeModel(), request, model=label, detail=True)["input_schema"]["properties"]
    assert described["currency"]["type"] == described["paid_in"]["type"] == "integer"
    made = call(CREATE, request, model=label, values={"name": "c", "currency": dollar.pk, "paid_in": shown_as["USD"]})
    assert (made["fields"]["currency"], made["fields"]["paid_in"]) == (shown_as["USD"], shown_as["USD"])
    changed = call(UPDATE, request, model=label, pk=made["pk"], values={"currency": euro.pk})
    assert changed["fields"]["currency"] == shown_as["EUR"]
    assert Bid.objects.get(name="c").currency_id == "EUR"
    if currencies is not None:
        assert call(GET, request, model="oddapp.currency", pk=fields["currency"][0])["fields"]["code"] == "USD"
        listed = call(GET, request, model="oddapp.currency", pk=euro.pk)["fields"]["bids"]
        assert [pair[1] for pair in listed] == ["b", "c"]
    query = query_of(request, site.exposures[Bid], ["id", "name", "currency", "paid_in"])
    roads = [shown(read(query, road)) for road in ("plan", "tuples", "instances")]
    assert roads[0] == roads[1] == roads[2]


def test_a_key_of_another_column_that_leads_nowhere_loses_no_row() -> None:
    euro = Currency.objects.create(code="EUR", number=978, name="Euro")
    bid = Bid.objects.create(name="a", currency=euro)
    Bid.objects.filter(pk=bid.pk).update(paid_in_id=5)
    request = reader(make_superuser(), site_with(Bid, Currency))
    assert call(QUERY, request, model="oddapp.bid")["rows"] == [[bid.pk, "a", [euro.pk, "Euro (EUR)"], None]]
    assert call(GET, request, model="oddapp.bid", pk=bid.pk)["fields"]["paid_in"] is None
    call(UPDATE, request, model="oddapp.bid", pk=bid.pk, values={"name": "new"})
    assert Bid.objects.values_list("name", "paid_in_id").get() == ("new", 5)
