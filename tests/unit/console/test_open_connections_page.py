from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from mcp_django.context.call_record import CallRecord
from mcp_django.models import Session, Stream
from mcp_django.operating.call_log_storage import row_of, store
from tests.factories import make_user
from tests.unit.console.conftest import url

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
VIEW = "mcp_django.view_callentry"


def make_session(number=1, user=None, **values):
    now = timezone.now()
    return Session.objects.create(id=f"{number:032}", user=user, **{"created": now, "seen": now, **values})


def make_stream(session, number=1, **values):
    return Stream.objects.create(id=f"{number:032}", session=session, **{"alive": timezone.now(), **values})


def test_sessions_are_shown_with_user_client_and_calls(admin):
    session = make_session(user=make_user("ada"), uris=["django://testapp/book"])
    make_stream(session)
    store([row_of(CallRecord(outcome="ok", session=session.pk, client_name="Robot")) for _ in range(3)])
    answer = admin.get(url("connections"))
    (row,) = answer.context["sessions"]
    assert (row.client, row.calls, row.subscriptions, row.open_streams) == ("Robot", 3, 1, 1)
    assert "ada" in answer.text
    assert len(answer.context["streams"]) == 1


def test_times_are_those_of_the_other_pages(admin):
    moment = timezone.now().replace(microsecond=0)
    make_stream(make_session(seen=moment), alive=moment)
    admin.cookies["mcp_zone"] = "Asia/Tokyo"
    text = admin.get(url("connections"), headers={"accept-language": "de"}).text
    assert text.count(f">{moment.astimezone(ZoneInfo('Asia/Tokyo')):%Y-%m-%d %H:%M:%S}</time>") == 2


def test_what_is_over_is_not_shown(admin):
    make_session(1, ended=True)
    make_session(2, seen=timezone.now() - timedelta(days=400))
    session = make_session(3)
    make_stream(session, state=Stream.State.DONE)
    answer = admin.get(url("connections"))
    assert [row.pk for row in answer.context["sessions"]] == [session.pk]
    assert not answer.context["streams"]


def test_a_stream_whose_worker_is_gone_says_so(admin):
    make_stream(make_session(), alive=timezone.now() - timedelta(hours=1))
    assert "its worker is gone" in admin.get(url("connections")).text


def test_a_session_is_ended_with_its_streams(admin):
    session = make_session()
    make_stream(session)
    answer = admin.post(url("connections"), {"end": session.pk}, follow=True)
    session.refresh_from_db()
    assert session.ended
    assert not Stream.objects.exists()
    assert "No session is open." in answer.text
    again = admin.post(url("connections"), {"end": session.pk}, follow=True)
    assert "had already ended" in again.text


def test_ending_takes_a_permission_of_its_own(browser_of):
    session = make_session()
    reader = browser_of("reader", VIEW)
    assert 'name="end"' not in reader.get(url("connections")).text
    assert reader.post(url("connections"), {"end": session.pk}).status_code == 403
    assert not Session.objects.get().ended
    guard = browser_of("guard", VIEW, "mcp_django.change_session")
    guard.post(url("connections"), {"end": session.pk})
    assert Session.objects.get().ended


def test_the_page_of_clients_leads_there_and_both_are_for_those_who_may_view_calls(admin, browser_of):
    assert f'href="{url("connections")}"' in admin.get(url("clients")).text
    clerk = browser_of("clerk", "testapp.view_book")
    assert clerk.get(url("connections")).status_code == clerk.post(url("connections")).status_code == 403
    session = make_session()
    store([row_of(CallRecord(outcome="ok", session=session.pk, client_name="Robot"))])
    assert f"{url('clients')}?client=Robot" in admin.get(url("connections")).text


def test_what_clients_call_themselves_is_inert(admin):
    session = make_session()
    store([row_of(CallRecord(outcome="ok", session=session.pk, client_name="<script>alert(2)</script>"))])
    text = admin.get(url("connections")).text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(2)" in text


def test_no_id_is_shown_with_which_a_session_could_be_used(browser_of):
    session = make_session()
    text = browser_of("reader", VIEW).get(url("connections")).text
    assert session.pk not in text


def test_the_number_of_queries_does_not_grow(admin, django_assert_max_num_queries):
    for number in range(8):
        make_stream(make_session(number, make_user(f"user-{number}")), number)
    with django_assert_max_num_queries(12):
        admin.get(url("connections"))
