import re
import uuid
from datetime import timedelta
from html import unescape
from urllib.parse import urlsplit

import pytest
from django.contrib.admin.models import LogEntry
from django.urls import reverse
from django.utils import timezone

from mcp_django.console import switches_page
from mcp_django.models import CallEntry, Switch
from mcp_django.operating.alerts import alerts
from mcp_django.operating.switches import board, end_switch, set_switch
from tests.factories import make_user
from tests.unit.console.conftest import url

pytestmark = pytest.mark.django_db
VIEW, CHANGE = "mcp_django.view_switch", "mcp_django.change_switch"


@pytest.fixture(autouse=True)
def clean_board():
    yield
    board.__init__()


def turn_off(browser, **sent):
    return browser.post(url("switches"), sent, follow=True)


def test_something_is_turned_off_with_a_reason_and_an_end(admin):
    answer = turn_off(admin, kind="tool", target="delete_record", reason="audit", lasts="30")
    switch = Switch.active().get()
    assert (switch.kind, switch.target, switch.reason, switch.by) == ("tool", "delete_record", "audit", "root")
    assert timedelta(minutes=29) < switch.until - timezone.now() <= timedelta(minutes=30)
    assert "delete_record" in answer.text
    assert "audit" in answer.text
    assert LogEntry.objects.get().object_id == str(switch.pk)


def test_a_time_can_be_its_end(admin):
    until = timezone.now().replace(second=0, microsecond=0) + timedelta(days=2)
    turn_off(admin, kind="writes", until=f"{until:%Y-%m-%dT%H:%M}", lasts="30", target="is not asked")
    assert (Switch.active().get().until, Switch.active().get().target) == (until, "")


def test_it_is_turned_on_again(admin):
    set_switch("writes", by="night shift", reason="backup")
    switch = Switch.active().get()
    assert "night shift" in admin.get(url("switches")).text
    answer = admin.post(url("switches"), {"on": switch.pk}, follow=True)
    switch.refresh_from_db()
    assert (Switch.active().count(), switch.ended_by) == (0, "root")
    assert "Nothing is off." in answer.text
    assert "backup" in answer.text
    assert "It is on already." in admin.post(url("switches"), {"on": switch.pk}, follow=True).text


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"kind": "tool", "target": "no_such_tool"}, "target"),
        ({"kind": "tool", "target": ""}, "target"),
        ({"kind": "action", "target": "testapp.book.nothing"}, "target"),
        ({"kind": "model", "target": "testapp.nothing"}, "__all__"),
        ({"kind": "user", "target": "nobody"}, "__all__"),
        ({"kind": "service", "target": "nobody"}, "__all__"),
        ({"kind": "client", "target": ""}, "__all__"),
        ({"kind": "writes", "until": "2001-01-01T00:00"}, "__all__"),
        ({"kind": "writes", "until": "soon"}, "until"),
        ({"kind": "nothing"}, "kind"),
        ({}, "kind"),
        ({"kind": "writes", "reason": "x" * 201}, "reason"),
        ({"kind": "writes", "lasts": "7"}, "lasts"),
    ],
)
def test_what_cannot_be_turned_off_is_an_error_of_the_form(admin, sent, field):
    answer = turn_off(admin, **sent)
    assert field in answer.context["form"].errors
    assert not Switch.objects.exists()


@pytest.mark.parametrize(
    ("kind", "target"),
    [("model", "testapp.book"), ("model", "testapp"), ("action", "testapp.book.publish"), ("action", "publish")],
)
def test_models_apps_and_actions_are_turned_off(admin, kind, target):
    turn_off(admin, kind=kind, target=target)
    assert Switch.active().get().target == target


def test_who_may_view_switches_turns_none(browser_of):
    set_switch("tool", "delete_record")
    viewer = browser_of("viewer", VIEW)
    text = viewer.get(url("switches")).text
    assert "delete_record" in text
    assert 'name="on"' not in text
    assert 'name="kind"' not in text
    assert viewer.post(url("switches"), {"kind": "writes"}).status_code == 403
    assert viewer.post(url("switches"), {"on": Switch.active().get().pk}).status_code == 403
    assert Switch.active().count() == 1


