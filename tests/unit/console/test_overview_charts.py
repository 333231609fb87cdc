"""The overview: what happened, what changed, what hurts; each number leads to the calls behind it."""

import json
import re
from datetime import timedelta
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from django.utils import timezone
from django.utils.translation import gettext, ngettext, override
from pytest_django import DjangoAssertNumQueries

from mcp_django.console import overview_charts as module
from mcp_django.console.call_query import CallQuery
from mcp_django.context.call_record import CallRecord
from mcp_django.models import CallEntry
from mcp_django.operating.call_log_storage import row_of, store
from tests.factories import make_superuser

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
OVERVIEW = "/admin/mcp_django/callentry/overview/"
EVIL = '<img src=x onerror="alert(1)">\u202eevil'


@pytest.fixture
def browser() -> Client:
    found = Client()
    found.force_login(make_superuser())
    return found


def log(ago: timedelta = timedelta(minutes=5), **values: object) -> None:
    values = {"outcome": "ok", "tool": "query_records", "client_name": "Claude", **values}
    store([row_of(CallRecord(started=timezone.now() - ago, **values))])


def page(browser: Client, query: str = "") -> str:
    return browser.get(OVERVIEW, {"q": query} if query else {}).content.decode()


def number_of(text: str, title: str) -> tuple[str, str, str]:
    """Return the number under a title, how it changed, and where it leads."""
    found = re.search(rf"<dt>{re.escape(title)}</dt><dd>(.*?)</dd>", text)
    assert found is not None, text
    link = re.search(r'href="([^"]*)"', found[1])
    change = re.search(r'<span class="mcp-change[^>]*>([^<]*)', found[1])
    value = re.sub(r"<span.*?</span>|<[^>]*>", "", found[1]).strip()
    return value, change[1] if change else "", unescape(link[1]) if link else ""


def calls_of(url: str) -> int:
    """Return how many calls the query of an address finds."""
    text = parse_qs(urlsplit(url).query)["q"][0]
    return CallQuery.parse(text, timezone.now()).filter(CallEntry.objects.all()).count()


def test_each_number_leads_to_its_calls(browser: Client) -> None:
    log()
    log(outcome="refused:scope")
    log(outcome="tool_error", duration=900.0)
    log(outcome="error:timeout", duration=1200.0)
    log(ago=timedelta(days=3), outcome="tool_error")
    text = page(browser)
    for title, value, calls in (("Calls", "4", 4), ("Failed", "50.0 %", 2), ("Slowest 5 %, from", "1.2 s", 1)):
        shown, _change, url = number_of(text, title)
        assert (shown, calls_of(url)) == (value, calls), title
        assert urlsplit(url).path == "/admin/mcp_django/callentry/"
    # So do those of the lists, and the bars.
    cells = re.findall(r'<td><a href="(/admin/mcp_django/callentry/\?[^"]*)">([\d,]+)(?: <span|</a>)', text)
    assert len(cells) > 6
    for url, number in cells:
        assert calls_of(unescape(url)) == int(number), url
    bars = re.findall(r'<a href="([^"]*)" data-begins[^>]* data-calls="(\d+)"', text)
    assert sum(int(number) for _url, number in bars) == 4
    for url, number in bars:
        assert calls_of(unescape(url)) == int(number)


def test_what_changed_against_the_time_before_is_told(browser: Client) -> None:
    for _ in range(3):
        log(duration=100.0, size=400)
        log(ago=timedelta(hours=30), duration=10.0, size=4_000)
    log(outcome="tool_error", duration=100.0)
    text = page(browser)
    assert number_of(text, "Calls")[:2] == ("4", "+33 %")
    assert number_of(text, "Failed")[:2] == ("25.0 %", "+25.0 points")
    assert number_of(text, "Slowest 5 %, from")[:2] == ("100 ms", "\N{MULTIPLICATION SIGN}10.0")
    assert number_of(text, "Tokens sent (about)")[:2] == ("300", "-90 %")
    assert text.count("mcp-worse") == 2


