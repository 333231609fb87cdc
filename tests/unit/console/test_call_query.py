"""What people type to find calls: how it is read, what it finds, and how little the database reads for it."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest_django import DjangoAssertNumQueries

from mcp_django.console import call_query as module
from mcp_django.console.call_query import CallQuery, KnownValues, Term
from mcp_django.context.call_record import CallRecord
from mcp_django.models import CallEntry, Change
from mcp_django.operating.call_log_storage import row_of, store
from mcp_django.templatetags import mcp_console
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
        ("last 1 week", "last 1w", "17 14:30:20", ""),
        ("this week", "this week", "23 00:00:00", "30 00:00:00"),
        ("Last Week", "last week", "16 00:00:00", "23 00:00:00"),
        ("since last week", "since last week", "16 00:00:00", ""),
        ("before this week", "before this week", "", "23 00:00:00"),
        ("this month", "this month", "01 00:00:00", "01 00:00:00"),
        ("last month", "last month", "01 00:00:00", "01 00:00:00"),
        ("this morning", "this morning", "24 00:00:00", "24 12:00:00"),
        ("2pm", "2026-11-24 14:00-15:00", "24 14:00:00", "24 15:00:00"),
        ("2 PM", "2026-11-24 14:00-15:00", "24 14:00:00", "24 15:00:00"),
        ("2:30 pm", "2026-11-24 14:30", "24 14:30:00", "24 14:31:00"),
        ("2:05:07 p.m.", "2026-11-24 14:05:07-14:05:08", "24 14:05:07", "24 14:05:08"),
        ("12am", "2026-11-24 00:00-01:00", "24 00:00:00", "24 01:00:00"),
        ("12 pm", "2026-11-24 12:00-13:00", "24 12:00:00", "24 13:00:00"),
        ("4pm", "2026-11-23 16:00-17:00", "23 16:00:00", "23 17:00:00"),
        ("14h", "2026-11-24 14:00-15:00", "24 14:00:00", "24 15:00:00"),
        ("14h05", "2026-11-24 14:05", "24 14:05:00", "24 14:06:00"),
        ("yesterday 2pm", "2026-11-23 14:00-15:00", "23 14:00:00", "23 15:00:00"),
        ("yesterday 2 pm - 3:30 pm", "2026-11-23 14:00-15:30", "23 14:00:00", "23 15:30:00"),
        ("9am to 11am", "2026-11-24 09:00-11:00", "24 09:00:00", "24 11:00:00"),
        ("since 9am", "since 2026-11-24 09:00", "24 09:00:00", ""),
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


NO_TIMES = ["25:00", "2026-02-30", "14:61", "since", "last", "last year", "since 14:00-14:20", "13pm", "0am", "25h"]


@pytest.mark.parametrize("word", NO_TIMES)
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
        ("qeury_records", "tool:query_records"),
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
        parse("xyz")
    with CaptureQueriesContext(connection) as often:
        parse("xyz " * 50)
    assert len(often) == len(once)


ALPHABET = st.sampled_from(
    "since before last today yesterday tue 2026-11-24 14:05 14:00-14:20 .. - 2h hour failed ok tool: client: user:a x "
    '" "" "a"" duration:>5 caller: outcome: refused:x to – : \x00 \x1f é ١٤:٠٥ 99:99 2026-02-30 '
    "2pm 14h pm p.m. this last week month morning timed out tool error not found asked or cancelled Zap zapier EU "
    "client:zap tool:a a 17 #1 no field 'x' % _ \u202e outcome:not".split(" ")
)
TEXTS = st.one_of(st.text(max_size=60), st.lists(st.one_of(ALPHABET, st.text(max_size=4)), max_size=40).map(" ".join))


@settings(max_examples=drawn(100), deadline=None)
@given(TEXTS)
def test_any_text_is_read_and_reads_the_same_again(text: str) -> None:
    if not CallEntry.objects.exists():
        log(client_name="Zapier EU", username="a.x", tool="a", outcome="tool_error", detail="There is no field 'x'.")
        log(client_name="Zapier", keys={("shop.order", "17")})
    query = parse(text)
    assert parse(str(query)) == query
    query.filter(CallEntry.objects.all()).exists()
    query.newest(CallEntry.objects.all())[0].exists()
    assert all(term.label for term in query.terms)


def found(text: str) -> set[str]:
    """The tools of the calls that a text finds, by both ways."""
    query = CallQuery.parse(text, timezone.now())
    assert CallQuery.parse(str(query), timezone.now()) == query
    matching = {entry.tool for entry in query.filter(CallEntry.objects.all())}
    assert {entry.tool for entry in query.newest(CallEntry.objects.order_by("-time"))[0]} == matching
    return matching


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("anna", "user:anna.schmidt"),
        ("user:SCHMIDT", "user:anna.schmidt"),
        ("client:Zap", "client:Zap"),
        ("zapier", "client:Zapier"),
        ("zapier eu", 'client:"Zapier EU"'),
        ("client:Zapier EU", 'client:"Zapier EU"'),
        ("failed zapier eu 14:05", 'failed client:"Zapier EU" 2026-11-24 14:05'),
        ("export", "tool:zap_export"),
        # A name that begins with it comes before one that only has it.
        ("ada", "user:ada.lovelace"),
        ("client:100%", "client:100%_sure"),
        ("client:%_", "client:100%_sure"),
        ("client:_", "client:100%_sure"),
        ('client:""""', 'client:"The ""Best"" one"'),
        ("client:best", 'client:"The ""Best"" one"'),
        ("مساعد", 'client:"\u202eمساعد المتجر"'),
        ("user:failed", "user:failed"),
        ("failed", "failed"),
        ("client:2pm", "client:2pm"),
        ('"2pm"', "client:2pm"),
        ("2pm", "2026-11-24 14:00-15:00"),
        ("client:ÉCOLE", "client:\u00c9cole-1"),
    ],
)
def test_a_part_of_a_name_finds_it(text: str, canonical: str) -> None:
    for client in (
        "Zapier",
        "Zapier EU",
        "100%_sure",
        'The "Best" one',
        "\u202eمساعد المتجر",
        "2pm",
        "École-1",
        "100 sure",
    ):
        log(client_name=client, user="7", username="anna.schmidt")
    log(tool="zap_export", model="shop.metadata", user="8", username="ada.lovelace")
    log(user="9", username="failed")
    query = parse(text)
    assert not query.problems
    assert str(query) == canonical
    assert parse(canonical) == query
    names = [term for term in query.terms if term.name != "time"]
    assert CallQuery(tuple(names), NOW).newest(CallEntry.objects.all())[0].exists() is ("failed" not in map(str, names))


