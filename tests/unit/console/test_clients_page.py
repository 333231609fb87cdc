"""The pages of clients: who they are, who connected them and when, what they called and what they may."""

import html
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from oauth2_provider.models import AccessToken, Application, RefreshToken

from mcp_django.console import clients_page, overview_charts
from mcp_django.models import CallEntry, ServiceAccount, TokenFacts
from mcp_django.operating.switches import set_switch
from tests.factories import make_user
from tests.oauth_flow import Flow
from tests.unit.console.conftest import url

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
VIEW = "mcp_django.view_callentry"
TOKENS = "oauth2_provider.view_accesstoken"


def make_client(name: str = "Robot", *, days: float = 0, **values: Any) -> Application:
    """Register a client so many days ago."""
    facts = {"registration_source": "dcr", "client_type": "public", "authorization_grant_type": "authorization-code"}
    client = Application.objects.create(**{"name": name, **facts, **values})
    Application.objects.filter(pk=client.pk).update(created=timezone.now() - timedelta(days=days))
    return client


def log(client_id: str = "", *, number: int = 1, hours: float = 1, **values: Any) -> None:
    """Put calls of a client into the log."""
    time = timezone.now() - timedelta(hours=hours)
    known = CallEntry.objects.count()
    # As those of real calls, the ids begin with any digit.
    CallEntry.objects.bulk_create(
        CallEntry(
            **{"call_id": f"{place * 2654435761 % 2**32:08x}{place:024x}", "outcome": "ok", "client_id": client_id}
            | {"time": time - timedelta(seconds=known + number - place), "kind": "person", **values}
        )
        for place in range(known, known + number)
    )


def text_of(response: Any) -> str:
    assert response.status_code == 200
    text = re.sub(r"<[^>]+>", " ", response.text.partition('class="mcp-page">')[2])
    return " ".join(html.unescape(text).split())


def listed(browser: Client, **query: Any) -> list[Any]:
    response = browser.get(url("clients"), query)
    assert response.status_code == 200
    return list(response.context["records"])


def page_of(browser: Client, client: str) -> str:
    return text_of(browser.get(url("clients"), {"client": client}))


def ids(response: Any) -> list[str]:
    return [record.key for record in response.context["records"]]


def test_a_client_is_listed_with_its_kind_and_what_it_called(admin: Client) -> None:
    robot = make_client(redirect_uris="https://robot.example/callback")
    log(robot.client_id, number=12, client_name="robot-cli")
    log(robot.client_id, number=3, outcome="tool_error")
    (record,) = listed(admin)
    assert (record.name, record.host, record.calls, record.failed) == ("Robot", "robot.example", "15", "3")
    text = text_of(admin.get(url("clients")))
    assert "Robot robot.example · registered itself" in text


@pytest.mark.parametrize(
    ("source", "words"), [("dcr", "registered itself"), ("cimd", "metadata document"), ("manual", "added by hand")]
)
def test_the_list_and_the_page_say_how_a_client_came_to_be_known(admin: Client, source: str, words: str) -> None:
    robot = make_client(registration_source=source)
    assert words in text_of(admin.get(url("clients")))
    assert words in page_of(admin, robot.client_id)


def test_a_service_account_is_one(admin: Client) -> None:
    account = ServiceAccount.objects.create(name="Night", user=make_user("night"))
    make_client("Night", client_id=account.client_id, registration_source="manual")
    assert "service account" in page_of(admin, account.client_id)


def test_clients_that_the_log_alone_knows_are_listed_and_have_a_page(admin: Client) -> None:
    log("deleted-one", client_name="Ghost", client_host="ghost.example")
    log("", client_name="local shell", kind="stdio", outcome="tool_error")
    assert {record.key for record in listed(admin)} == {"deleted-one", "local shell"}
    assert "Ghost" in page_of(admin, "deleted-one")
    local = page_of(admin, "local shell")
    assert "stdio" in local
    links = admin.get(url("clients"), {"client": "local shell"}).text
    assert "?q=client%3A%22local%20shell%22+failed+last+7d" in links


def test_a_client_that_nobody_knows_has_no_page(admin: Client) -> None:
    assert admin.get(url("clients"), {"client": "nobody"}).status_code == 404
    assert admin.get(url("clients"), {"client": "\0"}).status_code in (200, 404)