def test_an_overview_without_a_call_in_the_log_leads_to_the_connection_of_a_client(browser: Client) -> None:
    assert "No client has called yet." in page(browser)
    log(timedelta(days=20))
    assert "No client has called yet." not in page(browser)
    assert "No call matches in this time." in page(browser)


def test_a_bar_says_how_many_calls_it_has_in_the_words_of_the_number(browser: Client) -> None:
    log()
    assert ": 1 call, 0 failed" in page(browser)
    log()
    assert ": 2 calls, 0 failed" in page(browser)
    with override("pl"):
        texts = [ngettext("%(count)s call", "%(count)s calls", n) % {"count": n} for n in (1, 3, 5, 22)]
    assert texts == ["1 wywołanie", "3 wywołania", "5 wywołań", "22 wywołania"]


@pytest.mark.parametrize("language", ["en", "fr", "ja", "pl", "ar"])
def test_the_browser_has_the_words_of_each_number_of_calls(
    browser: Client, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log()
    for most in (module.MOST, 0):
        monkeypatch.setattr(module, "MOST", most)
        with override(language):
            context = browser.get(OVERVIEW, headers={"accept-language": language}).context
            forms, form_of, is_about = json.loads(context["forms"]), context["form_of"], context["figures"].part > 1
            assert is_about is (most == 0)
            for number in (0, 1, 2, 3, 5, 11, 21, 22, 25, 99, 100, 101, 102, 112, 199, 200, 211, 1002, 10_000, 10_122):
                # As the page's script does.
                form = forms[int(form_of[number if number < len(form_of) else 100 + number % 100])]
                text = ngettext("%(calls)s call, %(failed)s failed", "%(calls)s calls, %(failed)s failed", number)
                names = [gettext("about %s") % name if is_about else name for name in ("{calls}", "{failed}")]
                assert form == text % dict(zip(("calls", "failed"), names, strict=True))


def test_without_a_time_before_nothing_changed(browser: Client) -> None:
    log()
    assert "mcp-change" not in page(browser).replace("mcp-change mcp-worse", "").partition("mcp-lists")[0]


@pytest.mark.parametrize(
    ("query", "calls"), [("last 1h", 1), ("", 2), ("last 24h", 2), ("last 7d", 3), ("last 30d", 4), ("client:Codex", 0)]
)
def test_the_query_narrows_all_of_the_page(browser: Client, query: str, calls: int) -> None:
    for ago in (timedelta(minutes=5), timedelta(hours=5), timedelta(days=5), timedelta(days=25), timedelta(days=40)):
        log(ago=ago)
    text = page(browser, query)
    assert number_of(text, "Calls")[0] == str(calls)
    assert ("No call matches in this time." in text) is (calls == 0)


def test_a_range_of_the_time_line_keeps_the_rest_of_the_query(browser: Client) -> None:
    log(client_name="Codex")
    log(client_name="Codex", outcome="tool_error")
    log()
    text = page(browser, "client:Codex failed last 7d")
    assert 'data-query="client:Codex failed"' in text
    (bar,) = re.findall(r'<a href="([^"]*)" data-begins="([^"]*)" data-ends="([^"]*)" data-calls="1"', text)
    query = parse_qs(urlsplit(unescape(bar[0])).query)["q"][0]
    assert query.startswith("client:Codex failed 20")
    # What a pointer chooses is read as well.
    assert number_of(page(browser, f"client:Codex failed since {bar[1]} before {bar[2]}"), "Calls")[0] == "1"
    spans = re.findall(r'<li><a href="([^"]*)"[^>]*>Last', text)
    assert [parse_qs(urlsplit(unescape(url)).query)["q"][0] for url in spans] == [
        f"client:Codex failed last {length}" for length in ("1h", "24h", "7d", "30d")
    ]


def test_a_bar_of_a_minute_leads_to_the_list(browser: Client) -> None:
    log()
    bars = re.findall(r'<a href="([^"]*)" data-begins[^>]* data-calls="1"', page(browser, "last 20m"))
    assert [urlsplit(unescape(url)).path for url in bars] == ["/admin/mcp_django/callentry/"]


def test_the_tool_that_became_slow_comes_first_and_says_how_much(browser: Client) -> None:
    for _ in range(30):
        log(tool="aggregate_records", duration=2_000.0)
        log(tool="aggregate_records", duration=100.0, ago=timedelta(days=8))
        log(tool="query_records", duration=30.0)
    lists = page(browser, "last 7d").partition("mcp-lists")[2]
    first = lists[lists.index("<tbody>") : lists.index("</tr>", lists.index("<tbody>"))]
    assert "aggregate_records" in first
    assert "2 s</bdi>" in first
    assert "\N{MULTIPLICATION SIGN}20.0" in first


def test_charts_are_svg_with_a_table(browser: Client) -> None:
    log(duration=12.0)
    log(outcome="refused:scope")
    text = page(browser)
    assert text.count('<svg class="mcp-columns"') == 2
    assert 'rect class="mcp-refused"' in text
    assert text.count("<polyline") == 3
    assert "<details" in text
    # A screen reader reads each bar.
    assert re.search(r'aria-label="20\d\d-\d\d-\d\d \d\d:\d\d.\d\d:\d\d: 2 calls, 0 failed"', text)


def test_many_calls_are_about_so_many(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 5)
    for _ in range(40):
        log()
    text = page(browser)
    assert number_of(text, "Calls")[0].startswith("about ")
    assert "estimated from one in" in text


@pytest.mark.parametrize(("number", "text"), [(0, 0), (7, 7), (99, 99), (144, 140), (1_480, 1_500), (16_777, 17_000)])
def test_an_estimate_has_two_digits(number: int, text: int) -> None:
    assert module.rounded(number) == text


def test_what_clients_call_themselves_is_inert(browser: Client) -> None:
    log(client_name=EVIL[:90], tool=EVIL[:90], username=EVIL[:90], model=EVIL[:90])
    text = page(browser)
    assert "<img src=x" not in text
    assert "\u202e" not in text.partition("mcp-lists")[2].partition("mcp-wide")[0].replace("%E2%80%AE", "")
    assert text.count("<bdi>&lt;img") == 4


@pytest.mark.parametrize("address", [OVERVIEW, "/admin/"])
def test_times_are_those_of_the_zone_that_the_operator_chose(browser: Client, address: str) -> None:
    browser.cookies["mcp_zone"] = "Asia/Tokyo"
    log()
    text = browser.get(address).content.decode()
    with timezone.override("Asia/Tokyo"):
        ((url, label),) = re.findall(r'<a href="([^"]*)"[^>]* aria-label="([^"]*): 1 call,', text)
        assert calls_of(unescape(url)) == 1
        hours = [timezone.localtime() - timedelta(minutes=minutes) for minutes in (4, 5, 34, 35)]
    assert label[:13] in [f"{hour:%Y-%m-%d %H}" for hour in hours]
    # The bars begin a day ago, in that zone.
    first = re.search(r' aria-label="(20[^"]{11})', text)
    assert first is not None
    assert first[1] in [f"{hour - timedelta(days=1, minutes=-5):%Y-%m-%d %H}" for hour in (hours[0], hours[1])]


def test_words_that_cannot_be_read_find_nothing(browser: Client) -> None:
    log()
    assert number_of(page(browser, "nonsense"), "Calls")[0] == "0"


@pytest.mark.parametrize(
    "query",
    [
        "2031-01-01",
        "before 2020-01-01",
        "since 2031-01-01",
        "10:00-09:00",
        "last 50000w",
        "last 99999w",
        "\0",
        "x" * 5000,
    ],
)
def test_any_time_can_be_asked_for(browser: Client, query: str) -> None:
    assert browser.get(OVERVIEW, {"q": query}).status_code == 200


def test_the_page_takes_as_many_queries_for_many_calls_as_for_one(
    browser: Client, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(30):
        log(username=str(number), tool=f"tool_{number}", client_name=f"c{number}")
    with django_assert_max_num_queries(10):
        browser.get(OVERVIEW)
