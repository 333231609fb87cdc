from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.utils import timezone

from mcp_django.models import Switch
from mcp_django.operating.switches import active, board, end_switch, set_switch
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
    switch = active().get()
    assert (switch.kind, switch.target, switch.reason, switch.by) == ("tool", "delete_record", "audit", "root")
    assert timedelta(minutes=29) < switch.until - timezone.now() <= timedelta(minutes=30)
    assert "delete_record" in answer.text
    assert "audit" in answer.text
    assert LogEntry.objects.get().object_id == str(switch.pk)


def test_a_time_can_be_its_end(admin):
    until = timezone.now().replace(second=0, microsecond=0) + timedelta(days=2)
    turn_off(admin, kind="writes", until=f"{until:%Y-%m-%dT%H:%M}", lasts="30", target="is not asked")
    assert (active().get().until, active().get().target) == (until, "")


def test_it_is_turned_on_again(admin):
    set_switch("writes", by="night shift", reason="backup")
    switch = active().get()
    assert "night shift" in admin.get(url("switches")).text
    answer = admin.post(url("switches"), {"on": switch.pk}, follow=True)
    switch.refresh_from_db()
    assert (active().count(), switch.ended_by) == (0, "root")
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
    assert active().get().target == target


def test_who_may_view_switches_turns_none(browser_of):
    set_switch("tool", "delete_record")
    viewer = browser_of("viewer", VIEW)
    text = viewer.get(url("switches")).text
    assert "delete_record" in text
    assert 'name="on"' not in text
    assert 'name="kind"' not in text
    assert viewer.post(url("switches"), {"kind": "writes"}).status_code == 403
    assert viewer.post(url("switches"), {"on": active().get().pk}).status_code == 403
    assert active().count() == 1


def test_it_takes_no_permission_for_the_log(browser_of):
    guard = browser_of("guard", CHANGE)
    answer = turn_off(guard, kind="everything", reason="incident")
    assert active().get().kind == "everything"
    assert (
        'href="/admin/mcp_django/callentry/"' not in answer.text.partition('class="mcp-tabs"')[2].partition("</nav>")[0]
    )


def test_who_may_view_the_log_alone_sees_no_switch(browser_of):
    assert browser_of("reader", "mcp_django.view_callentry").get(url("switches")).status_code == 403


@pytest.mark.parametrize("key", ["", "x", "-1", "9" * 30, "²"])
def test_what_is_no_key_turns_nothing_on(admin, key):
    set_switch("writes")
    assert admin.post(url("switches"), {"on": key}, follow=True).status_code == 200
    assert active().count() == 1


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
