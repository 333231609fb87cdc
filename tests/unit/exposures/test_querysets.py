"""Managers that projects write: what they hide is hidden everywhere, and what they give can be filtered and paged."""

import pytest
from django.db import connection
from django.db.models import Count, F, QuerySet, Window
from django.db.models.functions import RowNumber

from mcp_django import ModelExposure
from mcp_django.exposures.querysets import Keys, among, filterable, gives_every_row, leaves_out_nothing
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import CreateRecord, DeleteRecord, UpdateRecord
from tests.factories import make_superuser
from tests.sitesapp import models
from tests.sitesapp.models import Holder, Item, KeptItem
from tests.tool_calls import call, refusal, request_of, site_with

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
FIELDS = ["id", "kind", "name", "size", "parent"]
ODD = [
    models.UnitedItem,
    models.SlicedItem,
    models.ValuesItem,
    models.OnlyItem,
    models.DeferItem,
    models.DistinctItem,
    models.AnnotatedItem,
    models.AliasItem,
]


@pytest.fixture
def items():
    """Three kinds; two have parts."""
    made = [Item.every.create(kind="abc"[number % 3], name=f"Item {number}", size=number) for number in range(6)]
    for part in made[2:5]:
        part.parent = made[0]
        part.save()
    made[5].parent = made[1]
    made[5].save()
    return made


def request_for(*found, **options):
    return request_of(make_superuser(), site_with(*found, **options))


def expected(model):
    """Return the keys of the rows that the manager itself gives."""
    rows = model._default_manager.get_queryset()
    return sorted(row["id"] if isinstance(row, dict) else row.pk for row in rows)


def page(request, model, **arguments):
    arguments.setdefault("fields", FIELDS)
    return call(QueryRecords(), request, model=model._meta.label_lower, **arguments)


def keys(found):
    return sorted(row[0] for row in found["rows"])


@pytest.mark.parametrize("model", ODD)
def test_row_127_a_page_has_the_rows_that_the_manager_gives(model, items):
    assert keys(page(request_for(model), model)) == expected(model)


@pytest.mark.parametrize("model", ODD)
def test_what_the_manager_gives_can_be_filtered_sorted_searched_and_counted(model, items):
    request = request_for(model, search_fields=["name"])
    given = expected(model)
    size = {item.pk: item.size for item in items}
    found = page(request, model, filters={"size__gte": 3}, ordering=["-size"], count=True)
    assert [row[0] for row in found["rows"]] == sorted((pk for pk in given if size[pk] >= 3), key=size.get)[::-1]
    assert found["count"] == len(found["rows"])
    assert keys(page(request, model, search="Item 0")) == [pk for pk in given if pk == items[0].pk]


@pytest.mark.parametrize("model", ODD)
def test_what_the_manager_gives_is_paged_to_the_last_row(model, items):
    request, found, cursor = request_for(model), [], {}
    while True:
        shown = page(request, model, limit=1, ordering=["-name"], **cursor)
        found += keys(shown)
        if "next_cursor" not in shown:
            break
        cursor = {"cursor": shown["next_cursor"]}
    assert sorted(found) == expected(model)


@pytest.mark.parametrize("model", ODD)
def test_what_the_manager_gives_is_aggregated(model, items):
    label = model._meta.label_lower
    found = call(AggregateRecords(), request_for(model), model=label, aggregates=["count", "sum:size"])
    given = [item for item in items if item.pk in expected(model)]
    assert found["rows"] == [[len(given), sum(item.size for item in given)]]


@pytest.mark.parametrize("model", ODD)
def test_a_row_that_the_manager_gives_is_read_and_one_that_it_hides_is_not(model, items):
    request, label = request_for(model), model._meta.label_lower
    given = expected(model)
    for item in items:
        if item.pk in given:
            assert call(GetRecord(), request, model=label, pk=item.pk)["fields"]["name"] == item.name
        else:
            assert "No such record" in refusal(GetRecord(), request, model=label, pk=item.pk)


@pytest.mark.parametrize("model", ODD)
def test_a_row_that_the_manager_gives_is_changed_and_deleted(model, items):
    request, label = request_for(model), model._meta.label_lower
    pk = expected(model)[-1]
    call(UpdateRecord(), request, model=label, pk=pk, values={"name": "Changed"})
    assert Item.every.get(pk=pk).name == "Changed"
    token = call(DeleteRecord(), request, model=label, pk=pk)["confirm_token"]
    call(DeleteRecord(), request, model=label, pk=pk, confirm_token=token)
    assert not Item.every.filter(pk=pk).exists()


def test_a_row_is_added_where_the_manager_cannot_be_filtered(items):
    request = request_for(models.UnitedItem)
    values = {"kind": "a", "name": "New", "size": 1}
    made = call(CreateRecord(), request, model="sitesapp.uniteditem", values=values)
    assert Item.every.get(pk=made["pk"]).name == "New"


@pytest.mark.parametrize("model", [models.OnlyItem, models.DeferItem])
@pytest.mark.parametrize("computed", [False, True], ids=["columns", "instances"])
def test_what_a_manager_leaves_out_costs_no_query_for_each_row(model, computed, items, django_assert_max_num_queries):
    class Exposure(ModelExposure):
        fields = [*FIELDS, "shout"]

        def shout(self, row):
            return row.name.upper()

    site = site_with()
    site.register(model, Exposure)
    request = request_of(make_superuser(), site)
    page(request, model, fields=FIELDS)
    with django_assert_max_num_queries(2):
        found = page(request, model, fields=["name", "parent", *(["shout"] if computed else [])], limit=6)
    assert len(found["rows"]) == 6


