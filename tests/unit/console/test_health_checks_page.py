import socket
import uuid
from datetime import timedelta
from html import unescape
from unittest.mock import Mock

import pytest
from django.contrib.sessions.models import Session
from django.utils import timezone
from oauth2_provider.models import get_access_token_model, get_application_model, get_grant_model

from mcp_django.console import health_checks_page
from mcp_django.console.check_results import CheckResult
from mcp_django.console.health_checks_page import reached
from mcp_django.models import CallEntry, Export
from mcp_django.oauth import provider_settings
from tests.exporting import export_of, with_storage
from tests.factories import make_superuser
from tests.making_tasks import MINUTE, SECOND, make_task, running
from tests.unit.console.conftest import url
from tests.unit.console.test_doctor import server as server

pytestmark = pytest.mark.django_db
NOBODY = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def nobody_answers(settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BASE_URL": NOBODY}


def found(browser):
    return {item.title: item for item in browser.get(url("health")).context["findings"]}


def at(server, settings):
    """Let the endpoint of the project be at a server, with a client that is registered there."""
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BASE_URL": server.origin}
    settings.ALLOWED_HOSTS = ["*"]
    model = get_application_model()
    kind = model.GRANT_AUTHORIZATION_CODE
    model.objects.create(name="x", redirect_uris="https://x.example/cb", authorization_grant_type=kind)
    return server.origin.partition("//")[2]


def told(browser, host, **environ):
    """The results of the steps at a server, and the text of the page that a browser gets at a host."""
    answer = browser.get(url("health"), headers={"host": host}, **environ)
    pairs = [item for item in answer.context["findings"] if " · " in item.title]
    return {item.title.partition(" · ")[0]: item for item in pairs}, answer.text


def test_what_is_wrong_comes_first_with_what_mends_it(admin, settings):
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    answer = admin.get(url("health"))
    verdicts = [item.verdict for item in answer.context["findings"]]
    assert set(verdicts) == {"error", "warning", "info", "ok"}
    assert verdicts == sorted(verdicts, key=["error", "warning", "info", "ok"].index)
    assert f"Wrong: {verdicts.count('error')}" in answer.text
    assert answer.text.index("cannot be reached") < answer.text.index("Start the server")


def test_the_pages_of_the_sign_in_are_walked_as_by_a_browser_and_nothing_is_left(admin, server, settings):
    host = at(server, settings)
    rows = [model.objects.count() for model in (get_application_model(), get_grant_model(), CallEntry, Session)]
    findings, _ = told(admin, host)
    assert [findings[title].verdict for title in ("Endpoint", "Login page", "Consent page")] == ["ok"] * 3
    assert rows == [model.objects.count() for model in (get_application_model(), get_grant_model(), CallEntry, Session)]
    assert not [path for method, path in server.asked if method == "POST" and path != "/mcp"]


@pytest.mark.parametrize(("forwarded", "is_told"), [("203.0.113.5", True), ("127.0.0.1", False), ("", False)])
def test_a_proxy_whose_address_stands_for_all_clients_is_told(admin, forwarded, is_told):
    headers = {"x-forwarded-for": forwarded} if forwarded else {}
    titles = [item.title for item in admin.get(url("health"), headers=headers).context["findings"]]
    assert ("REMOTE_ADDR" in titles) is is_told


def test_a_cookie_of_the_session_that_stays_in_the_admin_is_told(admin, server, settings):
    host = at(server, settings)
    settings.SESSION_COOKIE_PATH = "/admin/"
    findings, _ = told(admin, host)
    assert findings["Consent page"].verdict == "error"
    assert "SESSION_COOKIE_PATH" in findings["Consent page"].remedy


def test_the_session_is_shown_to_the_host_of_the_page_alone(admin, server, settings):
    at(server, settings)
    findings, text = told(admin, "elsewhere.example")
    assert "It was not opened" in text
    assert findings["Login page"].verdict == "ok"
    assert "Consent page" not in findings
    assert "sessionid" not in server.cookies


def test_a_login_page_that_may_lose_the_way_back_is_a_warning(admin, server, settings):
    host = at(server, settings)
    server.answers["/oauth/authorize"] = (302, "text/html", "", {"Location": "/login?next=/oauth/authorize"})
    form = '<form action="/login"><input name="user"><input type="password" name="word"></form>'
    server.answers["/login"] = (200, "text/html", form, {})
    findings, _ = told(admin, host)
    assert findings["Login page"].verdict == "warning"
    assert "`next`" in findings["Login page"].remedy


@pytest.mark.parametrize(
    ("place", "location", "title", "said"),
    [
        ("/mcp", "/login?next=/mcp", "Endpoint", "asks for a login before /mcp"),
        ("/oauth/authorize", "/oauth/authorize", "Login page", "in a loop"),
        ("/oauth/authorize", "/nowhere", "Login page", "LOGIN_URL"),
    ],
)
def test_a_redirect_that_leads_nowhere_is_told(admin, server, settings, place, location, title, said):
    host = at(server, settings)
    server.answers[place] = (302, "text/html", "", {"Location": location})
    findings, _ = told(admin, host)
    assert findings[title].verdict == "error"
    assert said in f"{findings[title].seen} {findings[title].remedy}"


def test_a_server_that_does_not_answer_itself_is_waited_for_a_moment_and_told(admin, settings, monkeypatch):
    monkeypatch.setattr(health_checks_page, "PATIENCE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BASE_URL": f"http://127.0.0.1:{deaf.getsockname()[1]}"}
        findings, _ = told(admin, "testserver")
    assert list(findings) == ["Endpoint"]
    assert "does not answer within 0." in findings["Endpoint"].seen
    assert "one thread" in findings["Endpoint"].remedy


def test_a_server_of_one_thread_does_not_call_itself(admin, server, settings):
    host = at(server, settings)
    _, text = told(admin, host, **{"wsgi.multithread": False, "wsgi.multiprocess": False})
    assert "The server cannot call itself." in text
    assert server.asked == []


def test_an_endpoint_that_cannot_be_reached_is_told_with_what_mends_it(admin):
    finding = found(admin)[f"Endpoint · {NOBODY}/mcp"]
    assert finding.verdict == "error"
    assert "cannot be reached" in finding.seen
    assert finding.remedy


def test_tables_cache_and_channel_layer_are_looked_at(admin):
    findings = found(admin)
    assert [findings[title].verdict for title in ("Tables of mcp_django", "Tables of oauth2_provider")] == ["ok", "ok"]
    assert findings["Cache"].verdict == "ok"
    assert findings["Channel layer"].verdict in ("ok", "info")


@pytest.mark.parametrize("layer", ["core.RedisChannelLayer", "pubsub.RedisPubSubChannelLayer"])
def test_a_channel_layer_that_does_not_answer_is_told_with_the_cause(admin, settings, layer):
    config = {"hosts": [{"address": "redis://:word@127.0.0.1:1"}]}
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": f"channels_redis.{layer}", "CONFIG": config}}
    finding = found(admin)["Channel layer"]
    assert finding.verdict == "error"
    assert "127.0.0.1:1" in finding.seen
    assert "word" not in finding.seen
    assert "CHANNEL_LAYERS" in finding.remedy


@pytest.mark.parametrize("layer", ["core.RedisChannelLayer", "pubsub.RedisPubSubChannelLayer"])
def test_a_message_goes_through_the_channel_layer_and_comes_back(admin, settings, layer, redis):
    config = {"hosts": [redis], "prefix": uuid.uuid4().hex}
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": f"channels_redis.{layer}", "CONFIG": config}}
    assert found(admin)["Channel layer"].verdict == "ok"


def test_a_cache_that_keeps_nothing_is_told(admin, settings):
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
    assert found(admin)["Cache"].verdict == "error"


def test_a_migration_that_is_missing_is_told(admin):
    from django.db.migrations.recorder import MigrationRecorder

    last = MigrationRecorder.Migration.objects.filter(app="mcp_django").order_by("-name").first()
    name = last.name
    last.delete()
    finding = found(admin)["Tables of mcp_django"]
    assert (finding.verdict, finding.remedy) == ("error", "manage.py migrate")
    assert name in finding.seen


def test_what_the_system_checks_say_of_this_app_is_told_and_of_others_not(admin, settings):
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    findings = found(admin)
    assert findings["mcp_django.W016"].verdict == "warning"
    assert "CHANNEL_LAYERS" in findings["mcp_django.W016"].remedy
    assert not [title for title in findings if title.startswith("security.")]


# Where ALLOWED_HOSTS is strict, a request still names the port.
@pytest.mark.parametrize(("debug", "hosts"), [(False, ["*"]), (True, ["*"]), (True, []), (True, ["127.0.0.1"])])
def test_a_host_that_a_request_names_is_not_called(admin, server, settings, debug, hosts):
    host = at(server, settings)
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BASE_URL": ""}
    settings.DEBUG, settings.ALLOWED_HOSTS = debug, hosts
    (endpoint,) = [
        item for item in admin.get(url("health"), headers={"host": host}).context["findings"] if item.title == "/mcp"
    ]
    assert endpoint.verdict == "error"
    assert "Set BASE_URL" in endpoint.remedy
    answer = admin.post(url("connect"), headers={"host": host})
    # While DEBUG is off there is no address to show, and so none to check.
    assert ("Set BASE_URL" if debug else "is not set") in unescape(answer.text)
    assert server.asked == []


def test_a_verdict_has_a_word():
    assert [CheckResult("", verdict, "").word for verdict in ("ok", "info", "warning", "error")] == [
        "ok", "note", "warning", "wrong",
    ]  # fmt: skip


def test_it_ends_with_the_first_step_that_fails():
    assert [item.verdict for item in reached(f"{NOBODY}/mcp")] == ["error"]


def test_scopes_that_a_project_has_lost_are_named(admin, settings):
    """A project that is an authorization server already, and has replaced its settings by those of the README."""
    assert "SCOPES" not in found(admin)
    soon = timezone.now() + timedelta(hours=1)
    get_access_token_model().objects.create(token="x", expires=soon, scope="mcp:read invoices")
    assert "invoices" in found(admin)["SCOPES"].seen
    settings.OAUTH2_PROVIDER = provider_settings(base_url=NOBODY, SCOPES={"invoices": "Invoices"})
    assert "SCOPES" not in found(admin)


def of_tasks(browser, settings, **values):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, **values}
    return found(browser)["Tasks"]


