"""Values of generic relations, such as ``memos.count``, compared with plain Python over the same rows."""

import random
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.exceptions import NotPermitted
from mcp_django.exports.questions import Question
from mcp_django.orm.access import access_of
from mcp_django.orm.tool_arguments import Arguments
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.query_records import QueryRecords
from tests.behaviour.test_related_values import edge, same, sorted_by, values
from tests.factories import make_superuser, make_user
from tests.fieldapp.models import Memo, Parcel, Phrase, QuietRoom, Remark, Room, Suite
from tests.library import reader
from tests.tool_calls import call, refusal

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
QUERY = QueryRecords()
HIDDEN = "hidden"
OWNERS: tuple[Any, ...] = (Room, Suite, Parcel, Phrase)


class Visible(ModelExposure):
    fields = ("text", "stars", "made")

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).exclude(text=HIDDEN)


def site_of(**options: Any) -> MCPSite:
    site = MCPSite()
    for model in OWNERS:
        site.register(model, ModelExposure, fields=["name", "memos"])
    site.register(QuietRoom, ModelExposure, fields=["name", "memos", "hints"])
    site.register(Memo, options.pop("memo", ModelExposure), **options)
    return site


@pytest.fixture
def rows() -> None:
    """Make owners of the same names, and of the same keys where they are numbers, with memos of their own."""
    draw = random.Random(41)
    for number in range(6):
        Phrase.objects.create(name=f"{number}")
        Room.objects.create(name=f"{number}")
        Suite.objects.create(name=f"suite {number}")
        Parcel.objects.create(name=f"{number}")
    kinds = ContentType.objects.get_for_models(*OWNERS, QuietRoom, for_concrete_models=False)
    keys = [*Room.objects.values_list("pk", flat=True), *Parcel.objects.values_list("pk", flat=True)]
    keys += ["0", "1", "3", "01", ""]
    for kind in kinds.values():
        for key in keys:
            for _ in range(draw.randrange(4)):
                Memo.objects.create(
                    content_type=kind,
                    object_id=str(key),
                    text=draw.choice(["a", "b", "c", HIDDEN]),
                    stars=draw.choice([None, 0, 3, 5]),
                    made=draw.choice([None, date(2024, 2, 29), date(2025, 1, 1), date(1999, 12, 31)]),
                )


@pytest.fixture(params=["all rows", "hidden rows"])
def request_of_one(request: pytest.FixtureRequest, rows: None) -> MCPRequest:
    site = site_of(fields=["text", "stars", "made"]) if request.param == "all rows" else site_of(memo=Visible)
    return reader(make_superuser(), site)


def visible(request: MCPRequest, rows: Any) -> list[Any]:
    hides = isinstance(request.mcp.site.exposures[Memo], Visible)
    return [row for row in rows.order_by("pk") if not (hides and row.text == HIDDEN)]


OF_MEMOS: dict[str, Callable[[list[Any]], Any]] = {
    "memos.count": len,
    "memos.sum.stars": lambda rows: sum(found) if (found := values(rows, "stars")) else None,
    "memos.avg.stars": lambda rows: sum(found) / len(found) if (found := values(rows, "stars")) else None,
    "memos.min.text": lambda rows: min(values(rows, "text"), default=None),
    "memos.max.made": lambda rows: max(values(rows, "made"), default=None),
    "memos.first.made": lambda rows: min(values(rows, "made"), default=None),
    "memos.last.text.by.made": lambda rows: edge(rows, "text", "made", max),
    "memos.first.text.by.stars": lambda rows: edge(rows, "text", "stars", min),
}


def of_owners(request: MCPRequest, model: Any) -> dict[Any, dict[str, Any]]:
    """Return the values of each owner's memos, by the owner's name."""
    found = {}
    for owner in model.objects.all():
        memos = visible(request, owner.memos)
        found[owner.name] = {name: make(memos) for name, make in OF_MEMOS.items()}
    return found


