"""The list of calls as a file: what is shown, for those who see it, and nothing that a spreadsheet would run."""

import csv
import io
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mcp_django.console.call_file import CHUNK
from mcp_django.console.call_log_admin import CallPaginator
from mcp_django.context.call_record import CallRecord
from mcp_django.models import CallEntry
from mcp_django.operating.call_log_storage import row_of, store
from tests.factories import make_superuser, make_user
from tests.unit.console.test_call_log_admin import CALLS, log, signed_in

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
FILE = f"{CALLS}csv/"
EVIL = ['=HYPERLINK("https://evil.example")', "+1+cmd|' /C calc'!A0", "@SUM(1)", "\uff1d1+1", "a;=1+1"]


@pytest.fixture
def browser() -> Client:
    return signed_in(make_superuser())


def read(browser: Client, **query: str) -> list[dict[str, str]]:
    response: Any = browser.get(FILE, query)
    assert response.status_code == 200
    assert response["Content-Disposition"] == 'attachment; filename="calls.csv"'
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    text = b"".join(response.streaming_content).decode("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_it_has_the_calls_that_the_list_shows_in_its_order(browser: Client) -> None:
    values = {"model": "shop.order", "username": "ann", "user": "7", "client_name": "Claude", "rows_changed": 3}
    slow = log(timedelta(minutes=5), outcome="tool_error", detail='No field, "totl"; so', duration=1234.56, **values)
    fast = log(timedelta(minutes=9), outcome="refused:scope", duration=4.0)
    log()
    assert [row["id"] for row in read(browser, q="failed refused")] == [slow.call_id, fast.call_id]
    assert [row["id"] for row in read(browser, q="failed refused", o="1")] == [fast.call_id, slow.call_id]
    row = read(browser, q="failed refused", p="7")[0]
    shown = browser.get(CALLS, {"q": "failed"}).text
    assert row["time"] in shown
    assert row["outcome"] == "failed: tool error"
    assert row["reason"] == 'No field, "totl"; so'
    assert (row["model"], row["user"], row["client"]) == ("shop.order", "ann", "Claude")
    assert (row["rows changed"], row["duration (ms)"]) == ("3", "1234.6")
    assert "csv/?q=failed" in shown


def test_it_is_in_the_language_and_the_time_zone_of_the_page(browser: Client) -> None:
    entry = log(outcome="error:timeout")
    browser.cookies["mcp_zone"] = "Asia/Kolkata"
    response: Any = browser.get(FILE, headers={"Accept-Language": "de"})
    (row,) = csv.reader(b"".join(response.streaming_content).decode("utf-8-sig").splitlines()[1:])
    assert row[0] == f"{entry.time + timedelta(hours=5.5):%Y-%m-%d %H:%M:%S}"
    assert row[1] in ("fehlgeschlagen: Zeitüberschreitung", "failed: timed out")


def test_no_text_of_a_client_runs_in_a_spreadsheet(browser: Client) -> None:
    for text in EVIL:
        log(client_name=text, tool=text, username=text, user="7", model=text, detail=text, outcome="tool_error")
    log(client_name="-5", tool="\u202egpj.exe")
    rows = read(browser)
    for text, row in zip(EVIL, reversed(rows[1:]), strict=True):
        for cell in (row["client"], row["tool"], row["user"], row["model"], row["reason"]):
            assert cell != text
            assert cell.replace("'", "") == text.replace("'", "")
    # A number is none, and a turn of the direction is shown as on the page.
    assert rows[0]["client"] == "-5"
    assert "\u202e" not in rows[0]["tool"]


def test_it_is_for_those_who_see_the_list() -> None:
    log(tool="secret_tool")
    assert Client().get(FILE).status_code == 302
    assert signed_in(make_user("bob", "testapp.view_book")).get(FILE).status_code == 403
    assert [row["tool"] for row in read(signed_in(make_user("ann", "mcp_django.view_callentry")))] == ["secret_tool"]


def test_it_has_no_captured_arguments_and_no_other_lookup_finds_anything(browser: Client) -> None:
    log()
    CallEntry.objects.update(arguments="canary", result="canary")
    assert "canary" not in str(read(browser, arguments__contains="nothing"))
    assert len(read(browser, arguments__contains="nothing", p="x")) == 1


def test_a_word_that_cannot_be_read_gives_no_calls(browser: Client) -> None:
    log()
    assert read(browser, q="nonsense-word") == []


def test_it_has_the_newest_calls_only_and_reads_them_by_one_query(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CallPaginator, "most", CHUNK + 20)
    started = timezone.now()
    records = [
        CallRecord(started=started - timedelta(seconds=number), outcome="ok", tool=f"tool_{number}")
        for number in range(CHUNK + 40)
    ]
    store(list(map(row_of, records)))
    with CaptureQueriesContext(connection) as few:
        assert len(read(browser, q="tool:tool_1")) == 1
    with CaptureQueriesContext(connection) as many:
        rows = read(browser)
    assert len(many) <= len(few) + 2
    assert [row["tool"] for row in rows] == [f"tool_{number}" for number in range(CHUNK + 20)]


def test_nobody_keeps_it_for_others(browser: Client) -> None:
    log()
    response: Any = browser.get(FILE)
    assert {"private", "no-store"} <= set(response["Cache-Control"].split(", "))
    response.close()
