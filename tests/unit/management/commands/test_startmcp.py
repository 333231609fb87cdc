import ast
import os
import re
from pathlib import Path

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command, get_commands

from mcp_django.management.commands.startmcp import AGENT_FILES, AGENT_TEXTS
from tests.e2e.forks import run_to_end

pytestmark = [pytest.mark.walk, pytest.mark.one_django]

ROOT = Path(__file__).resolve().parents[4]
OWN = ["testapp", "inlineapp", "fieldapp", "fileapp", "filterapp", "restapp", "sitesapp"]
MODELS = """
from django.db import models

class Shelf(models.Model):
    name = models.CharField(max_length=20)
    room = models.CharField(max_length=1, choices=[("a", "A")])
    api_key = models.CharField(max_length=20)
    height = models.IntegerField(null=True)
    built = models.DateField(null=True)
    is_full = models.BooleanField(default=False)

class Thing(models.Model):
    shelf = models.ForeignKey(Shelf, models.CASCADE)
    tags = models.ManyToManyField("self")

    class Meta:
        ordering = ["shelf"]

class Box(models.Model):
    label = models.CharField(max_length=20)
    code = models.CharField(max_length=20)
    weight = models.IntegerField(null=True)
    remarks = models.TextField(blank=True)
    added = models.DateField(auto_now_add=True)

class Crate(Box):
    class Meta:
        proxy = True
"""
ADMIN = """
from django.contrib import admin
from .models import Box, Crate, Thing

admin.site.register(Thing)

@admin.register(Box)
class BoxAdmin(admin.ModelAdmin):
    list_display = ["pk", "label", "has_weight"]
    fieldsets = [(None, {"fields": [("label", "code")]}), ("Times", {"fields": ["added"]})]
    readonly_fields = ["added"]

    def has_weight(self, box):
        return box.weight is not None

@admin.register(Crate)
class CrateAdmin(admin.ModelAdmin):
    exclude = ["remarks", "weight"]
"""
EXPECTED = '''"""What MCP clients see of attic. Every line is a proposal: delete what models must not see."""

import mcp_django as mcp

from .models import Box, Crate, Shelf, Thing


@mcp.register(Box)
class BoxExposure(mcp.AdminExposure):
    fields = ["id", "label", "has_weight", "code", "added"]


@mcp.register(Crate)
class CrateExposure(mcp.AdminExposure):
    fields = ["id", "label", "code"]


@mcp.register(Shelf)
class ShelfExposure(mcp.ModelExposure):
    fields = ["id", "name", "room", "height", "built", "is_full"]
    search_fields = ["name"]
    filter_fields = {
        "room": ["exact", "in"],
        "height": ["gte", "lte"],
        "built": ["gte", "lt"],
        "is_full": ["exact"],
    }
    ordering = ["-id"]
    # Left out, because they give rights or their names look like secrets: api_key


@mcp.register(Thing)
class ThingExposure(mcp.AdminExposure):
    fields = ["id", "shelf", "tags"]
'''


@pytest.fixture
def project(tmp_path):
    """A project with an app that has models, most of them in the admin, and no mcp.py."""
    attic = tmp_path / "attic"
    attic.mkdir()
    (attic / "__init__.py").touch()
    (attic / "models.py").write_text(MODELS)
    (attic / "admin.py").write_text(ADMIN)
    (tmp_path / "attic_settings.py").write_text(
        "from tests.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'attic']\n"
        "DATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': ':memory:'}}\n"
    )

    def manage(*args):
        environment = {"DJANGO_SETTINGS_MODULE": "attic_settings", "PYTHONPATH": f"{tmp_path}:{ROOT}"}
        return run_to_end(["-m", "django", *args], {**os.environ, **environment}, tmp_path)

    manage.path = attic / "mcp.py"
    return manage


