"""What people type to find calls: how it is read, what it finds, and how little the database reads for it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest_django import DjangoAssertNumQueries

from mcp_django.console import call_query as module
from mcp_django.console.call_query import CallQuery, KnownValues, Term
from mcp_django.context.call_record import CallRecord
from mcp_django.models import CallEntry
from mcp_django.operating.call_log_storage import row_of, store
from tests.cases import drawn
from tests.factories import make_user

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
# A Tuesday.
NOW = datetime(2026, 11, 24, 14, 30, 20, tzinfo=UTC)


def log(ago: timedelta = timedelta(0), **values: Any) -> CallEntry:
    record = CallRecord(started=timezone.now() - ago, **{"outcome": "ok", "tool": "query_records", **values})
    store([row_of(record)])
    return CallEntry.objects.get(call_id=record.id.hex)


def parse(text: str) -> CallQuery:
    return CallQuery.parse(text, NOW)


def spoken(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%d %H:%M:%S}"


@pytest.mark.parametrize(
    ("text", "canonical", "begins", "ends"),
    [
        ("14:05", "2026-11-24 14:05", "24 14:05:00", "24 14:06:00"),
        ("9:05", "2026-11-24 09:05", "24 09:05:00", "24 09:06:00"),
        ("14:31", "2026-11-23 14:31", "23 14:31:00", "23 14:32:00"),
        ("14:05:07", "2026-11-24 14:05:07-14:05:08", "24 14:05:07", "24 14:05:08"),
        ("14:00-14:20", "2026-11-24 14:00-14:20", "24 14:00:00", "24 14:20:00"),
        ("14:00 - 14:20", "2026-11-24 14:00-14:20", "24 14:00:00", "24 14:20:00"),
        ("14:00–14:20", "2026-11-24 14:00-14:20", "24 14:00:00", "24 14:20:00"),
        ("14:00 to 14:40", "2026-11-24 14:00-14:40", "24 14:00:00", "24 14:40:00"),
        ("23:50-00:10", "2026-11-23 23:50-00:10", "23 23:50:00", "24 00:10:00"),
        ("yesterday 14:00-14:20", "2026-11-23 14:00-14:20", "23 14:00:00", "23 14:20:00"),
        ("Yesterday 14:00 - 14:20", "2026-11-23 14:00-14:20", "23 14:00:00", "23 14:20:00"),
        ("2026-11-24 14:05", "2026-11-24 14:05", "24 14:05:00", "24 14:06:00"),
        ("2026-11-24T14:05", "2026-11-24 14:05", "24 14:05:00", "24 14:06:00"),
        ("2026-11-20", "2026-11-20", "20 00:00:00", "21 00:00:00"),
        ("today", "today", "24 00:00:00", "25 00:00:00"),
        ("YESTERDAY", "yesterday", "23 00:00:00", "24 00:00:00"),
        ("tuesday", "2026-11-24", "24 00:00:00", "25 00:00:00"),
        ("wed", "2026-11-18", "18 00:00:00", "19 00:00:00"),
        ("tuesday 16:00", "2026-11-17 16:00", "17 16:00:00", "17 16:01:00"),
        ("since tuesday", "since 2026-11-24", "24 00:00:00", ""),
        ("since yesterday 14:00", "since 2026-11-23 14:00", "23 14:00:00", ""),
        ("since today", "since today", "24 00:00:00", ""),
        ("before 14:05", "before 2026-11-24 14:05", "", "24 14:05:00"),
        ("last 2h", "last 2h", "24 12:30:20", ""),
        ("last 15 minutes", "last 15m", "24 14:15:20", ""),
        ("last hour", "last 1h", "24 13:30:20", ""),
        ("last week", "last 1w", "17 14:30:20", ""),
        ("since yesterday before 14:05", "since yesterday before 2026-11-24 14:05", "23 00:00:00", "24 14:05:00"),
    ],
)
def test_times_are_read(text: str, canonical: str, begins: str, ends: str) -> None:
    query = parse(text)
    assert not query.problems
    assert str(query) == canonical
    assert query.period is not None
    assert tuple(map(spoken, query.period)) == (begins, ends)
    assert parse(canonical) == query


def test_times_are_those_of_the_current_time_zone() -> None:
    with timezone.override("Asia/Kolkata"):
        query = parse("14:05")
        assert query.period == (datetime(2026, 11, 24, 8, 35, tzinfo=UTC), datetime(2026, 11, 24, 8, 36, tzinfo=UTC))
        # There it is 20:00 already.
        assert str(parse("19:59")) == "2026-11-24 19:59"


def test_a_project_may_have_no_time_zones() -> None:
    query = CallQuery.parse("14:05", NOW.replace(tzinfo=None))
    assert query.period == (datetime(2026, 11, 24, 14, 5), datetime(2026, 11, 24, 14, 6))


@pytest.mark.parametrize("word", ["25:00", "2026-02-30", "14:61", "since", "last", "last month", "since 14:00-14:20"])
def test_what_is_no_time_is_a_problem(word: str) -> None:
    assert parse(word).problems


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("failed", "failed"),
        ("errors", "failed"),
        ("denied", "refused"),
        ("OK", "ok"),
        ("outcome:failed", "failed"),
        ("outcome:error", "failed"),
        ("status:ok", "ok"),
        ("refused:scope", "outcome:refused:scope"),
        ("error:-32603", "outcome:error:-32603"),
        ("error:timeout", "outcome:error:timeout"),
        ("tool_error", "outcome:tool_error"),
        ("tried", "outcome:tried"),
        ("slow", "duration:>1000"),
        ("slow:500", "duration:>500"),
        ("duration:>2s", "duration:>2000"),
        ("duration:<1.5", "duration:<1.5"),
        ("writes", "writes"),
        ("writes:yes", "writes"),
        ("caller:Service", "caller:service"),
        ('client:"Claude Desktop"', 'client:"Claude Desktop"'),
        ("client:claude", "client:Claude"),
        ("Claude", "client:Claude"),
        ("QUERY_records", "tool:query_records"),
        ("shop.order", "model:shop.order"),
        ("ann", "user:ann"),
        ("b" * 12, "error:" + "b" * 12),
        ("A" * 32, "trace:" + "a" * 32),
        ("s-1", "session:s-1"),
        ("tools/list", "method:tools/list"),
        ("error:" + "b" * 12, "error:" + "b" * 12),
        ("tool:unheard_of", "tool:unheard_of"),
        ("failed failed", "failed"),
        (
            "failed 14:05 client:Codex tool:query_records",
            "failed 2026-11-24 14:05 client:Codex tool:query_records",
        ),
    ],
)
def test_words_are_recognised(text: str, canonical: str) -> None:
    log(client_name="Claude", model="shop.order", username="ann", user="7", session="s-1", method="tools/list")
    query = parse(text)
    assert not query.problems
    assert str(query) == canonical
    assert parse(canonical) == query


def test_the_id_of_a_call_is_told_from_that_of_a_trace() -> None:
    entry = log()
    assert str(parse(entry.call_id.upper())) == f"id:{entry.call_id}"


def test_a_value_that_the_newest_calls_have_no_more_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NEWEST", 1)
    log(tool="old_tool", client_id="old-client", ago=timedelta(days=3))
    log()
    assert str(parse("old_tool old-client")) == "tool:old_tool client:old-client"


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("faild", "failed"),
        ("query_record", "tool:query_records"),
        ("Cladue", "client:Claude"),
        ("clint:Claude", "client:Claude"),
        ("tool:", ""),
        ("caller:robot", "caller:service"),
        ("duration:fast", "duration:>500"),
        ("outcome:bad", "failed"),
        ("time:never", "14:05"),
        ("yesterdy", "yesterday"),
        ("zzzzzzzzz", ""),
    ],
)
def test_what_cannot_be_read_is_said_with_the_nearest(text: str, nearest: str) -> None:
    log(client_name="Claude")
    query = parse(f"failed {text}")
    (problem,) = query.problems
    assert problem.value == text
    assert problem.said
    assert problem.nearest == nearest
    assert text in str(query)
    assert not query.filter(CallEntry.objects.all()).exists()


def test_a_query_grows_and_shrinks() -> None:
    query = parse("failed client:Codex")
    assert str(query.adding(client="Claude Desktop")) == 'failed client:"Claude Desktop"'
    assert str(query.adding(tool="x")) == "failed client:Codex tool:x"
    assert str(query.without(Term("outcome", "failed"))) == "client:Codex"
    assert str(query.adding(time="yesterday")) == "failed client:Codex yesterday"
    begins = datetime(2026, 11, 24, 13, 58, tzinfo=UTC)
    added = query.adding(time=(begins, begins + timedelta(minutes=2)))
    assert str(added) == "failed client:Codex 2026-11-24 13:58-14:00"
    assert added.period == (begins, begins + timedelta(minutes=2))
    assert str(added.adding(time="last 1h")) == "failed client:Codex last 1h"
    assert added.url("/calls/") == "/calls/?q=failed+client%3ACodex+2026-11-24+13%3A58-14%3A00"
    assert parse("").url("/calls/") == "/calls/"


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("failed", "failed"),
        ("client:Codex", "client: Codex"),
        ("slow", "duration (ms): >1000"),
        ("caller:stdio", "caller: stdio"),
        ("yesterday", "yesterday"),
        ("writes", "can change data"),
        ("refused:rate", "refused: too many calls"),
    ],
)
def test_a_chip_says_what_is_narrowed(text: str, label: str) -> None:
    (term,) = parse(text).terms
    assert term.label == label


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {"new", "refused", "failed", "old"}),
        ("last 1h", {"new", "refused", "failed"}),
        ("last 30d", {"new", "refused", "failed", "old"}),
        ("refused", {"refused"}),
        ("failed", {"failed"}),
        ("failed refused", {"failed", "refused"}),
        ("refused:scope", {"refused"}),
        ("ok", {"new", "old"}),
        ("open", set()),
        ("writes", {"old"}),
        ("caller:service", {"new"}),
        ("tool:old", {"old"}),
        ("tool:old tool:new", {"old", "new"}),
        ("user:ann", {"refused"}),
        ("user:7", {"refused"}),
        ("user:nobody", set()),
        ("client:c", {"failed"}),
        ("client:Claude", {"failed"}),
        ("client:c client:Claude", {"failed"}),
        ("model:shop.order", {"new"}),
        ("method:tools/list", {"new"}),
        ("version:2025-11-25", {"failed"}),
        ("site:mcp", {"old"}),
        ("duration:>500", {"old"}),
        ("duration:>500 duration:<900", set()),
        ("failed client:Claude last 1h", {"failed"}),
        ("failed client:Claude last 1h user:ann", set()),
        ("tool:unknown", set()),
        ("tool:'x' OR 1=1 --", set()),
    ],
)
def test_the_calls_are_found(text: str, expected: set[str]) -> None:
    log(tool="new", kind="service", model="shop.order", method="tools/list")
    log(tool="refused", outcome="refused:scope", user="7", username="ann")
    log(tool="failed", outcome="tool_error", client_id="c", client_name="Claude", version="2025-11-25")
    log(tool="old", ago=timedelta(days=20), writes=True, site="mcp", duration=1000.0)
    query = CallQuery.parse(text, timezone.now())
    assert {entry.tool for entry in query.filter(CallEntry.objects.all())} == expected
    found, since = query.newest(CallEntry.objects.all())
    assert {entry.tool for entry in found} == expected
    assert since is None


def test_a_user_is_found_by_the_name_of_now_and_by_that_of_then() -> None:
    ann = make_user("ann")
    log(tool="now", user=str(ann.pk), username="ann")
    log(tool="renamed", user=str(ann.pk), username="anne")
    log(tool="deleted", user="999", username="bob")
    rows = CallEntry.objects.all()
    assert {entry.tool for entry in parse("user:ann").filter(rows)} == {"now", "renamed"}
    assert {entry.tool for entry in parse("user:bob").filter(rows)} == {"deleted"}


OUTCOMES = ["error:-32603", "error:404", "ok", "refused:rate", "refused:scope", "tool_error"]


def test_every_outcome_is_found_in_as_many_steps(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    assert KnownValues().outcomes == []
    for outcome in OUTCOMES * 2:
        log(outcome=outcome)
    with django_assert_num_queries(len(OUTCOMES) + 1):
        assert sorted(KnownValues().outcomes) == OUTCOMES


def test_what_no_index_finds_is_looked_for_in_the_newest_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKED_THROUGH", 3)
    for number in range(6):
        log(ago=timedelta(minutes=number), site="shop", tool=f"tool_{number}")
    found, since = CallQuery.parse("site:shop", timezone.now()).newest(CallEntry.objects.all())
    assert {entry.tool for entry in found} == {"tool_0", "tool_1", "tool_2", "tool_3"}
    assert since == CallEntry.objects.get(tool="tool_3").time


def test_of_two_indexes_the_more_telling_one_says_how_far_is_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKED_THROUGH", 3)
    for number in range(6):
        log(ago=timedelta(minutes=number))
    log(ago=timedelta(days=3), client_id="rare", tool="query_records")
    found, since = CallQuery.parse("tool:query_records client:rare", timezone.now()).newest(CallEntry.objects.all())
    assert (found.count(), since) == (1, None)
    _found, since = CallQuery.parse("tool:query_records ok", timezone.now()).newest(CallEntry.objects.all())
    assert since is not None


@pytest.mark.parametrize(("text", "most"), [("last 1h", 0), ("failed", 0), ("tool:query_records", 1), ("Claude", 1)])
def test_the_log_is_asked_only_for_words_that_need_it(text: str, most: int) -> None:
    log(client_name="Claude")
    with CaptureQueriesContext(connection) as asked:
        parse(text)
    assert len(asked) == most


MANY = " ".join(f"x{number}" for number in range(11))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("failed " * 40, "failed"),
        ("failed " * 13 + "ok", "failed ok"),
        (f"14:05 {MANY} 14:05 x3 ok", f'2026-11-24 14:05 {MANY} "14:05 x3 ok"'),
        (f"{MANY} ok failed ok last", f'{MANY} ok "failed ok last"'),
        (f"{MANY} 2026-11-20 10:00-2026-11-20 09:00 ok", None),
        (f"{MANY} since 2026-11-20 before 2026-11-22 ok", f"{MANY} since 2026-11-20 before 2026-11-22 ok"),
        (f'{MANY} ok "" x', f"{MANY} ok x"),
    ],
)
def test_a_long_query_reads_the_same_again_and_counts_each_word_once(text: str, read: str | None) -> None:
    query = parse(text)
    assert parse(str(query)) == query
    if read is not None:
        assert str(query) == read


def test_the_log_is_asked_once_for_a_word_that_is_said_again() -> None:
    with CaptureQueriesContext(connection) as once:
        parse("x")
    with CaptureQueriesContext(connection) as often:
        parse("x " * 50)
    assert len(often) == len(once)


ALPHABET = st.sampled_from(
    "since before last today yesterday tue 2026-11-24 14:05 14:00-14:20 .. - 2h hour failed ok tool: client: user:a x "
    '" "" "a"" duration:>5 caller: outcome: refused:x to – : \x00 \x1f é ١٤:٠٥ 99:99 2026-02-30'.split(" ")
)
TEXTS = st.one_of(st.text(max_size=60), st.lists(st.one_of(ALPHABET, st.text(max_size=4)), max_size=40).map(" ".join))


@settings(max_examples=drawn(100), deadline=None)
@given(TEXTS)
def test_any_text_is_read_and_reads_the_same_again(text: str) -> None:
    query = parse(text)
    assert parse(str(query)) == query
    query.filter(CallEntry.objects.all()).exists()
    query.newest(CallEntry.objects.all())[0].exists()
    assert all(term.label for term in query.terms)


def test_a_row_is_found_by_its_key_and_model() -> None:
    entry = log(model="shop.customer", keys={("shop.customer", "17")})
    log(model="shop.customer", keys={("shop.customer", "18")})
    log(model="shop.order", keys={("shop.order", "17")})
    log(model="shop.customer")
    query = parse("model:shop.customer row:17")
    assert [str(term) for term in query.terms] == ["model:shop.customer", "row:17"]
    assert list(query.newest(CallEntry.objects.all())[0]) == [entry]
    assert query.filter(CallEntry.objects.filter(model="shop.order")).count() == 0
    quoted = Term("row", 'a "b" 12')
    assert parse(str(quoted)).terms == [quoted]
    assert parse("row:ABCDEF012345").terms[0].value == "ABCDEF012345"


@pytest.mark.parametrize(("text", "index"), [("row:17", "mcp_call_row"), ("writes", "mcp_call_writes")])
def test_an_index_of_some_rows_only_finds_them(text: str, index: str) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("a small table is read whole")
    rows, _since = parse(text).newest(CallEntry.objects.order_by("-time"))
    assert index in rows.explain()