def test_it_is_told_what_runs_tasks(admin, settings):
    result = of_tasks(admin, settings)
    assert (result.verdict, result.seen) == ("ok", "They run in threads of the web server's processes.")
    result = of_tasks(admin, settings, TASK_BACKEND="tests.unit.console.test_health_checks_page.enqueue")
    assert result.seen.startswith("They are handed to tests.unit.console")
    result = of_tasks(admin, settings, TASK_BACKEND="tests.unit.console.test_health_checks_page.gone")
    assert (result.verdict, result.remedy) == ("error", "Correct TASK_BACKEND.")


def enqueue(task_id):
    raise AssertionError("Nothing is handed on by a look at the page.")


def test_tasks_that_no_worker_takes_or_that_lost_theirs_are_told(admin, settings):
    make_task(30 * SECOND)
    assert of_tasks(admin, settings).verdict == "ok"
    make_task(2 * MINUTE)
    result = of_tasks(admin, settings)
    assert result.verdict == "warning"
    assert "1 task has waited for a worker for more than a minute: perhaps none runs." in result.seen
    assert result.remedy == "After a restart they go on when their clients ask for them."
    running(2 * MINUTE, lease=-SECOND)
    result = of_tasks(admin, settings, TASK_BACKEND="tests.unit.console.test_health_checks_page.enqueue")
    assert "1 task has lost its worker." in result.seen
    assert "Start the workers" in result.remedy
    assert "clear_mcp_sessions" in result.remedy


def test_the_storage_of_exports_is_tried_and_what_nobody_deletes_is_told(admin, settings, monkeypatch):
    assert "Exports" not in found(admin)
    storage = with_storage(settings)
    assert found(admin)["Exports"].seen.startswith("Files kept: 0 (0\xa0bytes).")
    export_of(make_superuser("exporter"))
    assert found(admin)["Exports"].verdict == "ok"
    Export.objects.update(expires=timezone.now() - timedelta(days=3))
    result = found(admin)["Exports"]
    assert (result.verdict, result.remedy) == ("warning", "Run manage.py clear_mcp_sessions every day.")
    assert "Files that should have been deleted: 1." in result.seen
    monkeypatch.setattr(type(storage), "_save", Mock(side_effect=PermissionError))
    result = found(admin)["Exports"]
    assert (result.verdict, result.seen) == ("error", "The storage does not give back what it takes: PermissionError.")
