"""A project with several databases: each row is read and written where it is, whatever it refers to."""

import orjson
import pytest
from django.apps import apps

if not apps.is_installed("tests.databases_project.store"):
    pytest.skip("needs the settings of the project with several databases", allow_module_level=True)

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.db import DatabaseError, connections, router
from django.db.models.signals import post_save
from django.test.utils import CaptureQueriesContext

from mcp_django import MCPSite, ModelExposure
from mcp_django.approvals.approval_check import CallApproval
from mcp_django.approvals.conditions import RuleCondition, WrongCondition
from mcp_django.approvals.rules import Rule
from mcp_django.context.person_consent import PersonNeeded
from mcp_django.differences.stored_rows import stored_table
from mcp_django.exceptions import ToolError
from mcp_django.models import KeyedCall
from mcp_django.orm.query_limits import read_limits
from mcp_django.server.idempotency_keys import Once
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import CreateRecord, DeleteRecord, UpdateRecord
from tests.databases_project.store.models import Crate, Depot
from tests.databases_project.store.routers import reads_from
from tests.factories import make_superuser
from tests.sitesapp.models import Item, KeptItem
from tests.tool_calls import call, refusal, request_of, site_with

pytestmark = pytest.mark.django_db(databases=["default", "other"])
CRATE, ITEM = "store.crate", "sitesapp.item"
SHOWN = ["id", "name", "depot", "item", "kept", "items"]


def link(crate, items):
    """Link the rows as a many-to-many relation into another database is: by the table alone, as Django would join."""
    through = Crate.items.through
    through.objects.bulk_create(through(crate=crate, keptitem_id=item.pk) for item in items)


@pytest.fixture
def crates():
    """Three crates; keys differ between the databases. The second item is hidden by its manager."""
    for number in range(5):
        Depot.objects.create(name=f"Depot {number}")
    items = [Item.every.create(kind="a", name=f"Item {number}", size=number) for number in range(3)]
    made = []
    for number, item in enumerate(items):
        crate = Crate.objects.create(
            name=f"Crate {number}", depot=Depot.objects.get(name=f"Depot {number}"), item=item, kept_id=item.pk
        )
        link(crate, items)
        made.append(crate)
    Item.every.filter(pk=items[1].pk).update(deleted=True)
    return made


@pytest.fixture
def request_(crates):
    site = site_with(Depot, KeptItem)
    site.register(Item, ModelExposure, fields=["id", "name", "size", "crates"])
    site.register(Crate, ModelExposure, fields=SHOWN, readonly_fields=["items"], search_fields=["name", "depot__name"])
    return request_of(make_superuser(), site)


def queries(alias):
    return CaptureQueriesContext(connections[alias])


def test_labels_of_another_database_are_read_there_in_a_fixed_number_of_queries(request_, crates):
    call(QueryRecords(), request_, model=CRATE)
    with queries("default") as far, queries("other") as near:
        found = call(QueryRecords(), request_, model=CRATE, fields=SHOWN[1:])
    items = [crate.item for crate in crates]
    assert [row[1:5] for row in found["rows"]] == [
        [
            f"Crate {number}",
            [crate.depot_id, f"Depot {number}"],
            [crate.item_id, f"Item {number}"],
            [crate.item_id, None if number == 1 else f"Item {number}"],
        ]
        for number, crate in enumerate(crates)
    ]
    assert found["rows"][0][5] == [[items[0].pk, "Item 0"], [items[2].pk, "Item 2"]]
    assert (len(near), len(far)) == (2, 3)
    assert not any("sitesapp" in query["sql"] for query in near)


def test_the_number_of_queries_does_not_grow_with_the_rows(request_, crates):
    def count():
        with queries("default") as far, queries("other") as near:
            call(QueryRecords(), request_, model=CRATE, fields=SHOWN[1:], limit=50)
        return len(far) + len(near)

    before = count()
    for number in range(10):
        crate = Crate.objects.create(name=f"More {number}", item=crates[0].item, kept_id=crates[0].kept_id)
        link(crate, [crates[2].item])
    assert count() == before


def test_rows_that_refer_to_a_row_from_another_database_are_listed(request_, crates):
    found = call(QueryRecords(), request_, model=ITEM, fields=["name", "crates"], ordering=["name"])
    assert [row[2] for row in found["rows"]] == [[[crate.pk, crate.name]] for crate in crates]
    shown = call(GetRecord(), request_, model=ITEM, pk=crates[0].item_id)
    assert shown["fields"]["crates"] == [[crates[0].pk, "Crate 0"]]