def test_a_name_leads_to_the_client_that_calls_itself_so_or_to_a_choice(admin: Client) -> None:
    log("one", client_name="Twin")
    assert "one" in page_of(admin, "Twin")
    log("two", client_name="Twin")
    choice = admin.get(url("clients"), {"client": "Twin"})
    assert sorted(ids(choice)) == ["one", "two"]
    assert "Clients that call themselves Twin" in text_of(choice)


def test_who_connected_a_client_this_week_is_one_filter(admin: Client) -> None:
    make_client("Old", days=100)
    flow = Flow()
    flow.tokens()
    response = admin.get(url("clients"), {"new": ""})
    (record,) = response.context["records"]
    assert list(record.connected) == ["ada"]
    assert re.search(r"Robot .*ada 20\d\d-\d\d-\d\d", text_of(response))
    # A user connects a client that others have had for long.
    Application.objects.update(created=timezone.now() - timedelta(days=100))
    assert [record.name for record in listed(admin, new="")] == ["Robot"]
    TokenFacts.objects.update(created=timezone.now() - timedelta(days=8))
    assert listed(admin, new="") == []
    # All others are listed, with and without tokens.
    assert {record.name for record in listed(admin)} == {"Old", "Robot"}


def test_new_this_week_has_clients_that_the_log_alone_knows(admin: Client) -> None:
    log("fresh")
    log("stale", hours=24 * 20)
    log("stale")
    assert [record.key for record in listed(admin, new="")] == ["fresh"]


def test_a_refreshed_token_is_as_old_as_the_access(admin: Client) -> None:
    flow = Flow()
    tokens = flow.tokens()
    connected = timezone.now() - timedelta(days=20)
    TokenFacts.objects.update(created=connected)
    tokens = flow.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"]).json()
    RefreshToken.objects.update(created=timezone.now())
    assert [facts.created for facts in TokenFacts.objects.all()] == [connected]
    assert listed(admin, new="")[0].connected == {}
    assert f"{timezone.localtime(connected):%Y-%m-%d %H:%M:%S}" in page_of(admin, flow.client_id)


def test_access_that_earlier_releases_stored_is_as_old_as_its_first_refresh_token() -> None:
    flow = Flow()
    tokens = flow.tokens()
    first = timezone.now() - timedelta(days=20)
    RefreshToken.objects.update(created=first)
    flow.token(grant_type="refresh_token", refresh_token=tokens["refresh_token"])
    assert TokenFacts.objects.get().created == first


def test_the_page_says_who_has_access_and_what_they_may(admin: Client) -> None:
    flow = Flow()
    flow.tokens()
    response = admin.get(url("clients"), {"client": flow.client_id})
    text = text_of(response)
    assert "ada" in text
    assert "See the data that you can see" in text
    application = Application.objects.get()
    assert f"/admin/oauth2_provider/accesstoken/?application={application.pk}" in response.text
    assert f"/admin/oauth2_provider/application/{application.pk}/change/" in response.text
    assert AccessToken.objects.get().token_checksum not in response.text


def test_access_is_for_those_who_may_view_tokens(admin: Client, browser_of: Callable[..., Client]) -> None:
    flow = Flow(username="grace hopper")
    flow.tokens()
    reader = browser_of("reader", VIEW)
    # Without a call, the log does not know it.
    assert listed(reader) == []
    assert reader.get(url("clients"), {"client": flow.client_id}).status_code == 404
    log(flow.client_id)
    assert [record.name for record in listed(reader)] == ["Robot of grace hopper"]
    for query in ({}, {"new": ""}, {"client": flow.client_id}):
        assert not reader.get(url("clients"), query).context.get("tokens")
        assert "grace hopper 20" not in text_of(reader.get(url("clients"), query))
    guard = browser_of("guard", VIEW, TOKENS)
    assert "grace hopper 20" in text_of(guard.get(url("clients"), {"client": flow.client_id}))
    assert "grace hopper 20" in text_of(guard.get(url("clients"), {"new": ""}))


