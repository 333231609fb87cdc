"""The time zone of the console: the project's until an operator chooses another, on every page and in the list."""

from datetime import UTC, datetime
from urllib.parse import urlencode

import pytest
from django.urls import reverse
from django.utils import timezone

from mcp_django.models import CallEntry
from tests.factories import make_user
from tests.unit.console.conftest import url

CALLS = "/admin/mcp_django/callentry/"


@pytest.fixture
def call(db):
    return CallEntry.objects.create(call_id="a" * 32, time=datetime(2026, 3, 1, 23, 30, 5, tzinfo=UTC), outcome="ok")


@pytest.mark.parametrize("place", ["", "{call.pk}/change/"])
def test_times_are_in_the_zone_that_was_chosen(admin, call, place):
    address = CALLS + place.format(call=call)
    text = admin.get(address).text
    assert "2026-03-01 23:30:05" in text
    assert "Times in UTC" in text
    admin.get(address, {"mcp_zone": "Asia/Tokyo"})
    text = admin.get(address).text
    assert "2026-03-02 08:30:05" in text
    assert "2026-03-01" not in text
    assert "Times in Asia/Tokyo" in text
    admin.get(address, {"mcp_zone": ""})
    assert "Times in UTC" in admin.get(address).text


def test_each_page_names_the_zone_and_leaves_the_next_request_its_own(admin):
    admin.cookies["mcp_zone"] = "Asia/Tokyo"
    for name in ("overview", "connections", "switches", "health", "seen", "try", "connect"):
        assert "Times in Asia/Tokyo" in admin.get(url(name)).text
    assert timezone.get_current_timezone_name() == "UTC"


def test_who_chooses_comes_back_to_the_same_page(admin):
    answer = admin.get(f"{CALLS}?q=client%3A%22Claude+Code%22&mcp_zone=Europe/Berlin&o=1")
    assert (answer.status_code, answer.headers["Location"]) == (302, f"{CALLS}?q=client%3A%22Claude+Code%22&o=1")
    cookie = admin.cookies["mcp_zone"]
    assert (cookie.value, cookie["samesite"], cookie["httponly"]) == ("Europe/Berlin", "Lax", True)


@pytest.mark.parametrize("name", ["Asia/Tokyo", "", "Mars/Olympus"])
def test_nobody_chooses_a_zone_before_login(client, db, name):
    for is_user in (False, True):
        if is_user:
            client.force_login(make_user("reader", staff=False))
        client.cookies["mcp_zone"] = "Asia/Seoul"
        answer = client.get(url("overview"), {"mcp_zone": name})
        # The login leads back to the choice.
        query = urlencode({"next": f"{url('overview')}?{urlencode({'mcp_zone': name})}"}, safe="/")
        assert (answer.status_code, answer.headers["Location"]) == (302, f"{reverse('admin:login')}?{query}")
        assert not answer.cookies


def test_the_form_keeps_what_the_page_was_asked_for(admin):
    text = admin.get(url("overview"), {"q": 'client:"<b>"'}).text
    assert '<input type="hidden" name="q" value="client:&quot;&lt;b&gt;&quot;">' in text


@pytest.mark.parametrize(
    "name", ["Mars/Olympus", "../../etc/passwd", "/etc/localtime", "Europe", "<b>", "x" * 9000, "\0"]
)
def test_what_is_no_zone_is_said_and_nothing_changes(admin, name):
    answer = admin.get(url("switches"), {"mcp_zone": name}, follow=True)
    assert "There is no time zone" in answer.text
    assert "<b>" not in answer.text
    assert "mcp_zone" not in admin.cookies


@pytest.mark.parametrize("name", ["Mars/Olympus", "../../etc/passwd", "x" * 3000])
def test_a_cookie_that_names_no_zone_is_left_alone(admin, name):
    admin.cookies["mcp_zone"] = name
    assert "Times in UTC" in admin.get(url("overview")).text


def test_a_project_without_zones_keeps_its_times(admin, settings, call):
    settings.USE_TZ = False
    admin.cookies["mcp_zone"] = "Asia/Tokyo"
    text = admin.get(CALLS).text
    assert "Times in UTC" in text
    assert "2026-03-01 23:30:05" in text
