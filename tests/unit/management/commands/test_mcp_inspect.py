import json
import re

import pytest
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command

from mcp_django import MCPSite, ModelExposure, site
from tests.factories import make_superuser, make_user
from tests.testapp.models import Author

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def people():
    make_superuser("admin")
    reader = make_user("reader")
    reader.user_permissions.add(Permission.objects.get(codename="view_book"))
    make_user("customer", "testapp.view_book", staff=False)


def run(capsys, user="admin", **options):
    call_command("mcp_inspect", user=user, **options)
    return capsys.readouterr().out


def line(out, start):
    return next(item for item in out.splitlines() if item.strip().startswith(start))


def test_tools_are_shown_with_their_tokens(capsys):
    out = run(capsys)
    total = int(re.search(r"Tools: \d+, about ([\d,]+) tokens", out)[1].replace(",", ""))
    sizes = [int(size) for size in re.findall(r"^  \w+ +(\d+)$", out, re.MULTILINE)]
    assert sum(sizes) == total > 500
    assert line(out, "query_records")


def test_models_are_shown_with_their_fields_and_actions(capsys):
    out = run(capsys)
    assert "view, add, change, delete" in line(out, "testapp.book (")
    assert "title" in line(out, "testapp.book (")
    assert "actions: " in out


@pytest.mark.parametrize("only", [{}, {"model": "admin.logentry"}])
def test_the_history_is_shown_once_as_there_or_as_not_there(capsys, only):
    entries = [item.strip() for item in run(capsys, **only).splitlines() if "admin.logentry" in item]
    assert len(entries) == 1
    assert entries[0].startswith("admin.logentry (view only): id, time, user, action")
    assert "- stored: " not in run(capsys, **only)
    told = "- admin.logentry: the user lacks the required permission on every model"
    make_user("nobody")
    assert [item.strip() for item in run(capsys, "nobody", **only).splitlines() if "admin.logentry" in item] == [told]


def refuse(monkeypatch, hook):
    """Have a hook of the exposure of authors refuse everybody."""
    exposure = site.exposures[Author]
    monkeypatch.setattr(exposure, hook, lambda request, obj=None: False)
    # That its hooks are the stock ones was found out before.
    monkeypatch.setitem(vars(exposure.options), "permissions", {})


def test_a_model_is_shown_with_what_its_hooks_and_the_scopes_allow(capsys, monkeypatch):
    refuse(monkeypatch, "has_change_permission")
    assert "(view, add, delete)" in line(run(capsys), "testapp.author (")
    assert "(view only)" in line(run(capsys, scope=["mcp:read"]), "testapp.author (")


@pytest.mark.parametrize(
    ("options", "what", "reason"),
    [
        ({"user": "reader"}, "- testapp.author", "lacks the permission testapp.view_author"),
        ({"user": "reader"}, "- create_record", "the user lacks the required permission on every model"),
        ({"user": "reader"}, "- tags", "does not see testapp.tag"),
        ({"user": "reader"}, "- publish_testapp_book", "it needs the permission publish, which the user lacks"),
        ({"user": "reader"}, "- action publish", "it needs the permission publish, which the user lacks"),
        ({"user": "customer"}, "- query_records", "the user sees no model"),
        ({"user": "customer"}, "- publish_testapp_book", "the user does not see testapp.book"),
        ({"user": "customer"}, "- testapp.book", "the admin does not let the user in: by default it requires is_staff"),
        ({}, "- create_upload", 'STORAGES has no "mcp_uploads"'),
        ({}, "- export_records", 'STORAGES has no "mcp_exports"'),
        ({"scope": ["mcp:read"]}, "- create_record", "needs the scope mcp:write"),
        ({}, "- auth.user", "credentials or plumbing"),
        ({}, "- contenttypes.contenttype", "neither the admin nor"),
    ],
)
def test_what_is_not_there_has_a_reason(capsys, options, what, reason):
    assert reason in line(run(capsys, **options), what)


def test_secrets_and_excluded_fields_are_named_with_the_reason(capsys, monkeypatch):
    own = MCPSite("own", admin_site=admin.site)
    own.register(Author, ModelExposure, fields=["name"], exclude=["email"])
    monkeypatch.setattr("mcp_django.management.command_arguments.mounted_sites", lambda: [own])
    out = run(capsys, site="own", model="testapp.author")
    assert "Tools" not in out
    assert "a secret" in line(out, "- secret_token")
    assert "exclude" in line(out, "- email")


def test_over_the_budget_the_actions_are_reached_through_one_tool(capsys, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "TOOL_BUDGET": 5}
    name = next(name for name in site.all_tool_names() if name.endswith("_book"))
    assert "run_action runs it" in line(run(capsys), f"- {name}")


def test_a_model_that_is_none_is_an_error(capsys):
    with pytest.raises(CommandError, match=r"no model 'testapp\.nothing'"):
        run(capsys, model="testapp.nothing")


def test_without_a_user_it_is_the_first_superuser(capsys):
    assert run(capsys, user=None).startswith("admin with mcp:read mcp:write at ")
    get_user_model().objects.update(is_active=False)
    with pytest.raises(CommandError, match="There is no superuser: run manage"):
        run(capsys, user=None)


def test_a_tool_of_a_function_names_what_its_user_lacks(capsys, tools):
    tools(lambda request: "", name="guarded", permissions=["testapp.view_author", "testapp.view_book"])
    tools(lambda request: "", name="choosy", permission=lambda request: False)
    out = run(capsys, user="reader")
    assert line(out, "- guarded").endswith("the user lacks the permission testapp.view_author")
    assert line(out, "- choosy").endswith("its own permission refuses the user")


def test_read_only_is_named_where_it_is_the_reason(capsys, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "READ_ONLY": True}
    out = run(capsys)
    assert line(out, "- create_record").endswith("READ_ONLY is on")
    assert line(out, "- publish_testapp_book").endswith("READ_ONLY is on")


def test_a_hook_that_refuses_is_told_from_a_permission_that_is_missing(capsys, monkeypatch):
    refuse(monkeypatch, "has_view_permission")
    assert "refuses it, though the user has testapp.view_author" in line(run(capsys), "- testapp.author")


def test_a_model_is_found_by_its_name_alone(capsys):
    out = run(capsys, model="Author")
    assert line(out, "testapp.author (")
    with pytest.raises(CommandError, match=r"no model 'testapp\.authors'\. Did you mean 'testapp\.author'\?"):
        run(capsys, model="testapp.authors")


def test_filters_resources_and_prompts_are_shown(capsys):
    assert "title" in line(run(capsys, model="testapp.book"), "filters: ")
    out = run(capsys)
    assert "django://testapp/book" in out
    assert "Prompts: " in out


def test_all_of_it_is_there_as_json(capsys):
    found = json.loads(run(capsys, user="reader", as_json=True))
    assert found["user"] == "reader"
    assert [model["label"] for model in found["models"]] == ["admin.logentry", "testapp.book"]
    assert {"name": "tags", "reason": "the user does not see testapp.tag"} in found["models"][1]["missing"]
    assert found["instructions"]


def test_a_site_where_nothing_of_the_project_is_registered_is_told_as_the_cause(capsys, monkeypatch):
    assert "nothing to see for anybody" not in run(capsys)
    monkeypatch.setattr(MCPSite, "serves_nothing", lambda site: True)
    assert "There is nothing to see for anybody: no model, tool, resource or prompt of the project" in run(capsys)