def test_it_takes_no_permission_for_the_log(browser_of):
    guard = browser_of("guard", CHANGE)
    answer = turn_off(guard, kind="everything", reason="incident")
    assert Switch.active().get().kind == "everything"
    assert (
        'href="/admin/mcp_django/callentry/"' not in answer.text.partition('class="mcp-tabs"')[2].partition("</nav>")[0]
    )


def test_who_may_view_the_log_alone_sees_no_switch(browser_of):
    assert browser_of("reader", "mcp_django.view_callentry").get(url("switches")).status_code == 403


@pytest.mark.parametrize("key", ["", "x", "-1", "1.0", "9" * 30, "²", "\0"])
def test_what_is_no_key_turns_nothing_on(admin, key):
    set_switch("writes")
    assert admin.post(url("switches"), {"on": key}, follow=True).status_code == 200
    assert Switch.active().count() == 1


def test_what_people_write_is_inert(admin):
    make_user("<script>alert(1)</script>")
    turn_off(admin, kind="user", target="<script>alert(1)</script>", reason="<script>alert(2)</script>")
    text = admin.get(url("switches")).text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(2)" in text


def test_the_number_of_queries_does_not_grow(admin, django_assert_max_num_queries):
    for number in range(12):
        switch = set_switch("client", f"client-{number}")
        if number % 2:
            end_switch(switch)
    with django_assert_max_num_queries(10):
        admin.get(url("switches"))


def make_entry(**values):
    return CallEntry.objects.create(call_id=uuid.uuid4().hex, **{"time": timezone.now(), "outcome": "ok"} | values)


def links_of(text):
    """The addresses of the buttons that turn something off."""
    return [unescape(part.partition('"')[0]) for part in text.split('class="mcp-off" href="')[1:]]


def form_of(answer):
    """The fields of the form that turns something off, as the page shows them filled."""
    form = answer.context["form"]
    fields = {name: str(form[name].value() or "") for name in form.fields}
    return fields | {"back": answer.context["back"]}


def test_something_is_off_two_clicks_from_where_it_is_seen(admin):
    make_user("mallory")
    page = admin.get(url("seen"), {"user": "mallory"})
    link = next(link for link in links_of(page.text) if "mallory" in link)
    opened = admin.get(link)
    # A browser gives no element the focus where the address has a fragment.
    assert not urlsplit(link).fragment
    assert 'value="Turn off" autofocus' in opened.text
    assert form_of(opened)["lasts"] == "60"
    done = admin.post(url("switches"), form_of(opened))
    switch = Switch.active().get()
    assert (switch.kind, switch.name) == ("user", "mallory")
    assert switch.reason
    assert timedelta(minutes=59) < switch.until - timezone.now() <= timedelta(hours=1)
    assert done.url == page.wsgi_request.get_full_path()


@pytest.mark.parametrize("page", ["admin:mcp_django_callentry_changelist", "admin:mcp_django_console_overview"])
def test_what_calls_are_narrowed_to_is_turned_off_from_there(admin, browser_of, page):
    make_entry(tool="delete_record", model="testapp.book")
    narrowed = f"{reverse(page)}?q=tool%3Adelete_record+model%3Atestapp.book+failed"
    links = links_of(admin.get(narrowed).text)
    assert [form_of(admin.get(link))["target"] for link in links] == ["delete_record", "testapp.book"]
    assert admin.post(url("switches"), form_of(admin.get(links[0]))).url == narrowed
    viewer = browser_of("viewer", "mcp_django.view_callentry")
    assert links_of(viewer.get(narrowed).text) == []


def ticked(answer):
    """The client ids that the page offers, and those that are ticked."""
    boxes = re.findall(r'<input type="checkbox" name="target" value="([^"]*)"( checked)?>', answer.text)
    return [unescape(value) for value, _ in boxes], [unescape(value) for value, checked in boxes if checked]


@pytest.mark.parametrize("query", ["", "?q=client%3A%22Co+%3Cb%3E%22"])
def test_a_client_is_off_two_clicks_from_its_row_of_the_overview(admin, query):
    make_entry(client_id="abc", client_name="Co <b>")
    page = url("overview") + query
    link = next(link for link in links_of(admin.get(page).text) if "named" in link)
    opened = admin.get(link)
    # Nothing is off before the second click.
    assert not Switch.objects.exists()
    assert "<b>" not in opened.text
    assert (form_of(opened)["kind"], form_of(opened)["target"]) == ("client", "abc")
    assert admin.post(link, form_of(opened)).url == page
    assert [(switch.kind, switch.target) for switch in Switch.active()] == [("client", "abc")]


