"""One value that cannot be read costs one value: never the row, the page, or a write that would lose it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DataError, OperationalError, connection, transaction
from django.db.models import F
from django.utils import timezone
from rest_framework import serializers

import mcp_django as mcp
from mcp_django import ModelExposure
from mcp_django.orm.undecodable_values import UNDECODABLE, is_undecodable, salvaged
from mcp_django.resources.completions import complete_field
from mcp_django.resources.model_resources import Resources
from mcp_django.testing import MCPClient, MCPError
from mcp_django.tools.action_tools import RunAction
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import UpdateRecord
from tests.factories import make_book, make_superuser
from tests.fieldapp.models import Guest, Remark, Sample, Seat
from tests.library import query_of, read, reader, shown
from tests.testapp.models import Author, Book, Loan
from tests.tool_calls import call, refusal, site_with

pytestmark = [pytest.mark.postgresql, pytest.mark.undivided, pytest.mark.django_db]

GET, QUERY, UPDATE, TOTALS = GetRecord(), QueryRecords(), UpdateRecord(), AggregateRecords()
LABEL = "fieldapp.sample"

# SQL of a value that the column holds and nobody can read, by column.
SQLITE = [
    ("day", "'0000-00-00'"),
    ("day", "'2026-02-30'"),
    ("day", "'soon'"),
    ("moment", "'0000-00-00 00:00:00'"),
    ("moment", "'2026-01-01 25:61:00'"),
    ("clock", "'25:00:00'"),
    ("text", "CAST(X'FF' AS TEXT)"),
    ("text", "CAST(X'EDA080' AS TEXT)"),
    ("slug", "CAST(X'C328' AS TEXT)"),
    ("decimal", "'many'"),
    ("data", "CAST(X'22FF22' AS TEXT)"),
    ("key", "'xyz'"),
    ("length", "'abc'"),
    ("ip", "CAST(X'FF' AS TEXT)"),
    ("point", "'nowhere'"),
    ("number", "9e999"),
]
POSTGRESQL = [
    ("day", "'infinity'"),
    ("day", "'0044-03-15 BC'"),
    ("moment", "'infinity'"),
    ("moment", "'-infinity'"),
    ("moment", "'0044-03-15 00:00:00+00 BC'"),
    ("length", "'9000000 years'"),
    ("decimal", "'NaN'"),
    ("number", "'NaN'"),
    ("number", "'-Infinity'"),
    ("point", "'nowhere'"),
]
# Stored without the strict mode of SQL, in which Django's own connections are.
MYSQL = [
    ("moment", "'0000-00-00 00:00:00'"),
    ("moment", "'2026-00-30 00:00:00'"),
    ("moment", "'2026-02-00 00:00:00'"),
    ("point", "'nowhere'"),
]
BAD = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "mysql": MYSQL}[connection.vendor]
IDS = [f"{name}-{i}" for i, (name, _) in enumerate(BAD)]


GOOD: dict[str, Any] = {
    "day": "2026-01-01",
    "moment": "2026-01-01T00:00:00Z",
    "clock": "12:00",
    "text": "good",
    "slug": "good",
    "decimal": "1.5",
    "data": {"a": 1},
    "length": "01:00:00",
    "ip": "::1",
    "number": 1.5,
}


# What lets a database store such values, and what ends that.
UNCHECKED = {
    "sqlite": ["PRAGMA ignore_check_constraints = ON"],
    # MySQL itself, where MariaDB alone has the second one, checks no more than the type of a column.
    "mysql": ["SET @mode = @@sql_mode, sql_mode = ''", "/*M! SET check_constraint_checks = 0 */"],
}
CHECKED = {
    "sqlite": ["PRAGMA ignore_check_constraints = OFF"],
    "mysql": ["SET sql_mode = @mode", "/*M! SET check_constraint_checks = 1 */"],
}


class Computing(ModelExposure):
    """Makes instances necessary, and follows the column that is bad."""

    fields = [*(field.name for field in Sample._meta.concrete_fields), "size_of_name"]

    def size_of_name(self, sample: Sample) -> int:
        return len(sample.name)


class Named(ModelExposure):
    """People, whose label is not of one column."""

    fields = ["username"]


def spoil(name: str, sql: str, row: Sample) -> None:
    with connection.cursor() as cursor:
        for statement in UNCHECKED.get(connection.vendor, ()):
            cursor.execute(statement)
        try:
            column = connection.ops.quote_name(name)
            cursor.execute(f"UPDATE fieldapp_sample SET {column} = {sql} WHERE id = %s", [row.pk])
        finally:
            for statement in CHECKED.get(connection.vendor, ()):
                cursor.execute(statement)


def stored(name: str, row: Sample) -> Any:
    """Return the text of what the column holds."""
    column = connection.ops.quote_name(name)
    kept = f"{column}::text" if connection.vendor == "postgresql" else f"hex({column})"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {kept} FROM fieldapp_sample WHERE id = %s", [row.pk])
        return cursor.fetchone()[0]


@pytest.fixture
def samples() -> list[Sample]:
    return [Sample.objects.create(name=f"s{i}", text="t", slug="s", integer=i) for i in range(5)]


@pytest.fixture
def asking() -> Any:
    return reader(make_superuser(), site_with(Sample))


@pytest.mark.parametrize(("name", "sql"), BAD, ids=IDS)
def test_row_211_a_bad_value_is_null_and_every_other_value_of_the_page_is_there(
    asking: Any, samples: list[Sample], name: str, sql: str
) -> None:
    good = call(QUERY, asking, model=LABEL, fields=["name", "text", name])
    spoil(name, sql, samples[2])
    page = call(QUERY, asking, model=LABEL, fields=["name", "text", name])
    expected = [list(row) for row in good["rows"]]
    expected[2][page["columns"].index(name)] = None
    assert page["rows"] == expected


@pytest.mark.parametrize(("name", "sql"), BAD, ids=IDS)
def test_the_three_roads_agree_on_rows_with_bad_values(samples: list[Sample], name: str, sql: str) -> None:
    site = site_with(Sample)
    exposure, request = site.exposures[Sample], reader(make_superuser(), site)
    spoil(name, sql, samples[0])
    spoil(name, sql, samples[3])
    query = query_of(request, exposure)
    plan, tuples, instances = (read(query, road) for road in ("plan", "tuples", "instances"))
    assert shown(plan) == shown(tuples) == shown(instances)
    assert len(plan.rows) == 5
    assert [row[plan.names.index("name")] for row in plan.rows] == [f"s{i}" for i in range(5)]
    assert {row[plan.names.index(name)] for row in (plan.rows[0], plan.rows[3])} == {None}


@pytest.mark.parametrize(("name", "sql"), BAD, ids=IDS)
def test_one_row_is_shown_but_for_the_value(asking: Any, samples: list[Sample], name: str, sql: str) -> None:
    good = call(GET, asking, model=LABEL, pk=samples[1].pk)["fields"]
    spoil(name, sql, samples[1])
    assert call(GET, asking, model=LABEL, pk=samples[1].pk)["fields"] == {**good, name: None}


@pytest.mark.skipif(connection.vendor != "sqlite", reason="Other databases check what they store")
@pytest.mark.parametrize(
    ("name", "sql", "shown_as"),
    [
        ("data", "'{broken'", "{broken"),
        ("integer", "'many'", "many"),
        ("integer", "X'00FF'", "<2 bytes>"),
        ("integer", "9223372036854775807", str(2**63 - 1)),
        ("small", "1e300", 1e300),
        ("flag", "'yes'", False),
        ("maybe", "X'31'", True),
        ("ip", "'nowhere'", "nowhere"),
        ("name", "X'414200'", "b'AB\\x00'"),
        ("name", "'a' || char(0) || 'b'", "a\0b"),
    ],
)
def test_row_211_what_is_of_another_type_is_shown_as_what_it_is(
    asking: Any, samples: list[Sample], name: str, sql: str, shown_as: Any
) -> None:
    spoil(name, sql, samples[2])
    page = call(QUERY, asking, model=LABEL, fields=["slug", name])
    assert [row[2] for row in page["rows"]][2] == shown_as
    assert page["returned"] == 5
    assert call(GET, asking, model=LABEL, pk=samples[2].pk)["fields"][name] == shown_as


def test_what_was_lost_is_said(asking: Any, samples: list[Sample]) -> None:
    name, sql = BAD[0]
    spoil(name, sql, samples[1])
    said = f"{name}: a value could not be computed and is null"
    assert said in call(QUERY, asking, model=LABEL, fields=[name])["hint"]
    assert said in call(GET, asking, model=LABEL, pk=samples[1].pk)["hint"]


def test_columns_that_are_computed_go_on(samples: list[Sample]) -> None:
    spoil(*BAD[0], samples[1])
    site = site_with()
    site.register(Sample, Computing)
    page = call(QUERY, reader(make_superuser(), site), model=LABEL, fields=["name", "size_of_name", BAD[0][0]])
    assert [row[1:] for row in page["rows"]] == [[f"s{i}", 2, None] for i in range(5)]


def test_a_serializer_loses_the_value_alone(samples: list[Sample]) -> None:
    class SampleSerializer(serializers.ModelSerializer):
        class Meta:
            model = Sample
            fields = ("name", "day")

    spoil(*BAD[0], samples[1])
    site = site_with(Sample, serializer_class=SampleSerializer, fields=None)
    page = call(QUERY, reader(make_superuser(), site), model=LABEL)
    assert [row[1:] for row in page["rows"]] == [[f"s{i}", None] for i in range(5)]


# SQLite's driver says NULL of a text that is no date at all.
@pytest.mark.parametrize(("name", "sql"), [(name, sql) for name, sql in BAD if sql != "'soon'"])
def test_a_row_with_a_lost_value_is_written_and_keeps_it(
    asking: Any, samples: list[Sample], name: str, sql: str
) -> None:
    row = {"model": LABEL, "pk": samples[1].pk}
    spoil(name, sql, samples[1])
    before = stored(name, samples[1])
    done = call(UPDATE, asking, **row, values={"integer": 77}, version=call(GET, asking, **row)["version"])
    assert done["changed"] == ["integer"]
    assert call(GET, asking, **row)["fields"][name] is None
    assert stored(name, samples[1]) == before
    assert Sample.objects.filter(integer=77).count() == 1
    if name in GOOD:
        assert call(UPDATE, asking, **row, values={name: GOOD[name]})["fields"][name] is not None


@pytest.mark.skipif(connection.vendor != "mysql", reason="Other databases have no such date, or show no value")
@pytest.mark.parametrize("text", ["0000-00-00", "2026-02-00"])
def test_a_day_that_no_calendar_has_is_shown_as_it_is_stored_and_kept(
    asking: Any, samples: list[Sample], text: str
) -> None:
    row = {"model": LABEL, "pk": samples[1].pk}
    spoil("day", f"'{text}'", samples[1])
    assert call(QUERY, asking, model=LABEL, fields=["day"])["rows"][1][1] == text
    found = call(GET, asking, **row)
    assert found["fields"]["day"] == text
    call(UPDATE, asking, **row, values={"integer": 77}, version=found["version"])
    found = call(GET, asking, **row)["fields"]
    assert (found["integer"], found["day"]) == (77, text)
    many = {"model": LABEL, "pks": [samples[1].pk], "values": {"integer": 78}}
    call(UPDATE, asking, **many, confirm_token=call(UPDATE, asking, **many)["confirm_token"])
    found = call(GET, asking, **row)["fields"]
    assert (found["integer"], found["day"]) == (78, text)


@pytest.mark.skipif(connection.vendor != "sqlite", reason="Other databases check what they store")
@pytest.mark.parametrize("kept", ["'abc'", "999999"])
@pytest.mark.parametrize("name", ["author", "owner", "book"])
def test_a_foreign_key_that_leads_nowhere_costs_its_label_alone(name: str, kept: str) -> None:
    books = [make_book(f"b{i}", owner=make_superuser(f"root {i}")) for i in range(3)]
    loans = [Loan.objects.create(book=book, borrower=book.title, due=timezone.now()) for book in books]
    site = site_with(Book, Author, Loan)
    site.register(User, Named)
    asking = reader(make_superuser(), site)
    table, row, text = ("loan", loans[1], "borrower") if name == "book" else ("book", books[1], "title")
    label = f"testapp.{table}"
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA foreign_keys = OFF")
        cursor.execute("PRAGMA defer_foreign_keys = ON")
        cursor.execute(f"UPDATE testapp_{table} SET {name}_id = {kept} WHERE id = %s", [row.pk])
    key = [kept.strip("'") if kept == "'abc'" else int(kept), None]
    for fields in ([name], [text, name]):
        page = call(QUERY, asking, model=label, fields=fields)
        assert page["rows"][1][-1] == key
        assert [other[-1][1] is None for other in page["rows"]] == [False, True, False]
    exposure = site.exposures[type(row)]
    roads = [read(query_of(asking, exposure), road) for road in ("plan", "tuples", "instances")]
    assert shown(roads[0]) == shown(roads[1]) == shown(roads[2])
    assert call(GET, asking, model=label, pk=row.pk)["fields"][name] == key
    call(UPDATE, asking, model=label, pk=row.pk, values={text: "new"})
    done = call(GET, asking, model=label, pk=row.pk)
    assert (done["fields"][name], done["fields"][text]) == (key, "new")
    assert call(TOTALS, asking, model=label, group_by=[name])["rows"]
    good = getattr(books[0] if name != "book" else loans[0], f"{name}_id")
    assert call(UPDATE, asking, model=label, pk=row.pk, values={name: good})["fields"][name][0] == good


@pytest.mark.skipif(connection.vendor == "mysql", reason="MariaDB takes no JSON of this depth")
@pytest.mark.parametrize("depth", [300, 900, 980])
def test_deep_json_beside_a_lost_value_costs_neither_the_page_nor_an_update(
    asking: Any, samples: list[Sample], depth: int
) -> None:
    name, sql = next(item for item in BAD if item[0] == "moment")
    row = {"model": LABEL, "pk": samples[1].pk}
    spoil("data", f"'{'[' * depth}{']' * depth}'", samples[1])
    spoil(name, sql, samples[1])
    before = stored("data", samples[1])
    page = call(QUERY, asking, model=LABEL, fields=["name", "data", name])
    assert [found[1] for found in page["rows"]] == [sample.name for sample in samples]
    assert call(GET, asking, **row)["fields"]["name"] == "s1"
    assert call(UPDATE, asking, **row, values={"integer": 77})["fields"]["integer"] == 77
    assert stored("data", samples[1]) == before


def test_an_order_by_lost_values_goes_on_after_each_of_them(asking: Any, samples: list[Sample]) -> None:
    name, sql = BAD[0]
    for sample in samples:
        spoil(name, sql, sample)
    arguments = {"model": LABEL, "ordering": [name], "fields": ["name"], "limit": 2}
    page = call(QUERY, asking, **arguments)
    found = page["rows"]
    while "next_cursor" in page:
        page = call(QUERY, asking, **arguments, cursor=page["next_cursor"])
        found += page["rows"]
    assert [row[1] for row in found] == [sample.name for sample in samples]


def test_good_pages_cost_no_further_query(
    asking: Any, samples: list[Sample], django_assert_max_num_queries: Any
) -> None:
    call(QUERY, asking, model=LABEL)
    with django_assert_max_num_queries(1):
        call(QUERY, asking, model=LABEL)
    spoil(*BAD[0], samples[1])
    with django_assert_max_num_queries(70):
        call(QUERY, asking, model=LABEL)


@pytest.mark.skipif(connection.vendor != "sqlite", reason="Other databases check what they store")
def test_a_key_that_cannot_be_read_costs_its_row() -> None:
    guest = Guest.objects.create(name="g")
    for number in range(4):
        Seat.objects.create(hall=f"hall {number}", number=number, guest=guest)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE fieldapp_seat SET hall = CAST(X'FF' AS TEXT) WHERE number = 2")
    site = site_with(Seat, Guest)
    page = call(QUERY, reader(make_superuser(), site), model="fieldapp.seat", fields=["number"])
    assert sorted(row[1] for row in page["rows"]) == [0, 1, 3]


@pytest.mark.parametrize("bad", [set(), {0}, {6}, {3, 4}, {0, 6}, set(range(7))], ids=lambda bad: f"bad{sorted(bad)}")
def test_what_fails_is_found_in_halves(bad: set[int]) -> None:
    calls = []

    def read(part: range) -> list[Any]:
        calls.append(part)
        wanted = range(part.start, min(part.stop, 7))
        if bad.intersection(wanted):
            raise ValueError
        return list(wanted)

    assert salvaged(read, range(10)) == [UNDECODABLE if i in bad else i for i in range(7)]
    assert len(calls) <= 1 + 2 * 4 * max(len(bad), 1)


def test_nothing_can_be_made_of_a_lost_value() -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        str(UNDECODABLE)
    with pytest.raises(ValueError, match="cannot be read"):
        bool(UNDECODABLE)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (DataError("timestamp too large"), True),
        (OperationalError("Could not decode to UTF-8 column 'text' with text"), True),
        (OperationalError("database is locked"), False),
        (ValueError("year 0 is out of range"), True),
        (KeyError("x"), True),
        (MemoryError(), False),
    ],
)
def test_only_what_a_value_can_cause_is_read_again(error: Exception, verdict: bool) -> None:
    assert is_undecodable(error) is verdict


def test_totals_and_groups_lose_the_value_alone(asking: Any, samples: list[Sample]) -> None:
    Sample.objects.update(day="2026-01-31", moment="2026-01-31T00:00:00Z")
    worst = "'-infinity'" if connection.vendor == "postgresql" else "'0000-00-00 00:00:00'"
    spoil("moment", worst, samples[1])
    if connection.vendor != "mysql":
        spoil(*BAD[0], samples[2])
    aggregate = AggregateRecords()
    total = call(aggregate, asking, model=LABEL, aggregates=["count", "min:moment", "max:integer"])
    assert total["rows"] == [[5, None, 4]]
    assert total["hint"] == "min_moment: a value cannot be read and is null."
    # On MySQL, a date that is none is a text.
    group, day = ("moment", "2026-01-31T00:00:00Z") if connection.vendor == "mysql" else ("day", "2026-01-31")
    groups = call(aggregate, asking, model=LABEL, aggregates=["count"], group_by=[group], ordering=["-count"])
    assert groups["rows"] == [[day, 4], [None, 1]]
    assert groups["hint"] == f"{group}: a value cannot be read and is null."
    smallest = call(aggregate, asking, model=LABEL, aggregates=["min:moment", "count"], group_by=["name"])
    assert [row[1] is None for row in smallest["rows"]] == [name == "s1" for name in sorted(s.name for s in samples)]
    assert "min_moment: a value cannot be read and is null." in smallest["hint"]


def test_labels_of_rows_with_lost_values_cost_the_label_alone(samples: list[Sample]) -> None:
    first, second = (Guest.objects.create(name=name) for name in ("g", "h"))
    rows = [Remark.objects.create(target=row, text="r") for row in (samples[0], samples[1], first, second)]
    spoil(*BAD[0], samples[1])
    site = site_with(Guest)
    site.register(Sample, Computing, label_field="size_of_name")
    site.register(Remark, ModelExposure, fields=["target"])
    page = call(QUERY, reader(make_superuser(), site), model="fieldapp.remark")
    assert [row[0] for row in page["rows"]] == [row.pk for row in rows]
    targets = [row[1] and row[1][0] for row in page["rows"]]
    assert targets == [samples[0].pk, samples[1].pk, first.pk, second.pk]


def test_actions_on_rows_with_lost_values_are_refused_as_a_whole(samples: list[Sample]) -> None:
    class Acting(ModelExposure):
        fields = ["name"]
        actions = ["shout"]

        @mcp.action(permissions=["change"], destructive=False)
        def shout(self, request: Any, queryset: Any) -> str:
            """Shout."""
            return f"{queryset.update(name='X')}"

    spoil(*BAD[0], samples[1])
    site = site_with()
    site.register(Sample, Acting)
    asking = reader(make_superuser(), site)
    pks = [sample.pk for sample in samples]
    assert "cannot be read" in refusal(RunAction(), asking, model=LABEL, action="shout", pks=pks)
    assert not Sample.objects.filter(name="X").exists()
    call(RunAction(), asking, model=LABEL, action="shout", pks=[pks[0], pks[2]])
    assert Sample.objects.filter(name="X").count() == 2


def test_completions_leave_the_lost_values_out(samples: list[Sample]) -> None:
    Sample.objects.update(day="2026-01-31")
    spoil(*BAD[0], samples[1])
    found = complete_field(reader(make_superuser(), site_with(Sample)), LABEL, "day", "")
    assert list(found.values) == ["2026-01-31"]


@pytest.fixture
def no_notes() -> Iterator[None]:
    """The table of notes is missing."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE testapp_note RENAME TO testapp_gone")
    yield
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE testapp_gone RENAME TO testapp_note")