def shown(request: MCPRequest, model: Any, names: Sequence[str], **more: Any) -> list[list[Any]]:
    """Return the rows of a page: the name of each owner, and the values."""
    found = call(QUERY, request, model=model._meta.label_lower, fields=["name", *names], limit=100, **more)
    # The name can be the key itself.
    return [row[found["columns"].index("name") :] for row in found["rows"]]


@pytest.mark.parametrize("model", OWNERS)
def test_a_page_shows_what_python_makes_of_the_memos_of_each_row(request_of_one: MCPRequest, model: Any) -> None:
    expected = of_owners(request_of_one, model)
    listed = shown(request_of_one, model, list(OF_MEMOS))
    assert {row[0] for row in listed} == expected.keys()
    assert any(row[1] for row in listed)
    for owner, *found in listed:
        for name, value in zip(OF_MEMOS, found, strict=True):
            assert same(value, expected[owner][name]), (owner, name, value, expected[owner][name])


@pytest.mark.parametrize("model", OWNERS)
@pytest.mark.parametrize("name", OF_MEMOS)
def test_pages_go_on_after_each_value_of_a_generic_list(request_of_one: MCPRequest, model: Any, name: str) -> None:
    expected = of_owners(request_of_one, model)
    found: list[Any] = []
    asked: dict[str, Any] = {"ordering": [f"-{name}:nulls_last", "-name"], "limit": 4, "fields": ["name"]}
    while True:
        page = call(QUERY, request_of_one, model=model._meta.label_lower, **asked)
        found += [row[-1] for row in page["rows"]]
        if "next_cursor" not in page:
            break
        asked["cursor"] = page["next_cursor"]
    assert found == sorted_by(expected, name, True, True)


FILTERS: list[tuple[str, str, Any, Callable[[Any], bool]]] = [
    ("memos.count", "gte", 2, lambda value: value >= 2),
    ("memos.count", "exact", 0, lambda value: value == 0),
    ("memos.count", "in", [1, 3], lambda value: value in (1, 3)),
    ("memos.sum.stars", "lte", 5, lambda value: value is not None and value <= 5),
    ("memos.avg.stars", "gt", 2.5, lambda value: value is not None and value > 2.5),
    ("memos.max.made", "gte", "2025-01-01", lambda value: value is not None and value >= date(2025, 1, 1)),
    ("memos.last.text.by.made", "exact", "b", lambda value: value == "b"),
    ("memos.first.made", "isnull", True, lambda value: value is None),
]


@pytest.mark.parametrize("model", OWNERS)
@pytest.mark.parametrize(("name", "lookup", "value", "passes"), FILTERS)
def test_filters_find_the_rows_that_python_finds(
    request_of_one: MCPRequest, model: Any, name: str, lookup: str, value: Any, passes: Callable[[Any], bool]
) -> None:
    expected = of_owners(request_of_one, model)
    right = {owner for owner, made in expected.items() if passes(made[name])}
    for spelt in (name, name.replace(".", "__")):
        for given in ({f"{spelt}__{lookup}": value}, {spelt: {lookup: value}}):
            found = shown(request_of_one, model, [], filters=given, count=True)
            assert {row[0] for row in found} == right
            found = shown(request_of_one, model, [], filters={"not": given})
            assert {row[0] for row in found} == expected.keys() - right


def test_a_proxy_has_the_memos_of_its_table_and_those_of_its_own_name(request_of_one: MCPRequest) -> None:
    rooms = {room.name: room for room in QuietRoom.objects.all()}
    listed = shown(request_of_one, QuietRoom, ["memos.count", "hints.count", "hints.max.text"])
    assert len(listed) == len(rooms)
    for name, memos, hints, last in listed:
        own = visible(request_of_one, rooms[name].hints)
        assert memos == len(visible(request_of_one, rooms[name].memos))
        assert (hints, last) == (len(own), max((memo.text for memo in own), default=None))
    assert sum(row[1] for row in listed) != sum(row[2] for row in listed)