def test_one_record_has_the_labels_of_both(request_, crates):
    shown = call(GetRecord(), request_, model=CRATE, pk=crates[0].pk)["fields"]
    assert (shown["depot"][1], shown["item"][1], shown["kept"][1]) == ("Depot 0", "Item 0", "Item 0")


@pytest.mark.parametrize("arguments", [{"search": "Crate"}, {"filters": {"depot": None}}, {"count": True}, {}])
def test_whatever_is_asked_is_asked_of_the_database_of_the_rows(request_, arguments):
    with queries("default") as far:
        call(QueryRecords(), request_, model=CRATE, fields=["name", "depot"], **arguments)
    assert not any("store_" in query["sql"] for query in far)


def test_a_filter_by_the_key_of_a_row_in_another_database_is_one_of_the_own_table(request_, crates):
    found = call(QueryRecords(), request_, model=CRATE, filters={"item": crates[1].item_id})
    assert [row[0] for row in found["rows"]] == [crates[1].pk]


@pytest.mark.parametrize("path", ["item__name", "items", "items__name", "kept__name"])
def test_row_127_a_filter_into_another_database_is_none(crates, path):
    site = site_with(Depot, KeptItem, Item)
    declared = {path: ["exact"], "name": ["exact"], "depot__name": ["exact"]}
    site.register(Crate, ModelExposure, fields=SHOWN, filter_fields=declared)
    request = request_of(make_superuser(), site)
    message = refusal(QueryRecords(), request, model=CRATE, filters={path: "1"})
    assert f"has no filter '{path}'" in message
    assert "name, depot__name" in message
    assert path not in str(call(DescribeModel(), request, model=CRATE).get("filters", ""))
    assert call(QueryRecords(), request, model=CRATE, filters={"depot__name": "Depot 1"})["rows"][0][0] == crates[1].pk


def test_an_order_into_another_database_is_none(crates):
    site = site_with(Depot, KeptItem, Item)
    site.register(Crate, ModelExposure, fields=SHOWN, sortable_by=["name", "item__name"], ordering=["item__name"])
    request = request_of(make_superuser(), site)
    assert [row[0] for row in call(QueryRecords(), request, model=CRATE)["rows"]] == [crate.pk for crate in crates]
    assert "item__name" in refusal(QueryRecords(), request, model=CRATE, ordering=["item__name"])


def test_groups_by_a_row_of_another_database_have_its_label(request_, crates):
    arguments = {"model": CRATE, "aggregates": ["count"]}
    found = call(AggregateRecords(), request_, **arguments, group_by=["item"])
    assert sorted(map(str, found["rows"])) == sorted(str([[c.item_id, c.item.name], 1]) for c in crates)
    found = call(AggregateRecords(), request_, **arguments, group_by=["depot"])
    assert sorted(map(str, found["rows"])) == sorted(str([[c.depot_id, c.depot.name], 1]) for c in crates)


@pytest.mark.parametrize("arguments", [{"group_by": ["item__name"]}, {"aggregates": ["sum:item__size"]}])
def test_groups_and_sums_do_not_lead_into_another_database(request_, arguments):
    assert "item__" in refusal(AggregateRecords(), request_, model=CRATE, **{"aggregates": ["count"], **arguments})
    near = {"model": CRATE, "aggregates": ["count"], "group_by": ["depot__name"]}
    assert ["Depot 0", 1] in call(AggregateRecords(), request_, **near)["rows"]


def test_a_row_of_the_other_database_that_its_manager_hides_is_not_referred_to(request_, crates):
    hidden, shown = crates[1].item_id, crates[2].item_id
    values = {"name": "New", "kept": hidden}
    assert "kept" in refusal(CreateRecord(), request_, model=CRATE, values=values)
    made = call(CreateRecord(), request_, model=CRATE, values={**values, "kept": shown})
    assert Crate.objects.get(pk=made["pk"]).kept_id == shown


