"""A project whose middleware puts a role on the user and the request, and whose admin reads the session."""

import json
from urllib.parse import quote

import pytest
from asgiref.sync import sync_to_async
from django.apps import apps

if not apps.is_installed("tests.roles_project.crm"):
    pytest.skip("needs the settings of the project with roles", allow_module_level=True)

from django.conf import settings as django_settings
from django.contrib import messages
from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.models import Session
from django.core.handlers.asgi import ASGIHandler
from django.core.management import CommandError, call_command
from django.test import Client, RequestFactory

from mcp_django import asgi, site
from mcp_django.approvals.rules import rule_book
from mcp_django.checks.settings import CHECKS
from mcp_django.console.readable_models import try_models
from mcp_django.context.request import local_request
from mcp_django.differences.kept_changes import KeptChange
from mcp_django.management.commands import mcp_doctor
from mcp_django.models import ApprovalRule, Change
from mcp_django.oauth.stored_tokens import issue_token
from mcp_django.runtime import failing_hooks
from mcp_django.server.kept_calls import KeptCallExecutor
from mcp_django.testing import MCPClient
from tests.asgi_client import Exchange, http_scope
from tests.roles_project.crm.models import Account, Deal, Invoice, Note, Straße, Team, Visit

pytestmark = pytest.mark.django_db(transaction=True)
ROLES, DEPARTMENT = django_settings.ROLES, django_settings.DEPARTMENT
BREAKING = "tests.roles_project.crm.middleware.Breaking"
LABELS = ["crm.deal", "crm.invoice", "crm.note", "crm.straße", "crm.team", "crm.visit"]
ROADS = ["fast", "plain"]


@pytest.fixture
def ada():
    """A superuser of a team, with two rows of each model, one of them of another team."""
    failing_hooks._logged.clear()
    teams = [Team.objects.create(name=name) for name in ("North", "South")]
    for team in teams:
        deal = Deal.objects.create(name=f"Deal of {team}", team=team)
        Note.objects.create(deal=deal, text="A note")
        Invoice.objects.create(deal=deal, amount="10.00", cost="4.00")
        Visit.objects.create(deal=deal)
        Straße.objects.create(name=f"{team} Road")
    return Account.objects.create_superuser("ada", "ada@example.com", home=teams[0])


@pytest.fixture
def remedied(settings):
    """The project with the setting that the check proposes."""
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"CALL_MIDDLEWARE": [ROLES, DEPARTMENT]}


def application(road):
    if road == "fast":
        return asgi.get_asgi_application()
    handler = ASGIHandler()
    handler.load_middleware(is_async=True)
    return handler


async def call(road, token, tool, **arguments):
    asked = Exchange(application(road), http_scope(authorization=f"Bearer {token}", mcp_protocol_version="2025-11-25"))
    await asked.send(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    )
    status, _, body = await asked.answer()
    assert status == 200
    return json.loads(body)["result"]


def token_of(user):
    return issue_token(user, scopes=["mcp:read", "mcp:write"], resource="http://testserver/mcp")


def warnings():
    return [message for check in CHECKS for message in check() if message.id == "mcp_django.W048"]


def test_every_model_of_the_projects_admin_is_here():
    labels = {exposure.label for exposure in site.exposures.values()}
    assert sorted(label for label in labels if label.startswith("crm.")) == LABELS


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("label", LABELS)
async def test_every_model_answers_on_both_roads_with_the_proposed_setting(remedied, ada, road, label):
    token = await sync_to_async(token_of)(ada)
    page = await call(road, token, "query_records", model=label)
    assert not page.get("isError"), page
    rows = page["structuredContent"]["rows"]
    # The team's own deal, the notes of any kind, and of the others all.
    assert len(rows) == (1 if label == "crm.deal" else 2)
    described = await call(road, token, "describe_model", model=label)
    assert not described.get("isError"), described
    row = await call(road, token, "get_record", model=label, pk=rows[0][0])
    assert not row.get("isError"), row
    if label == "crm.invoice":
        assert "cost" in row["structuredContent"]["fields"]