def test_of_the_clients_with_one_name_those_that_are_ticked_are_off(admin):
    now = timezone.now()
    for number, client_id in enumerate(["a&b", "https://c.example/x?y=1", "items", "abc", "abc"]):
        make_entry(client_id=client_id, client_name="Codex", time=now - timedelta(minutes=number))
    make_entry(client_id="other", client_name="Claude")
    make_entry(client_name="Codex")
    (link,) = [link for link in links_of(admin.get(url("overview")).text) if "Codex" in link]
    opened = admin.get(link)
    assert ticked(opened) == (["a&b", "https://c.example/x?y=1", "items", "abc"],) * 2
    sent = form_of(opened) | {"kind": "client"}
    # Unticking all of them turns off none.
    refused = admin.post(link, sent | {"target": []})
    assert "__all__" in refused.context["form"].errors
    assert ticked(refused) == (["a&b", "https://c.example/x?y=1", "items", "abc"], [])
    late = admin.post(link, sent | {"target": ["abc"], "until": "2001-01-01T00:00"})
    assert ticked(late)[1] == ["abc"]
    assert not Switch.objects.exists()
    done = admin.post(link, sent | {"target": ["a&b", "abc"]}, follow=True)
    assert {(switch.kind, switch.target) for switch in Switch.active()} == {("client", "a&b"), ("client", "abc")}
    assert done.redirect_chain == [(url("overview"), 302)]
    assert done.text.count("Off: client Codex. All workers apply it") == 1


def test_of_many_clients_with_one_name_those_that_called_last_are_offered(
    admin, monkeypatch, django_assert_max_num_queries
):
    monkeypatch.setattr(switches_page, "MAX_CLIENTS", 3)
    now = timezone.now()
    for number in range(6):
        make_entry(client_id=f"c{number}", client_name="Codex", time=now - timedelta(minutes=number))
    with django_assert_max_num_queries(12):
        opened = admin.get(url("switches"), {"kind": "client", "named": "Codex"})
    assert ticked(opened)[0] == ["c0", "c1", "c2"]


@pytest.mark.parametrize("name", ["Codex", "nobody", "\0", "x" * 5000])
def test_clients_without_an_id_are_turned_off_by_their_user(admin, name):
    make_entry(client_name="Codex", kind="stdio", username="ann")
    opened = admin.get(url("switches"), {"kind": "client", "named": name})
    assert "have no client id: turn off their user." in opened.text
    assert form_of(opened)["target"] == ""


def test_who_may_not_view_the_log_learns_no_ids_of_it(browser_of):
    make_entry(client_id="abc", client_name="Codex")
    guard = browser_of("guard", CHANGE)
    opened = guard.get(url("switches"), {"kind": "client", "named": "Codex"})
    assert opened.status_code == 200
    assert "abc" not in opened.text


def test_the_reason_and_the_end_that_are_proposed_can_be_changed(admin):
    opened = admin.get(url("switches"), {"kind": "tool", "target": "delete_record"})
    admin.post(url("switches"), form_of(opened) | {"reason": "Ask Ann first", "lasts": ""})
    assert (Switch.active().get().reason, Switch.active().get().until) == ("Ask Ann first", None)


@pytest.mark.parametrize("kind", ["tool", "client", "user"])
def test_a_switch_in_force_is_changed_by_its_link(admin, kind):
    target = {"tool": "delete_record", "client": "client-1", "user": make_user("ann").username}[kind]
    set_switch(kind, target, reason="A & B?")
    text = admin.get(url("switches")).text
    link = unescape(text.partition('<a href="?kind=')[2].partition('"')[0])
    opened = admin.get(f"{url('switches')}?kind={link}")
    assert form_of(opened)["reason"] == "A & B?"
    admin.post(url("switches"), form_of(opened) | {"reason": "Still"})
    assert (Switch.active().get().kind, Switch.active().get().reason) == (kind, "Still")