def test_a_row_is_written_where_it_belongs_and_logged_where_the_history_is(request_, crates):
    values = {"name": "New", "item": crates[0].item_id}
    with queries("default") as far, queries("other") as near:
        made = call(CreateRecord(), request_, model=CRATE, values=values)
    crate = Crate.objects.get(pk=made["pk"])
    assert crate.item_id == crates[0].item_id
    assert not any("store_" in query["sql"] and "INSERT" in query["sql"] for query in far)
    assert any("INSERT" in query["sql"] and "store_crate" in query["sql"] for query in near)
    assert LogEntry.objects.using("default").filter(object_id=str(crate.pk)).exists()
    call(UpdateRecord(), request_, model=CRATE, pk=crate.pk, values={"name": "Newer", "depot": None})
    assert Crate.objects.get(pk=crate.pk).name == "Newer"


@pytest.mark.parametrize("value", [999_999, "x"])
def test_a_relation_to_a_row_that_is_not_in_the_other_database_is_refused(request_, value):
    message = refusal(CreateRecord(), request_, model=CRATE, values={"name": "New", "item": value})
    assert "item" in message
    assert not Crate.objects.filter(name="New").exists()


def test_what_fails_in_one_database_is_undone_in_both(request_, crates, monkeypatch):
    def fail(*args, **kwargs):
        raise DatabaseError("the history is full")

    monkeypatch.setattr(LogEntry.objects, "log_actions", fail)
    with pytest.raises(DatabaseError):
        UpdateRecord().call(request_, {"model": CRATE, "pk": crates[0].pk, "values": {"name": "Changed"}})
    assert Crate.objects.get(pk=crates[0].pk).name == "Crate 0"


def test_a_key_that_is_taken_is_explained_in_the_other_database_too(request_, crates):
    message = refusal(CreateRecord(), request_, model="store.depot", values={"name": "Depot 0"})
    assert "already exists" in message


def test_many_rows_are_changed_and_deleted_there(request_, crates):
    arguments = {"model": CRATE, "filters": {"name__startswith": "Crate"}}
    token = call(UpdateRecord(), request_, **arguments, values={"depot": None})["confirm_token"]
    call(UpdateRecord(), request_, **arguments, values={"depot": None}, confirm_token=token)
    assert not Crate.objects.exclude(depot=None).exists()
    token = call(DeleteRecord(), request_, **arguments)["confirm_token"]
    call(DeleteRecord(), request_, **arguments, confirm_token=token)
    assert not Crate.objects.exists()
    assert Item.every.count() == 3


def test_a_repeated_call_is_done_once_though_its_key_is_in_another_database(request_):
    def create():
        return tool.call(request_, {"model": CRATE, "values": {"name": "Once"}})

    tool = CreateRecord()
    arguments = {"model": CRATE, "values": {"name": "Once"}}
    first, second = (orjson.dumps(Once(request_, tool, arguments, "k").run(create)) for _ in range(2))
    assert orjson.loads(first) == orjson.loads(second)
    assert Crate.objects.filter(name="Once").count() == 1
    assert KeyedCall.objects.using("default").count() == 1


def test_the_time_of_queries_is_bounded_in_every_database(request_, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "STATEMENT_TIMEOUT": 0.2}
    endless = (
        "SELECT pg_sleep(30)"
        if connections["other"].vendor == "postgresql"
        else "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT COUNT(*) FROM n"
    )
    with pytest.raises(ToolError, match="too long"), read_limits(), connections["other"].cursor() as cursor:
        cursor.execute(endless)


@pytest.fixture
def replica(transactional_db):
    token = reads_from.set("replica")
    yield
    reads_from.reset(token)


@pytest.mark.django_db(databases=["default", "other", "replica"], transaction=True)
def test_reads_go_to_the_replica_and_what_is_written_is_read_where_it_was_written(replica, crates):
    site = site_with(KeptItem, Item, Crate, Depot)
    request = request_of(make_superuser(), site)
    with queries("replica") as there, queries("default") as here:
        assert len(call(QueryRecords(), request, model=ITEM)["rows"]) == 3
        assert call(GetRecord(), request, model=ITEM, pk=crates[0].item_id)["fields"]["name"] == "Item 0"
        call(AggregateRecords(), request, model=ITEM, aggregates=["count"])
    assert len(there) >= 3
    assert not any("sitesapp" in query["sql"] for query in here)
    assert router.db_for_write(Item) == "default"
    made = call(CreateRecord(), request, model=ITEM, values={"kind": "a", "name": "New", "size": 1})
    assert Item.every.using("default").get(pk=made["pk"]).name == "New"