def test_keys_that_are_numbers_on_both_sides_are_compared_as_such() -> None:
    site = MCPSite()
    site.register(Room, ModelExposure, fields=["name", "remarks"])
    site.register(Remark, ModelExposure, fields=["text"])
    for name in ("a", "b"):
        room = Room.objects.create(name=name)
    for text in ("x", "y"):
        Remark.objects.create(target=room, text=text)
    Remark.objects.create(content_type=ContentType.objects.get_for_model(Suite), object_id=room.pk, text="z")
    request = reader(make_superuser(), site)
    found = call(QUERY, request, model="fieldapp.room", fields=["name", "remarks.count", "remarks.max.text"])
    assert sorted(row[1:] for row in found["rows"]) == [["a", 0, None], ["b", 2, "y"]]


def test_keys_of_other_kinds_are_refused_by_name() -> None:
    site = MCPSite()
    site.register(Parcel, ModelExposure, fields=["name", "remarks"])
    site.register(Remark, ModelExposure, fields=["text"])
    request = reader(make_superuser(), site)
    for way in ({"fields": ["remarks.count"]}, {"ordering": ["remarks.count"]}, {"filters": {"remarks.count": 1}}):
        assert "remarks" in refusal(QUERY, request, model="fieldapp.parcel", **way)


def test_the_memos_of_a_related_row_are_null_behind_a_hidden_row(rows: None) -> None:
    class Rooms(ModelExposure):
        fields = ("name", "memos")

        def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
            return super().get_queryset(request).exclude(name="3")

    site = MCPSite()
    site.register(Room, Rooms)
    site.register(Parcel, ModelExposure, fields=["name", "room"])
    site.register(Memo, ModelExposure, fields=["text"])
    rooms = list(Room.objects.all())
    for parcel, room in zip(Parcel.objects.all(), [None, *rooms], strict=False):
        parcel.room = room
        parcel.save()
    listed = shown(reader(make_superuser(), site), Parcel, ["room.memos.count", "room.memos.max.text"])
    assert len(listed) == 6
    for name, number, last in listed:
        room = Parcel.objects.get(name=name).room
        if room is None or room.name == "3":
            assert (number, last) == (None, None)
            continue
        texts = [memo.text for memo in room.memos.all()]
        assert (number, last) == (len(texts), max(texts, default=None))


@pytest.mark.parametrize("model", OWNERS)
def test_a_page_takes_one_query_and_no_look_at_content_types(rows: None, model: Any) -> None:
    request = reader(make_superuser(), site_of(fields=["text", "stars", "made"]))
    ContentType.objects.clear_cache()
    with CaptureQueriesContext(connection) as captured:
        shown(request, model, list(OF_MEMOS))
    reads = [query["sql"] for query in captured if "fieldapp" in query["sql"] or "content_type" in query["sql"]]
    assert len(reads) == 1
    assert reads[0].count("fieldapp_memo") >= len(OF_MEMOS)


def test_a_file_has_the_values_that_its_pages_show(request_of_one: MCPRequest) -> None:
    asked: dict[str, Any] = {"fields": ["name", "memos.count", "memos.last.text.by.made"], "ordering": ["-memos.count"]}
    for label in ("fieldapp.room", "fieldapp.parcel"):
        model = access_of(request_of_one).get_model(label)
        found = [row for rows in Question.read(model, Arguments(asked)).pages() for row in rows]
        assert found == call(QUERY, request_of_one, model=label, limit=100, **asked)["rows"]


# What the caller must not learn


WAYS: list[dict[str, Any]] = [
    {"fields": ["memos.{value}"]},
    {"ordering": ["-memos.{value}"]},
    {"filters": {"memos.{value}": 1}},
    {"filters": {"memos__{value}__gt": 1}},
]