def test_the_default_manager_decides_whatever_its_name(items):
    Item.every.filter(pk=items[0].pk).update(deleted=True)
    request = request_for(KeptItem)
    assert items[0].pk not in keys(page(request, KeptItem))
    assert len(page(request, KeptItem)["rows"]) == 5


def test_row_127_the_base_manager_shows_no_row_that_the_default_manager_hides(items):
    gone = Item.every.get(pk=items[0].pk)
    holder = Holder.objects.create(item_id=gone.pk)
    holder.items.add(*KeptItem.rows.filter(pk__in=[gone.pk, items[1].pk]))
    Item.every.filter(pk=gone.pk).update(deleted=True)
    request = request_for(Holder, KeptItem, fields=["id", "item", "items"])
    found = call(QueryRecords(), request, model="sitesapp.holder", fields=["item", "items"])
    assert found["rows"] == [[holder.pk, [gone.pk, None], [[items[1].pk, "Item 1"]]]]
    shown = call(GetRecord(), request, model="sitesapp.holder", pk=holder.pk)
    assert "Item 0" not in str(shown)


@pytest.mark.parametrize("filters", [{"item__name": "Item 0"}, {"items__name": "Item 0"}, {"items": "GONE"}])
def test_row_127_a_filter_finds_nothing_by_a_row_that_the_manager_hides(items, filters):
    gone = Item.every.get(pk=items[0].pk)
    holder = Holder.objects.create(item_id=gone.pk)
    holder.items.add(KeptItem.rows.get(pk=gone.pk))
    filters = {name: gone.pk if value == "GONE" else value for name, value in filters.items()}
    site = site_with(KeptItem)
    declared = {"item__name": ["exact"], "items__name": ["exact"], "items": ["exact"]}
    site.register(Holder, ModelExposure, fields=["id", "item", "items"], filter_fields=declared)
    request = request_of(make_superuser(), site)
    assert keys(call(QueryRecords(), request, model="sitesapp.holder", filters=filters)) == [holder.pk]
    Item.every.filter(pk=gone.pk).update(deleted=True)
    assert call(QueryRecords(), request, model="sitesapp.holder", filters=filters)["rows"] == []


def test_a_manager_that_wants_more_than_django_gives_it_is_served_by_an_exposure_that_knows(items):
    class Exposure(ModelExposure):
        fields = FIELDS

        def get_queryset(self, request):
            return models.StrictItem.objects.get_queryset("b")

    site = site_with()
    site.register(models.StrictItem, Exposure)
    request = request_of(make_superuser(), site)
    assert [row[1] for row in page(request, models.StrictItem)["rows"]] == ["b", "b"]


# What is told of a manager


@pytest.mark.parametrize(
    ("model", "every"),
    [(Item, True), (KeptItem, False), (models.OnlyItem, False), (models.Receipt, False), (models.Invoice, False)],
)
def test_a_manager_of_the_projects_own_is_not_taken_to_give_every_row(model, every):
    assert gives_every_row(model) is every


def test_a_queryset_that_can_be_filtered_stays_as_it_is(items):
    for rows in (Item.every.all(), Item.every.filter(kind="a").distinct(), KeptItem.kept.select_related("parent")):
        assert filterable(rows) is rows


def test_one_that_cannot_becomes_one_of_the_same_class_and_database(items):
    class Rows(QuerySet):
        pass

    rows = filterable(Rows(Item, using="default")[:2])
    assert type(rows) is Rows
    assert rows.filter(kind="a").db == "default"
    assert rows.count() == 2


@pytest.mark.parametrize(
    ("change", "every"),
    [
        (lambda rows: rows, True),
        (lambda rows: rows.order_by("name").annotate(counted=Count("parts")).select_related("parent"), True),
        (lambda rows: rows.distinct(), True),
        (lambda rows: rows.filter(size__lt=3), False),
        (lambda rows: rows.exclude(parent=None), False),
        (lambda rows: rows.annotate(counted=Count("parts")).filter(counted__gt=0), False),
        (lambda rows: rows.none(), False),
        (lambda rows: rows[:3], False),
        (lambda rows: rows.union(rows), False),
        (lambda rows: rows.extra(where=["1 = 0"]), False),
        (lambda rows: rows.using("default"), False),
        (lambda rows: rows.values("id"), False),
    ],
)
def test_row_127_only_what_narrows_nothing_leaves_out_nothing(items, change, every):
    assert leaves_out_nothing(change(Item.every.all())) is every


def test_a_filter_shows_no_row_that_a_window_leaves_out(items):
    """Django asks a further filter before the window, which then numbers the rows that are left."""
    number = Window(RowNumber(), partition_by="kind", order_by=F("size").desc())
    largest = filterable(Item.every.annotate(number=number).filter(number=1))
    assert sorted(largest.values_list("size", flat=True)) == [3, 4, 5]
    assert not largest.filter(size__lt=3).exists()
    assert not Item.every.filter(among(largest), size__lt=3).exists()


def test_limited_keys_are_a_derived_table_on_mysql() -> None:
    query = Keys.of(Item._default_manager.order_by("name")[:2]).query
    query.subquery = True
    sql, params = query.as_mysql(query.get_compiler("default"), connection)
    assert sql.startswith("(SELECT * FROM (SELECT ")
    assert sql.endswith(") mcp_keys)")
    assert (len(params), "LIMIT 2" in sql) == (0, True)
