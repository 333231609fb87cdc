"""A database on which `migrate` was forgotten: every page, command and log names the missing migrations."""

import json
import logging

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import DatabaseError, OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client
from django.urls import reverse

from mcp_django.console.console_pages import PAGES
from mcp_django.models import Change
from mcp_django.runtime import missing_migrations
from mcp_django.runtime.missing_migrations import MissingTables, not_migrated
from mcp_django.testing import MCPClient
from tests.factories import make_author, make_superuser

pytestmark = pytest.mark.django_db
OURS = ("mcp_django",)
TOKEN = {"authorization": "Bearer abc"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@pytest.fixture(autouse=True)
def migrated(monkeypatch, settings, db):
    """Have the toolkit's migrations too, which other tests do without, as a project has them: all applied."""
    monkeypatch.setattr(missing_migrations, "_last_told", [])
    settings.MIGRATION_MODULES = {
        label: name for label, name in settings.MIGRATION_MODULES.items() if label != "oauth2_provider"
    }
    recorder = MigrationRecorder(connection)
    for name in missing_migrations.missing_migrations("oauth2_provider"):
        recorder.record_applied("oauth2_provider", name)


@pytest.fixture(params=[OURS, ("oauth2_provider",), MissingTables.APPS], ids="+".join)
def forgotten(request, db):
    """The apps whose tables the database lacks; the transaction of the test brings them back."""
    drop(*request.param)
    return request.param


def drop(*labels):
    for label in labels:
        MigrationRecorder(connection).migration_qs.filter(app=label).delete()
        with connection.cursor() as cursor:
            for model in apps.get_app_config(label).get_models(include_auto_created=True):
                if model._meta.managed and not model._meta.proxy:
                    cursor.execute(f"DROP TABLE IF EXISTS {connection.ops.quote_name(model._meta.db_table)}")


def drop_table(model):
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {connection.ops.quote_name(model._meta.db_table)}")


def browser():
    client = Client(raise_request_exception=False)
    client.force_login(make_superuser("root"))
    return client


def pages():
    """Every page of the console, its list of calls and the page of one call."""
    calls = reverse("admin:mcp_django_callentry_changelist")
    return [calls, f"{calls}1/change/", *(reverse(f"admin:mcp_django_console_{page.name}") for page in PAGES)]


def test_every_page_of_the_console_names_them_and_none_fails(forgotten):
    client = browser()
    for path in pages():
        answer = client.get(path)
        assert answer.status_code < 500, path
        if "mcp_django" in forgotten:
            assert "Not migrated: mcp_django 0001_initial" in answer.text, path
            assert "manage.py migrate" in answer.text
    health = client.get(reverse("admin:mcp_django_console_health")).text
    named = [
        label
        for label in MissingTables.APPS
        if f"Not migrated: {label}" in health or f"; {label} 0001_initial" in health
    ]
    assert named == list(forgotten)


def test_what_the_health_page_says_of_tables_stands_before_other_errors(db):
    MigrationRecorder(connection).migration_qs.filter(app="oauth2_provider").delete()
    answer = browser().get(reverse("admin:mcp_django_console_health"))
    assert answer.context["findings"][0].title == "Tables of oauth2_provider"


@pytest.mark.parametrize("as_json", [False, True])
def test_the_doctor_names_them_first_and_goes_no_way_over_http(forgotten, as_json, capsys):
    with pytest.raises(CommandError, match=r"manage\.py migrate"):
        call_command("mcp_doctor", "http://127.0.0.1:9/mcp", as_json=as_json)
    printed = capsys.readouterr().out
    if as_json:
        checks = json.loads(printed)["checks"]
        wrong = [item["title"] for item in checks if item["seen"].startswith("Not migrated: ")]
        assert wrong == [f"Tables of {label}" for label in forgotten]
        return
    lines = [line.strip() for line in printed.splitlines()]
    fails = [line for line in lines if line.startswith("FAIL")]
    assert fails[0].startswith(f"FAIL  Tables of {forgotten[0]}: Not migrated: 0001_initial")
    assert "The path of a client" not in printed


COMMANDS = [
    ("mcp_token", "root"),
    ("mcp_switch", "--list"),
    ("clear_mcp_calls",),
    ("clear_mcp_clients",),
    ("clear_mcp_sessions",),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_every_command_that_reads_tables_names_them(command):
    make_superuser("root")
    drop(*MissingTables.APPS)
    with pytest.raises(CommandError, match="Not migrated: mcp_django 0001_initial"):
        call_command(*command)


REQUESTS = [
    ("post", "/mcp", {"data": PING, "content_type": "application/json", "headers": TOKEN}),
    ("get", "/oauth/authorize/?client_id=a", {}),
    ("post", "/oauth/token/", {"data": {"grant_type": "authorization_code", "client_id": "a", "code": "b"}}),
    ("get", "/oauth/authorized_tokens/", {}),
    ("get", "/oauth/authorize/?client_id=https%3A%2F%2Fa.example%2Fx", {}),
]


@pytest.mark.parametrize(("method", "path", "options"), REQUESTS, ids=[path for _, path, _ in REQUESTS])
def test_the_log_of_each_request_that_fails_for_them_names_them(method, path, options, caplog, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "REGISTRATION": "open", "CLIENT_DOCUMENTS": {"hosts": "all"}}
    client = browser()
    drop(*MissingTables.APPS)
    answer = getattr(client, method)(path, **options)
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Not migrated: ")]
    assert answer.status_code >= 500
    assert told
    for text in told:
        assert "mcp_django 0001_initial" in text
        assert "oauth2_provider 0001_initial" in text
        assert text.endswith("Run manage.py migrate.")


def test_the_log_names_them_once_a_minute(caplog):
    drop(*OURS)
    error = OperationalError("no such table: mcp_django_switch")
    with caplog.at_level(logging.ERROR):
        MissingTables(error).log()
        MissingTables(error).log()
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "error", [ValueError("no"), OperationalError("database is locked"), OperationalError("no such table: of_nobody")]
)
def test_another_error_asks_the_database_nothing(error, django_assert_num_queries):
    drop(*OURS)
    with django_assert_num_queries(0):
        MissingTables(error).log()


@pytest.mark.parametrize("state", ["42P01", "42703"])
def test_the_codes_of_other_databases_are_known(state):
    class UndefinedTable(Exception):
        sqlstate = state

    drop(*OURS)
    failed = DatabaseError('relation "mcp_django_switch" is not there')
    failed.__cause__ = UndefinedTable('relation "mcp_django_switch" is not there')
    assert MissingTables(failed).migrations().startswith("mcp_django 0001_initial")
    assert MissingTables(OperationalError(1146, "Table 'x.mcp_django_switch' doesn't exist")).migrations()


def test_with_every_migration_applied_there_is_nothing_to_name():
    assert not_migrated(MissingTables.APPS) == ""
    assert MissingTables(OperationalError("no such table: mcp_django_switch")).migrations() == ""


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("update_record", {"model": "testapp.author", "values": {"name": "Ida"}}),
        ("query_records", {"model": "mcp.change"}),
        ("undo_change", {"change": 1}),
    ],
)
def test_calls_that_need_a_new_table_say_so_and_not_that_the_database_is_busy(tool, arguments):
    client = MCPClient(make_superuser())
    if tool == "update_record":
        arguments = {**arguments, "pk": make_author("Ada").pk}
    drop_table(Change)
    told = client.call(tool, **arguments)
    assert told.is_error
    assert "tables of this server are missing" in told.text
    assert "manage.py migrate" in told.text
    assert "mcp_django_change" not in told.text


def test_the_page_of_a_confirmation_says_so_too():
    client = browser()
    drop_table(Change)
    answer = client.get("/mcp/confirm/1")
    assert answer.status_code == 503
    assert "manage.py migrate" in answer.text