@pytest.mark.django_db(databases=["default", "other", "replica"], transaction=True)
def test_a_plan_of_one_alias_is_not_run_on_another(transactional_db, crates):
    request = request_of(make_superuser(), site_with(Item))
    for alias in ("default", "replica", "default"):
        token = reads_from.set(alias)
        try:
            with queries(alias) as asked:
                assert len(call(QueryRecords(), request, model=ITEM)["rows"]) == 3
        finally:
            reads_from.reset(token)
        assert any("sitesapp_item" in query["sql"] for query in asked)


@pytest.mark.parametrize("names", [["name", "item__name"], ["name", "item__name__startswith"], ["items__name", "name"]])
@pytest.mark.parametrize("kind", ["declared", "admin"])
def test_a_search_does_not_look_into_another_database(crates, names, kind):
    if kind == "admin":
        admin_site = admin.AdminSite("crates")
        options = {"search_fields": names, "list_display": ["name"]}
        admin_site.register(Crate, type("CrateAdmin", (admin.ModelAdmin,), options))
        site = MCPSite(admin_site=admin_site)
    else:
        site = MCPSite()
        site.register(Crate, ModelExposure, fields=["id", "name"], search_fields=names)
    request = request_of(make_superuser(), site)
    for term, found in (("Crate 1", ["Crate 1"]), ("Item 1", []), ("Item", [])):
        page = call(QueryRecords(), request, model=CRATE, search=term, fields=["name"], count=True)
        assert [row[1] for row in page["rows"]] == found
        assert page["count"] == len(found)


def test_conditions_of_approval_rules_are_compared_where_the_rows_are(crates):
    def met(condition, model, using, *rows):
        keys = list(stored_table(model, using).read("pk", [row.pk for row in rows]))
        return RuleCondition(condition).rows_meeting(model, keys, "before", using)

    one, two, _three = crates
    first, second = list(Item.every.order_by("pk"))[:2]
    crate_alias, item_alias = router.db_for_write(Crate), router.db_for_write(Item)
    assert crate_alias != item_alias
    assert len(met({"depot__name": "Depot 0"}, Crate, crate_alias, one, two)) == 1
    assert len(met({"item": first.pk}, Crate, crate_alias, one, two)) == 1
    # A row that the manager hides, too.
    assert len(met({"deleted": True}, Item, item_alias, first, second)) == 1
    assert len(met({"size__gte": {"avg": "size"}}, Item, item_alias, first, second)) == 1
    with pytest.raises(WrongCondition):
        RuleCondition.read({"item__size": 1}, [Crate], [])


# Approval rules


def test_rules_hold_in_each_database(request_, crates):
    def rename(rule, label, row):
        request_.mcp.approvals = CallApproval(request_, "update_record", {}, [rule])
        return UpdateRecord().call(request_, {"model": label, "pk": row.pk, "values": {"name": "New"}})

    first, _, last = Item.every.order_by("pk")
    items = Rule(name="Items", labels=frozenset([ITEM]), condition=RuleCondition({"size": 0}), permission="a.b")
    with pytest.raises(PersonNeeded):
        rename(items, ITEM, first)
    assert rename(items, ITEM, last).structured["updated"]
    assert rename(items, CRATE, crates[0]).structured["updated"]
    # A condition on rows that cannot be joined applies.
    elsewhere = RuleCondition({"item__size__in": ["many"]})
    with pytest.raises(PersonNeeded):
        rename(Rule(name="Crates", labels=frozenset([CRATE]), condition=elsewhere, permission="a.b"), CRATE, crates[1])


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_what_a_hook_writes_in_another_database_under_a_rule_is_refused(request_, crates):
    def store(sender, instance, **given):
        Depot.objects.create(name="hook")

    request_.mcp.approvals = CallApproval(
        request_, "update_record", {}, [Rule(name="Depots", labels=frozenset(["store.depot"]), permission="a.b")]
    )
    before = Depot.objects.count()
    item = Item.every.order_by("pk").first()
    post_save.connect(store, sender=Item)
    try:
        with pytest.raises((ToolError, PersonNeeded)):
            UpdateRecord().call(request_, {"model": ITEM, "pk": item.pk, "values": {"name": "New"}})
    finally:
        post_save.disconnect(store, sender=Item)
    item.refresh_from_db()
    assert item.name == "Item 0"
    assert Depot.objects.count() == before
