from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone
from oauth2_provider.models import AccessToken, Application

from mcp_django.context.call_record import CallRecord
from mcp_django.models import Session, Stream
from mcp_django.operating.call_log_storage import row_of, store
from tests.factories import make_user
from tests.oauth_flow import Flow
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


def test_clients_with_access_are_for_those_who_may_view_tokens(admin, browser_of):
    Flow().tokens()
    text = admin.get(url("connections")).text
    application = Application.objects.get()
    assert "Robot" in text
    assert f"/admin/oauth2_provider/accesstoken/?application={application.pk}" in text
    assert AccessToken.objects.get().token_checksum not in text
    reader = browser_of("reader", VIEW)
    assert reader.get(url("connections")).context["clients"] is None
    assert "Robot" not in reader.get(url("connections")).text


def test_what_clients_call_themselves_is_inert(admin):
    Flow().tokens()
    Application.objects.update(name="<script>alert(1)</script>")
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