def written(way: Any, value: str) -> Any:
    if isinstance(way, dict):
        return {written(key, value): written(item, value) for key, item in way.items()}
    if isinstance(way, list):
        return [written(item, value) for item in way]
    return way.format(value=value) if isinstance(way, str) else way


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("value", ["count", "sum.stars", "last.text.by.made"])
def test_a_model_that_the_caller_may_not_view_has_no_memos(rows: None, way: Any, value: str) -> None:
    names = [f"fieldapp.view_{model._meta.model_name}" for model in OWNERS]
    user = make_user("u", *names)
    way = written(way, value)
    hidden = refusal(QUERY, reader(user, site_of()), model="fieldapp.room", **way)
    alone = MCPSite()
    alone.register(Room, ModelExposure, fields=["name"])
    assert hidden == refusal(QUERY, reader(user, alone), model="fieldapp.room", **way)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_relation_that_the_exposure_does_not_show_has_no_values(rows: None, way: Any) -> None:
    site = MCPSite()
    site.register(Room, ModelExposure, fields=["name"])
    alone = MCPSite()
    alone.register(Room, ModelExposure, fields=["name"])
    site.register(Memo, ModelExposure, fields=["text", "stars", "made"])
    user = make_superuser()
    way = written(way, "count")
    hidden = refusal(QUERY, reader(user, site), model="fieldapp.room", **way)
    assert hidden == refusal(QUERY, reader(user, alone), model="fieldapp.room", **way)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("value", ["sum.stars", "max.object_id", "last.text.by.stars", "last.stars.by.made"])
def test_a_hidden_column_of_memos_is_refused(rows: None, way: Any, value: str) -> None:
    request = reader(make_superuser(), site_of(fields=["text", "made"]))
    refusal(QUERY, request, model="fieldapp.room", **written(way, value))


def test_hidden_memos_change_nothing(rows: None) -> None:
    request = reader(make_superuser(), site_of(memo=Visible))

    def learnt() -> list[Any]:
        found: list[Any] = [shown(request, Room, list(OF_MEMOS))]
        found += [[row[0] for row in shown(request, Room, [], ordering=[name])] for name in OF_MEMOS]
        found += [shown(request, Room, [], filters={"memos.count__gte": 2})]
        return found

    before = learnt()
    for room in Room.objects.all():
        Memo.objects.create(target=room, text=HIDDEN, stars=99, made=date(2030, 1, 1))
    assert learnt() == before
    Memo.objects.filter(text=HIDDEN).delete()
    assert learnt() == before


def test_declared_filters_and_orders_leave_memos_out(rows: None) -> None:
    site = MCPSite()
    site.register(Memo, ModelExposure, fields=["text"])
    declared: dict[str, Any] = {"filter_fields": {"name": ["exact"]}, "sortable_by": ["name"]}
    site.register(Room, ModelExposure, fields=["name", "memos"], **declared)
    request = reader(make_superuser(), site)
    assert shown(request, Room, ["memos.count"])
    for way in ({"filters": {"memos.count": 1}}, {"ordering": ["memos.count"]}):
        assert "Valid: name" in refusal(QUERY, request, model="fieldapp.room", **way)


def test_a_generic_list_alone_is_told_what_of_it_can_be_shown(rows: None) -> None:
    request = reader(make_superuser(), site_of(fields=["text", "stars", "made"]))
    told = refusal(QUERY, request, model="fieldapp.room", fields=["memos.text"])
    assert "memos leads to several rows: memos.count, memos.sum.stars, memos.last.made" in told
    told = refusal(QUERY, request, model="fieldapp.room", fields=["memos.sum.star"])
    assert "memos.sum.stars" in told


def test_a_filter_within_an_object_is_that_of_its_dotted_name(request_of_one: MCPRequest) -> None:
    for nested, dotted in (
        ({"memos": {"count": 2}}, {"memos.count": 2}),
        ({"memos": {"count": {"gte": 2}}}, {"memos.count__gte": 2}),
        ({"memos": {"count__gte": 2}}, {"memos.count__gte": 2}),
        ({"memos": {"sum": {"stars": {"gte": 3}}}}, {"memos.sum.stars__gte": 3}),
        ({"not": {"memos": {"last.text.by.made": "b"}}}, {"not": {"memos.last.text.by.made": "b"}}),
        ({"memos": {"count__gte": 1, "max": {"stars": 5}}}, {"memos.count__gte": 1, "memos.max.stars": 5}),
    ):
        found = shown(request_of_one, Room, ["memos.count"], filters=nested)
        assert found == shown(request_of_one, Room, ["memos.count"], filters=dotted)
        assert 0 < len(found) < Room.objects.count()