# On MySQL, each statement that changes a table ends the transaction.
@pytest.mark.django_db(transaction=connection.vendor == "mysql")
@pytest.mark.usefixtures("no_notes")
def test_row_133_what_the_database_says_never_reaches_the_client() -> None:
    client = MCPClient(make_superuser())
    for tool, arguments in (
        ("query_records", {"model": "testapp.note"}),
        ("query_records", {"model": "testapp.note", "fields": ["id"], "count": True}),
        ("get_record", {"model": "testapp.note", "pk": 1}),
        ("aggregate_records", {"model": "testapp.note", "group_by": ["object_id"]}),
    ):
        with transaction.atomic():
            try:
                answer = client.call(tool, **arguments)
                said, failed = answer.text, answer.is_error
            except MCPError as error:
                said, failed = str(error), True
            transaction.set_rollback(True)
        assert failed
        for word in ("SELECT", "FROM", "testapp_note", "no such table", "exist", "Traceback"):
            assert word not in said, said


def test_pages_and_rows_as_resources_are_there_as_well(asking: Any, samples: list[Sample]) -> None:
    name, sql = BAD[0]
    spoil(name, sql, samples[1])
    resources = Resources(asking)
    (page,) = resources.find(f"django://fieldapp/sample?fields=name,{name}").read()
    assert [row[1:] for row in json.loads(page["text"])["rows"]] == [[f"s{i}", None] for i in range(5)]
    (row,) = resources.find(f"django://fieldapp/sample/{samples[1].pk}").read()
    assert json.loads(row["text"])["fields"]["name"] == "s1"


def test_a_queryset_of_the_projects_own_keeps_what_it_adds_to_good_rows(samples: list[Sample]) -> None:
    class Adding(ModelExposure):
        fields = ["name", "added", "day", "moment"]

        def get_queryset(self, request: Any) -> Any:
            return super().get_queryset(request).annotate(twice=F("integer") * 2)

        def added(self, sample: Any) -> int:
            return int(sample.twice)

    spoil(*BAD[0], samples[1])
    site = site_with()
    site.register(Sample, Adding)
    asking = reader(make_superuser(), site)
    page = call(QUERY, asking, model=LABEL)
    assert [row[2] for row in page["rows"]] == [0, None, 4, 6, 8]
    assert [row[1] for row in page["rows"]] == [f"s{i}" for i in range(5)]
    assert call(GET, asking, model=LABEL, pk=samples[1].pk)["fields"]["name"] == "s1"