def test_a_session_is_empty_in_each_call_and_nothing_of_it_is_stored(remedied, ada, settings):
    # The project's own pages store what they like.
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if name not in (ROLES, DEPARTMENT)]
    client = MCPClient(ada)
    for _ in range(3):
        # The admin counts in the session how often it was shown, which stays 1.
        assert client.call("query_records", model="crm.visit").structured["returned"] == 2
        Visit.objects.update(seen=0)
    Visit.objects.update(seen=1)
    assert client.call("query_records", model="crm.visit").structured["returned"] == 0
    assert not Session.objects.exists()


def test_calls_of_one_batch_share_no_session(remedied, ada):
    Visit.objects.update(seen=1)
    asked = {"name": "query_records", "arguments": {"model": "crm.visit"}}
    batch = [{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": asked} for n in range(3)]
    headers = {
        "authorization": f"Bearer {token_of(ada)}",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2025-03-26",
    }
    answer = Client().post("/mcp", json.dumps(batch), content_type="application/json", headers=headers)
    texts = [item["result"]["content"][0]["text"] for item in answer.json()]
    results = [json.loads(text)["returned"] for text in texts]
    assert results == [0, 0, 0]


def test_the_cookie_of_a_browser_gives_nothing_to_a_call(remedied, ada):
    eve = Account.objects.create_superuser("eve", home=Team.objects.get(name="South"))
    browser = Client()
    browser.force_login(eve)
    session = browser.session
    session["only"], session["team"] = "mail", eve.home_id
    session.save()
    params = {"name": "query_records", "arguments": {"model": "crm.note"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"authorization": f"Bearer {token_of(ada)}", "accept": "application/json, text/event-stream"}
    headers["mcp-protocol-version"] = "2025-11-25"
    answer = browser.post("/mcp", json.dumps(body), content_type="application/json", headers=headers)
    assert answer.json()["result"]["structuredContent"]["returned"] == 2


@pytest.mark.parametrize("label", LABELS)
def test_every_other_way_to_a_model_answers_too(remedied, ada, label):
    client = MCPClient(ada)
    place = quote(f"django://{label.replace('.', '/')}", safe=":/")
    [uri] = {item["uri"] for item in client.request("resources/list")["resources"] if item["uri"] == place}
    rows = json.loads(client.request("resources/read", uri=uri)["contents"][0]["text"])["rows"]
    for path in ("schema", str(rows[0][0])):
        assert client.request("resources/read", uri=f"{place}/{path}")["contents"]
    assert client.call("get_record", model=label, pk=rows[0][0]).structured["uri"] == f"{place}/{rows[0][0]}"
    assert not client.call("aggregate_records", model=label).is_error
    reference = {"type": "ref/resource", "uri": "django://{app_label}/{model_name}/{pk}"}
    app, model = label.split(".")
    context = {"arguments": {"app_label": app, "model_name": model}}
    asked = client.request("completion/complete", ref=reference, argument={"name": "pk", "value": ""}, context=context)
    assert len(asked["completion"]["values"]) == len(rows)
    deal, team = Deal.objects.first().pk, Team.objects.first().pk
    values = {
        "deal": deal,
        "team": team,
        "amount": 1,
        "cost": 1,
        "name": "New",
        "text": "New",
        "kind": "call",
        "seen": 0,
    }
    model_class = apps.get_model(label)
    given = {name: value for name, value in values.items() if name in {f.name for f in model_class._meta.fields}}
    made = client.call("create_record", model=label, values=given)
    assert not made.is_error, made.text


def test_every_method_of_a_session_works_and_stores_nothing(ada):
    """Whatever Django's sessions can do, as whoever writes for a browser expects it."""
    request = local_request(site)
    session = request.session
    assert isinstance(session, SessionBase)
    assert (session.get("team"), session.session_key, list(session.keys()), "team" in session) == (
        None,
        None,
        [],
        False,
    )
    with pytest.raises(KeyError):
        session["team"]
    session["team"], session["role"] = 1, 2
    assert (session.pop("role"), session.setdefault("team", 3), dict(session.items())) == (2, 1, {"team": 1})
    session.update({"more": 4})
    for method in ("save", "cycle_key", "create", "clear_expired", "get_expiry_age", "set_test_cookie", "flush"):
        getattr(session, method)()
    assert session.is_empty()
    messages.info(request, "Hello.")
    assert [str(message) for message in messages.get_messages(request)] == ["Hello."]
    request.forget_session()
    assert (request.session.get("more"), list(messages.get_messages(request))) == (None, [])
    assert not Session.objects.exists()


# Without the setting: what people are told


def test_checks_say_which_admin_reads_what_and_which_middleware_sets_it(settings):
    told = {message.msg: message.hint for message in warnings()}
    assert told == {
        f"The admin of crm.deal reads request.user.team_id, which only {ROLES} sets.": (
            f'Add it to MCP_DJANGO["CALL_MIDDLEWARE"]: [..., "{ROLES}"].'
        ),
        f"The admin of crm.invoice reads request.department, which only {DEPARTMENT} sets.": (
            f'Add it to MCP_DJANGO["CALL_MIDDLEWARE"]: [..., "{DEPARTMENT}"].'
        ),
    }
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"CALL_MIDDLEWARE": [ROLES, DEPARTMENT]}
    assert warnings() == []


def test_the_log_of_a_failing_call_says_what_to_add(ada, caplog):
    result = MCPClient(ada).call("query_records", model="crm.deal")
    assert result.is_error
    assert f"it reads `request.user.team_id`, which only {ROLES} sets: add it to CALL_MIDDLEWARE" in caplog.text


def test_the_log_of_a_hook_that_fails_says_so_too(ada, caplog, settings):
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"CALL_MIDDLEWARE": [ROLES]}
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if name != DEPARTMENT]
    MCPClient(ada).call("get_record", model="crm.invoice", pk=Invoice.objects.first().pk)
    assert "it reads `request.department`, which calls do not have" in caplog.text


