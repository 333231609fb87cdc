"""Users whose primary key is a UUID, on SQLite, which has no such type: the staff call tools as anybody else does."""

import json
import os
from pathlib import Path

import pytest

from tests.documentation import ROOT
from tests.e2e.forks import run_to_end

pytestmark = pytest.mark.one_django

MODELS = """
import uuid

from django.contrib.auth.models import AbstractUser
from django.db import models


class User(AbstractUser):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
"""
URLS = """
from django.contrib import admin
from django.urls import include, path

import mcp_django
from django.contrib.auth.models import Group

mcp_django.site.register(Group, mcp_django.ModelExposure, fields=["name"])
urlpatterns = [
    path("admin/", admin.site.urls),
    path("mcp", mcp_django.site.urls),
    path("", include("mcp_django.oauth.urls")),
]
"""
SETTINGS = """
from mcp_django.oauth import provider_settings

SECRET_KEY, DEBUG, USE_TZ, ROOT_URLCONF = "secret" * 10, True, True, "urls"
INSTALLED_APPS = [
    *(f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "sessions", "messages")),
    *("channels", "oauth2_provider", "rest_framework", "mcp_django", "people"),
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
AUTH_USER_MODEL, LOGIN_URL, ALLOWED_HOSTS = "people.User", "admin:login", ["testserver", "127.0.0.1"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}
BASE_URL = "http://127.0.0.1:8000"
MCP_DJANGO = {"BASE_URL": BASE_URL}
OAUTH2_PROVIDER = provider_settings(base_url=BASE_URL)
"""
CALLS = """
import json
from io import StringIO

import django

django.setup()
from django.contrib.auth.models import Group, Permission
from django.core.management import call_command

call_command("makemigrations", "people", verbosity=0)
call_command("migrate", verbosity=0)
from mcp_django.testing import MCPClient
from people.models import User

person = User.objects.create_user("ada", is_staff=True)
editors = Group.objects.create(name="editors")
person.user_permissions.add(Permission.objects.get(codename="view_group"))
editors.permissions.add(Permission.objects.get(codename="add_group"))
person.groups.add(editors)
stranger = User.objects.create_user("eve", is_staff=True)


def told(user, name, **arguments):
    result = MCPClient(user).request("tools/call", name=name, arguments=arguments)
    return result.get("structuredContent") or result["content"][0]["text"]


group = {"model": "auth.group"}
# Without a token, the permissions are looked up by the user's key.
printed = StringIO()
call_command("mcp_inspect", user="ada", stdout=printed)
print(json.dumps({
    "rows": told(person, "query_records", **group, fields=["name"])["rows"],
    "made": told(person, "create_record", **group, values={"name": "readers"})["fields"]["name"],
    "tools": sorted(tool["name"] for tool in MCPClient(person).tools()),
    "inspected": "auth.group (view, add)" in printed.getvalue(),
    "strange": len(MCPClient(stranger).tools()),
}))
"""


def test_a_member_of_the_staff_reads_and_writes_what_their_permissions_allow(tmp_path: Path) -> None:
    people = tmp_path / "people"
    (people / "migrations").mkdir(parents=True)
    for name in ("__init__", "migrations/__init__"):
        (people / f"{name}.py").touch()
    (people / "models.py").write_text(MODELS)
    (tmp_path / "urls.py").write_text(URLS)
    (tmp_path / "project_settings.py").write_text(SETTINGS)
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "project_settings",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
    }
    done = run_to_end(["-c", CALLS], environment, tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert [row[1] for row in found["rows"]] == ["editors"]
    assert found["made"] == "readers"
    assert "create_record" in found["tools"]
    assert "update_record" not in found["tools"]
    assert found["inspected"]
    assert found["strange"] == 0