def test_it_can_be_turned_off_and_on(admin: Client, browser_of: Callable[..., Client]) -> None:
    robot = make_client()
    target = f"{url('switches')}?kind=client&amp;target={robot.client_id}&amp;"
    assert target in admin.get(url("clients"), {"client": robot.client_id}).text
    set_switch("client", robot.client_id)
    off = admin.get(url("clients"), {"client": robot.client_id}).text.partition('class="mcp-page">')[2]
    assert target not in off
    assert "Turn on again" in off
    log(robot.client_id)
    assert "Turn off" not in page_of(browser_of("reader", VIEW), robot.client_id)


def test_what_it_wrote_is_linked_for_those_who_may_take_it_back(
    admin: Client, browser_of: Callable[..., Client]
) -> None:
    log("robot", client_name="Robot")
    text = admin.get(url("clients"), {"client": "robot"}).text
    assert f"{url('client_time')}?client=robot" in text
    assert f'{url("changes")}?q=client%3Arobot"' in text
    assert url("client_time") not in browser_of("reader", VIEW).get(url("clients"), {"client": "robot"}).text


def test_pages_of_calls_lead_to_the_client(admin: Client) -> None:
    log("robot", client_name="Robot")
    call = CallEntry.objects.get()
    there = f"{url('clients')}?client="
    assert f"{there}robot" in admin.get(f"/admin/mcp_django/callentry/{call.pk}/change/").text
    for name in ("overview", "failures", "conversations"):
        assert f"{there}Robot" in admin.get(url(name), {"q": "client:Robot last 7d"}).text
    assert f"{there}Robot" in admin.get("/admin/mcp_django/callentry/", {"q": "client:Robot"}).text
    assert f"{url('clients')}?new" in admin.get(url("overview")).text


def test_what_clients_call_themselves_is_inert(admin: Client) -> None:
    robot = make_client("<script>alert(1)</script>", redirect_uris="https://robot.example/")
    log("", client_name="<b>bold\u202e</b>", client_host="<i>", kind="stdio")
    for query in ({}, {"new": ""}, {"client": robot.client_id}, {"client": "<b>bold\u202e</b>"}, {"name": "<u>"}):
        text = admin.get(url("clients"), query).text.partition('class="mcp-page">')[2]
        assert "<script>alert" not in text
        assert "<b>bold" not in text
        assert "\u202e" not in text
        assert "<u>" not in text
        assert "<i>" not in text


def test_the_list_can_be_searched_and_paged(admin: Client) -> None:
    for number in range(60):
        make_client(f"Client {number:02}", days=number)
    first = admin.get(url("clients"))
    assert len(first.context["records"]) == 50
    assert 'href="?p=2"' in first.text
    assert [record.name for record in listed(admin, p=2)][-1] == "Client 59"
    assert [record.name for record in listed(admin, name="CLIENT 07")] == ["Client 07"]


def test_figures_of_a_long_log_are_a_sample_and_those_of_few_calls_are_exact(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview_charts, "MOST", 200)
    monkeypatch.setattr(clients_page, "MOST", 200)
    log("busy", number=2_000)
    log("quiet", number=7, outcome="error:-32603")
    records = {record.key: record for record in listed(admin)}
    assert records["busy"].calls.startswith("about ")
    assert 1_500 <= int(re.sub(r"\D", "", records["busy"].calls)) <= 2_500
    assert (records["quiet"].calls, records["quiet"].failed) == ("7", "7")


def test_the_number_of_queries_does_not_grow_with_the_clients(admin: Client) -> None:
    def queries(**query: str) -> int:
        with CaptureQueriesContext(connection) as found:
            assert admin.get(url("clients"), query).status_code == 200
        return len(found)

    def add(number: int) -> None:
        for _ in range(number):
            client = make_client(f"Client {Application.objects.count()}")
            log(client.client_id, number=2)

    add(50)
    fifty = queries(), queries(new="")
    add(150)
    assert (queries(), queries(new="")) == fifty
    assert max(fifty) <= 20


def test_only_those_who_may_view_calls_open_it(browser_of: Callable[..., Client]) -> None:
    assert browser_of("boss", VIEW).get(url("clients")).status_code == 200
    assert browser_of("clerk", TOKENS).get(url("clients")).status_code == 403
