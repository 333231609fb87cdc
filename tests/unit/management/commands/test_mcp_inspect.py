import re

import pytest
from django.contrib import admin
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


def test_a_model_is_shown_with_what_its_hooks_and_the_scopes_allow(capsys, monkeypatch):
    monkeypatch.setattr(site.exposures[Author], "has_change_permission", lambda request, obj=None: False)
    assert "(view, add, delete)" in line(run(capsys), "testapp.author (")
    assert "(view only)" in line(run(capsys, scope=["mcp:read"]), "testapp.author (")


@pytest.mark.parametrize(
    ("options", "what", "reason"),
    [
        ({"user": "reader"}, "- testapp.author", "lacks the permission testapp.view_author"),
        ({"user": "reader"}, "- create_record", "lacks the permission"),
        ({"user": "reader"}, "- tags", "does not see testapp.tag"),
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
    monkeypatch.setattr("mcp_django.management.accounts.mounted_sites", lambda: [own])
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