@pytest.mark.parametrize(
    "back",
    ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)", "x", "/" * 3000],
)
def test_only_a_path_of_this_site_leads_back(admin, back):
    opened = admin.get(url("switches"), {"kind": "writes", "back": back})
    assert opened.context["back"] == ""
    assert admin.post(url("switches"), {"kind": "writes", "back": back}).url == url("switches")


@pytest.mark.parametrize("query", [{"kind": "x" * 5000}, {"target": "\0<b>", "kind": "tool"}, {"lasts": "no"}])
def test_what_a_link_fills_in_is_checked_as_if_it_was_typed(admin, query):
    opened = admin.get(url("switches"), query)
    assert "<b>" not in opened.text.partition('id="turn-off"')[2].partition("</form>")[0]
    assert admin.post(url("switches"), form_of(opened)).status_code == 200
    assert not Switch.objects.exists()


def test_each_page_says_what_is_off_and_turns_it_on_in_one_click(admin):
    set_switch("tool", "delete_record", reason="<i>Audit</i>", by="night shift", until=timedelta(hours=2))
    for page in (reverse("admin:mcp_django_callentry_changelist"), url("overview"), url("try"), url("connect")):
        banner = admin.get(page).text.partition('class="mcp-banner"')[2].partition("</section>")[0]
        assert all(word in banner for word in ("delete_record", "night shift", "until", "&lt;i&gt;Audit", 'name="on"'))
        assert f'name="back" value="{page}"' in banner
    back = url("try") + "?tool=list_models"
    answer = admin.post(url("switches"), {"on": Switch.active().get().pk, "back": back}, follow=True)
    assert answer.redirect_chain == [(back, 302)]
    assert "mcp-banner" not in answer.text


def test_the_page_of_a_call_says_what_is_off(admin):
    set_switch("writes")
    entry = make_entry()
    assert "mcp-banner" in admin.get(reverse("admin:mcp_django_callentry_change", args=[entry.pk])).text


def test_what_is_to_be_off_later_or_was_is_in_no_banner(admin):
    set_switch("writes", begins=timezone.now() + timedelta(hours=1))
    end_switch(set_switch("tool", "delete_record"))
    assert "mcp-banner" not in admin.get(url("overview")).text


def test_the_banner_and_the_buttons_keep_to_permissions(browser_of):
    set_switch("tool", "delete_record", reason="Audit")
    reader = browser_of("reader", "mcp_django.view_callentry").get(url("connections")).text
    assert "mcp-banner" not in reader
    viewer = browser_of("viewer", "mcp_django.view_callentry", VIEW).get(url("connections")).text
    assert "mcp-banner" in viewer
    assert 'name="on"' not in viewer
    assert "mcp-off" not in viewer


def test_a_client_is_called_as_it_called_itself_last(admin):
    make_entry(client_id="abc", client_name="Old", time=timezone.now() - timedelta(days=1))
    make_entry(client_id="abc", client_name="Co\u202edex")
    assert set_switch("client", "abc").name == "Co\ufffddex"
    assert set_switch("client", "unknown").name == ""


def test_each_page_says_that_the_time_of_a_switch_is_over_and_has_it_told_once(admin, monkeypatch):
    told = []
    monkeypatch.setattr(alerts, "raise_alert", lambda kind, key, *_more: told.append((kind, key)))
    over = set_switch("tool", "delete_record", until=timedelta(hours=1))
    old = set_switch("writes", until=timedelta(hours=1))
    now = timezone.now()
    Switch.objects.filter(pk=over.pk).update(until=now - timedelta(minutes=5))
    Switch.objects.filter(pk=old.pk).update(begins=now - timedelta(days=3), until=now - timedelta(days=2))
    # No call comes in this process.
    for page in (url("overview"), url("health")):
        text = admin.get(page).text
        assert "On again, because its time has run out: tool delete_record." in text
        assert text.count("On again, because") == 1
    assert told == [("switch", str(over.pk))] * 2
    assert "On again, because" not in admin.get(url("switches")).text
    set_switch("tool", "delete_record")
    text = admin.get(url("overview")).text
    assert "mcp-banner" in text
    assert "On again, because" not in text