@pytest.mark.parametrize(
    "given",
    [
        {"memos": {"some": {"stars": 3}}},
        {"memos": {"none": {}}},
        {"memos.every": {"stars": 3}},
        {"memos.none": {}},
        {"memos__some__stars": 3},
        {"memos": {"stars": 3}},
        {"memos.text": "a"},
        {"memos": 3},
        {"memos__isnull": True},
    ],
    ids=str,
)
def test_a_condition_on_single_memos_is_told_what_works(rows: None, given: Any) -> None:
    request = reader(make_superuser(), site_of(fields=["text", "stars", "made"]))
    told = refusal(QUERY, request, model="fieldapp.room", filters=given)
    assert "such as memos.count, memos.sum.stars, memos.last.made" in told
    assert "query fieldapp.memo" in told
    call(QUERY, request, model="fieldapp.room", filters={"memos.count__gte": 1})
    # Whoever may not view them is told nothing of it.
    user = make_user("u", "fieldapp.view_room")
    assert "fieldapp.memo" not in refusal(QUERY, reader(user, site_of()), model="fieldapp.room", filters=given)


@pytest.mark.parametrize(
    "given",
    [
        {"group_by": ["memos.count"]},
        {"group_by": ["memos.text"]},
        {"aggregates": ["sum:memos.stars"]},
        {"aggregates": ["count:memos"]},
        {"aggregates": ["avg:memos.count"]},
    ],
    ids=str,
)
def test_groups_and_measures_of_memos_are_told_where_they_are_made(rows: None, given: Any) -> None:
    request = reader(make_superuser(), site_of(fields=["text", "stars", "made"]))
    assert "aggregate fieldapp.memo itself" in refusal(AggregateRecords(), request, model="fieldapp.room", **given)


@pytest.mark.parametrize("descending", ["", "-"])
def test_pages_by_a_value_that_many_rows_share_lose_none_and_show_none_twice(rows: None, descending: str) -> None:
    request = reader(make_superuser(), site_of(memo=Visible))
    for model in OWNERS:
        for name in ("memos.last.text.by.made", "memos.count"):
            asked: dict[str, Any] = {"ordering": [f"{descending}{name}"], "limit": 2, "fields": ["name"]}
            found: list[Any] = []
            while True:
                page = call(QUERY, request, model=model._meta.label_lower, **asked)
                found += [row[-1] for row in page["rows"]]
                if "next_cursor" not in page:
                    break
                asked["cursor"] = page["next_cursor"]
            assert sorted(found) == sorted(model.objects.values_list("name", flat=True))


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("value", ["sum.stars", "last.stars.by.made", "last.text.by.stars"])
def test_a_column_of_memos_in_whose_place_something_else_is_shown_is_refused(rows: None, way: Any, value: str) -> None:
    class Masked(ModelExposure):
        fields = ("text", "stars", "made")

        def stars(self, row: Any) -> str:
            return "***"

    request = reader(make_superuser(), site_of(memo=Masked))
    assert call(QUERY, request, model="fieldapp.memo", fields=["stars"])["rows"][0][-1] == "***"
    refusal(QUERY, request, model="fieldapp.room", **written(way, value))


@pytest.mark.parametrize("name", ["memos", "memos.count", "memos.max.text"])
def test_a_file_has_nothing_of_memos_that_may_not_be_exported(rows: None, name: str, monkeypatch: Any) -> None:
    site = site_of(fields=["text", "stars", "made"])
    monkeypatch.setattr(site.exposures[Memo], "has_export_permission", lambda request: False)
    for label in ("fieldapp.room", "fieldapp.parcel", "fieldapp.quietroom"):
        model = access_of(reader(make_superuser(label), site)).get_model(label)
        with pytest.raises(NotPermitted, match=rf"^{name.replace('.', '__')}: Records of fieldapp\.memo"):
            Question.read(model, Arguments({"fields": ["name", name]}))