def test_the_doctor_reads_a_row_of_every_model_and_names_the_cause(ada):
    trial = try_models(ada)
    assert (trial.read, trial.unread) == (len(site.exposures), 0)
    by_role, by_department = trial.failed
    assert f"which only {ROLES} sets" in by_role
    assert f"which only {DEPARTMENT} sets" in by_department
    assert "crm.deal" in trial.failed[by_role]
    assert trial.failed[by_department] == ["crm.invoice"]


def test_the_doctor_finds_nothing_with_the_proposed_setting(remedied, ada):
    trial = try_models(ada)
    assert trial.failed == {}
    assert trial.read == len(site.exposures)


def test_the_command_and_the_health_page_say_it(ada, client, settings, capsys):
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"BASE_URL": "http://127.0.0.1:1"}
    cause = f"it reads `request.user.team_id`, which only {ROLES} sets: add it to CALL_MIDDLEWARE"
    with pytest.raises(CommandError):
        call_command("mcp_doctor", user="ada")
    [line] = [line for line in capsys.readouterr().out.splitlines() if cause in line]
    assert "crm.deal" in line
    assert "FAIL" in line
    client.force_login(ada)
    page = client.get("/admin/mcp_django/callentry/health/")
    [item] = [item for item in page.context["findings"] if item.seen == cause]
    assert item.verdict == "error"
    assert "crm.deal" in item.title


def well(*args, **options):
    return iter(())


def test_the_command_fails_if_rows_cannot_be_read_and_all_else_is_well(ada, monkeypatch, capsys, settings):
    for name in ("ProjectChecks.parts", "ProjectChecks.system_checks", "Doctor.results"):
        monkeypatch.setattr(f"{mcp_doctor.__name__}.{name}", well)
    monkeypatch.setattr(mcp_doctor.ProjectChecks, "has_tables", True)
    with pytest.raises(CommandError, match=f"only {ROLES} sets: add it to CALL_MIDDLEWARE"):
        call_command("mcp_doctor", "http://127.0.0.1:1/mcp", user="ada")
    assert "All is well" not in capsys.readouterr().out
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"CALL_MIDDLEWARE": [ROLES, DEPARTMENT]}
    call_command("mcp_doctor", "http://127.0.0.1:1/mcp", user="ada")
    assert "All is well." in capsys.readouterr().out