def test_what_it_writes_is_right_and_passes_every_check(project):
    done = project("startmcp", "attic")
    assert done.returncode == 0, done.stderr
    assert project.path.read_text() == EXPECTED
    checked = project("check", "--fail-level", "ERROR")
    assert checked.returncode == 0, checked.stderr
    assert "attic" not in checked.stderr
    listed = project("shell", "-c", "import mcp_django; print(*mcp_django.site.exposures_by_label)")
    assert {"attic.box", "attic.crate", "attic.shelf", "attic.thing"} <= set(listed.stdout.split())
    again = project("startmcp", "attic")
    assert "is there already" in again.stderr
    assert project.path.read_text() == EXPECTED


def test_an_admin_that_asks_the_database_needs_its_tables(project):
    hook = "    def get_exclude(self, request, obj=None):\n        return [*Thing.objects.all()]\n"
    project.path.with_name("admin.py").write_text(ADMIN + hook)
    done = project("startmcp", "attic")
    assert "no such table: attic_thing. If it has no tables yet, run manage.py migrate." in done.stderr
    assert not project.path.exists()


def test_a_project_without_the_admin_gets_exposures_of_its_models(project):
    settings = project.path.parents[1] / "attic_settings.py"
    apps = ["django.contrib.auth", "django.contrib.contenttypes", "mcp_django", "attic"]
    settings.write_text(f"SECRET_KEY, INSTALLED_APPS = 'secret', {apps}\n")
    done = project("startmcp", "attic", "--dry-run", "--skip-checks")
    assert "class BoxExposure(mcp.ModelExposure)" in done.stdout, done.stderr


@pytest.mark.parametrize("app", OWN)
def test_the_file_of_every_app_is_python_with_all_of_its_models(capsys, app):
    call_command("startmcp", app, dry_run=True)
    text = capsys.readouterr().out
    classes = [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
    assert set(classes) == {f"{model.__name__}Exposure" for model in apps.get_app_config(app).get_models()}
    assert all(len(line) <= 120 for line in text.splitlines() if "Left out" not in line)
    assert not Path(apps.get_app_config(app).path, "mcp.py").exists()


@pytest.mark.parametrize(("app", "reason"), [("attic", "No installed app"), ("staticfiles", "no models")])
def test_an_app_without_models_is_said(app, reason):
    with pytest.raises(CommandError, match=reason):
        call_command("startmcp", app)


def test_what_coding_agents_read_is_written_and_what_is_there_stays(project):
    root = project.path.parents[1]
    root.joinpath("AGENTS.md").write_text("Ours")
    done = project("startmcp", "--agents")
    assert f"{root / 'AGENTS.md'} is there already." in done.stderr
    assert root.joinpath("AGENTS.md").read_text() == "Ours"
    skill = root / ".agents" / "skills" / "django-mcp" / "SKILL.md"
    assert skill.read_text() == (AGENT_TEXTS / "SKILL.md").read_text()
    assert not project.path.exists()
    again = project("startmcp", "--agents")
    assert f"{root / 'AGENTS.md'}, {skill} are there already." in again.stderr


def test_what_coding_agents_read_can_be_printed(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call_command("startmcp", agents=True, dry_run=True)
    text = capsys.readouterr().out
    assert all((AGENT_TEXTS / name).read_text() in text for name in AGENT_FILES.values())
    assert list(tmp_path.iterdir()) == []


def test_an_app_or_agents_have_to_be_named():
    with pytest.raises(CommandError, match="--agents"):
        call_command("startmcp")


def test_the_commands_that_coding_agents_are_told_of_exist():
    told = "".join((AGENT_TEXTS / name).read_text() for name in AGENT_FILES.values())
    named = set(re.findall(r"manage\.py (\w+)|`(mcp_\w+) --user", told))
    commands = {name for pair in named for name in pair if name}
    assert {"check", "startmcp", "mcp_inspect", "mcp_call", "mcp_doctor", "mcp_install"} == commands
    assert commands <= set(get_commands())