def test_all_names_with_a_part_count_and_one_that_is_exact_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    log(tool="old", client_name="Zap", ago=timedelta(days=2))
    log(tool="eu", client_name="Zapier EU", client_id="1", user="7", username="anna.schmidt")
    log(tool="us", client_name="Zapier US", client_id="2", user="8", username="joanna")
    log(tool="other", client_name="Claude", client_id="3", user="9", username="bob")
    assert found("client:Zap") == {"old"}
    assert found("client:zapier") == {"eu", "us"}
    assert found("anna") == {"eu", "us"}
    (term,) = parse("anna").terms
    assert term.label == "user: anna (joanna, anna.schmidt)"
    # A name that the newest calls do not have any more is exact as well, and so is a user without calls.
    monkeypatch.setattr(module, "NEWEST", 3)
    assert found("client:Zap") == {"old"}
    make_user("anna")
    assert found("user:anna") == set()
    assert found("user:joa") == {"us"}


def test_parts_find_users_by_the_index_of_their_keys() -> None:
    ann, joanna = make_user("ann.s"), make_user("joanna")
    log(tool="one", user=str(ann.pk), username="ann.s")
    log(tool="two", user=str(joanna.pk), username="joanna")
    log(tool="renamed", user=str(ann.pk), username="an")
    known = KnownValues()
    assert known.look("user", "ann")[0] == "user"
    assert found("user:ann") == {"one", "two", "renamed"}


def test_300_names_take_as_many_queries_as_one_and_20_of_them_count() -> None:
    counts = []
    for number in range(300):
        log(client_name=f"Zapier {number}", client_id=f"zap{number}")
        if number in (1, 299):
            with CaptureQueriesContext(connection) as asked:
                query = CallQuery.parse("client:zapier failed", timezone.now())
                list(query.newest(CallEntry.objects.all())[0])
            counts.append(len(asked))
    assert counts[0] == counts[1]
    assert counts[1] <= 8
    (term,) = parse("zapier").terms
    assert len(term.names) == module.MOST_NAMES
    assert term.label.endswith(", …)")
    # The most frequent ones.
    log(client_name="Zapier 250")
    assert parse("zapier").terms[0].names[0] == "Zapier 250"