@pytest.mark.parametrize("model", [None, "crm.invoice"])
def test_mcp_inspect_names_failing_models_and_logs_no_traceback(ada, caplog, capsys, model):
    call_command("mcp_inspect", user="ada", model=model)
    out = capsys.readouterr().out
    [line] = [line for line in out.splitlines() if line.startswith("  crm.invoice (")]
    assert f"; FAILS: it reads `request.department`, which only {DEPARTMENT} sets: add it to CALL_MIDDLEWARE" in line
    assert (f"which only {ROLES} sets: add it" in out) == (model is None)
    assert "  crm.straße (view, add, change, delete): id, name" in out or model
    assert "Traceback" not in caplog.text
    call_command("mcp_inspect", user="ada", model="crm.invoice", as_json=True)
    [invoice] = json.loads(capsys.readouterr().out)["models"]
    assert "request.department" in invoice["failing"][0]


def test_mcp_inspect_finds_no_failure_with_the_proposed_setting(remedied, ada, capsys):
    call_command("mcp_inspect", user="ada")
    assert "FAILS" not in capsys.readouterr().out


# Middleware that fails


@pytest.mark.parametrize("name", [BREAKING, f"{BREAKING}Late"])
def test_a_call_whose_middleware_fails_says_so_and_the_log_names_it(ada, settings, caplog, name):
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"CALL_MIDDLEWARE": [ROLES, DEPARTMENT, name]}
    result = MCPClient(ada).call("create_record", model="crm.team", values={"name": "East"})
    assert result.is_error
    assert "CALL_MIDDLEWARE failed" in result.text
    was_made = Team.objects.filter(name="East").exists()
    assert was_made == ("look at the data" in result.text) == name.endswith("Late")
    assert f"{name} of CALL_MIDDLEWARE failed" in caplog.text


def test_a_list_whose_middleware_fails_says_so(ada, settings):
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"CALL_MIDDLEWARE": [BREAKING]}
    with pytest.raises(AssertionError, match="CALL_MIDDLEWARE failed, so nothing was done"):
        MCPClient(ada).tools()


def test_the_doctor_names_middleware_that_fails(ada, settings):
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"CALL_MIDDLEWARE": [BREAKING]}
    assert try_models(ada).failed == {f"{BREAKING} of CALL_MIDDLEWARE failed: KeyError: 'tenant'": ["CALL_MIDDLEWARE"]}


def test_djangos_own_middleware_around_calls_changes_nothing(ada, settings):
    """Who adds what RoleMiddleware stands after in MIDDLEWARE would store sessions, and lose the token's user."""
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"CALL_MIDDLEWARE": settings.MIDDLEWARE[1:]}
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if name not in (ROLES, DEPARTMENT)]
    client = MCPClient(ada)
    assert client.call("query_records", model="crm.deal").structured["returned"] == 1
    assert not Session.objects.exists()


def test_a_call_that_somebody_else_approves_has_the_role_of_its_caller_at_that_moment(remedied, ada):
    north, south = Team.objects.order_by("name")
    boss = Account.objects.create_superuser("boss", "boss@example.com", home=south)
    ApprovalRule.objects.create(name="Deals", labels=["crm.deal"], permission="crm.change_deal")
    rule_book.expire()
    client = MCPClient(ada)
    deal = Deal.objects.get(team=north)

    def approved(name):
        waiting = client.call("update_record", model="crm.deal", pk=str(deal.pk), values={"name": name})
        assert waiting.structured["state"] == "waiting"
        yield
        change = Change.objects.get(pk=waiting.structured["change"])
        browser = RequestFactory().post("/admin/")
        browser.user = boss
        # What the boss's middleware has found out about them.
        boss.team_id = south.pk
        KeptCallExecutor(KeptChange(change), site, browser, boss.get_username(), approver=boss).run()
        deal.refresh_from_db()
        change.refresh_from_db()
        yield change.state, deal.name

    first = approved("New")
    next(first)
    assert next(first) == ("done", "New")
    second = approved("Newer")
    next(second)
    ada.home = south
    ada.save()
    assert next(second) == ("failed", "New")