@pytest.mark.parametrize(
    ("language", "text", "canonical"),
    [
        ("en", "timed out", "outcome:error:timeout"),
        ("en", "Tool Error", "outcome:tool_error"),
        ("en", "failed: tool error", "outcome:tool_error"),
        ("en", "missing scope last 1h", "outcome:refused:scope last 1h"),
        ("en", "not found", "outcome:error:-32002 outcome:error:404"),
        ("en", "outcome:answered", "ok"),
        ("en", "answered", "ok"),
        ("en", "asked or cancelled", "open"),
        ("en", "task", "outcome:task"),
        ("de", "timed out", "outcome:error:timeout"),
        ("de", "Zeitüberschreitung", "outcome:error:timeout"),
        ("de", "fehlgeschlagen", "failed"),
        ("de", "diese Woche", "this week"),
        ("de", "gestern", "yesterday"),
        ("ar", "failed", "failed"),
    ],
)
def test_the_words_that_pages_show_are_read(language: str, text: str, canonical: str) -> None:
    with translation.override(language):
        query = parse(text)
        assert not query.problems
        assert str(query) == canonical
        # The link that is sent to somebody else reads the same in their language.
    assert parse(canonical) == query


@pytest.mark.parametrize("language", ["en", "ar", "de", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "zh-hans"])
def test_every_outcome_is_read_in_the_words_of_its_mark(language: str) -> None:
    with translation.override(language):
        for code in [*mcp_console.WORDS, *mcp_console.REASONS]:
            if code:
                terms = parse(mcp_console.Outcome(code).word).terms
                assert Term("outcome", code) in terms, code


def test_a_word_that_is_no_name_is_looked_for_in_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKED_THROUGH", 3)
    log(tool="typo", outcome="tool_error", detail="shop.order has no field 'Größe%'.", ago=timedelta(days=9))
    log(tool="other", outcome="error:-32602", detail="No field total.", ago=timedelta(days=8))
    for _number in range(6):
        log()
    assert str(parse("größe%")) == "reason:Größe%"
    # However many calls came since, by the index of outcomes.
    assert found("größe%") == {"typo"}
    assert found("reason:field") == {"typo", "other"}
    assert str(parse("has no field")) == 'reason:"has no field"'
    assert str(parse("failed no field 'größe")) == 'failed reason:"no field \'Größe"'
    assert found("ok reason:field") == set()
    for text in ("h", "% of", "no_field", "grösse"):
        assert parse(text).problems, text


def test_a_reason_is_looked_for_by_as_many_queries_among_many_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for number in range(1, 31):
        log(outcome="tool_error", detail=f"There is no number {number}.")
        if number in (1, 30):
            with CaptureQueriesContext(connection) as asked:
                list(parse("failed number").newest(CallEntry.objects.all())[0])
            counts.append(len(asked))
    assert counts[0] == counts[1]


def test_a_bare_key_finds_its_row() -> None:
    log(tool="one", model="shop.customer", keys={("shop.customer", "17")})
    uuid = "6fa459ea-ee8a-3ca4-894e-db77e160355e"
    log(tool="two", keys={("shop.basket", uuid)})
    log(tool="three", keys={("shop.product", "SKU 1")}, client_name="SKU 1 reader")
    assert str(parse("17")) == "row:17"
    assert found("17") == {"one"}
    assert found(uuid.upper()) == {"two"}
    assert found('"SKU 1"') == {"three"}
    (problem,) = parse("18").problems
    assert "row" in problem.said


def test_the_number_of_a_change_or_of_an_entry_in_the_history_leads_to_its_call() -> None:
    log(tool="other")
    entry, changed = log(tool="one"), log(tool="two")
    change = Change.objects.create(state="done", time=timezone.now(), call=changed.call_id)
    assert found(f"#{change.pk}") == {"two"}
    values = {"user": make_user("ann"), "object_repr": "x", "action_flag": 2}
    mark = [{"changed": {}}, {"via MCP": entry.call_id, "tool": "one"}]
    # One number can be that of both.
    LogEntry.objects.create(pk=change.pk, change_message=json.dumps(mark), **values)
    assert found(f"#{change.pk}") == {"one", "two"}
    LogEntry.objects.create(pk=change.pk + 1, change_message="[]", **values)
    for text in (f"#{change.pk + 1}", f"#{change.pk + 2}", "#", "#x", "#" + "9" * 18, "#" + "9" * 30):
        assert parse(text).problems, text


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
