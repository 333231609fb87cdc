import subprocess
import sys
import textwrap

import pytest
from django.apps import apps
from django.core.checks import run_checks

# Django's checks of JSON fields ask the database, once in a process.
pytestmark = pytest.mark.django_db


def ids(**options):
    return {message.id for message in run_checks(**options)}


def test_the_checks_are_registered(settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BASE_ULR": "https://shop.example"}
    assert "mcp_django.E001" in ids()
    assert apps.get_app_config("mcp_django").verbose_name == "Model Context Protocol"


def test_those_of_a_deployment_are_for_a_deployment(settings):
    settings.ALLOWED_HOSTS = ["*"]
    assert "mcp_django.W150" in ids(include_deployment_checks=True) - ids()


def test_every_mcp_module_is_imported_when_django_starts(tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "mcp.py").write_text(
        "import mcp_django\n@mcp_django.tool(read_only=True)\ndef hi(request) -> str:\n    'Hi.'\n    return 'hi'\n"
    )
    code = """
        import sys
        sys.path.insert(0, sys.argv[1])
        from django.conf import settings
        settings.configure(INSTALLED_APPS=["mcp_django", "shop", "django.contrib.admin", "django.contrib.auth",
            "django.contrib.contenttypes", "django.contrib.sessions", "django.contrib.messages", "oauth2_provider"])
        import django
        django.setup()
        import mcp_django
        print([tool.name for tool in mcp_django.site.function_tools()])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "['hi']", done.stderr


def program(settings: str, code: str) -> str:
    """Return what a program of its own prints once Django has started."""
    source = f"""
from django.conf import settings
settings.configure(INSTALLED_APPS=["mcp_django", "django.contrib.admin", "django.contrib.auth", "tests.testapp",
    "django.contrib.contenttypes", "django.contrib.sessions", "django.contrib.messages", "oauth2_provider"],
    DATABASES={{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}}, {settings})
import django
django.setup()
import threading
from django.contrib.sessions.models import Session
from django.db import connection
from django.contrib.auth.models import User
from django.db.models.signals import m2m_changed, post_delete, post_save
from tests.testapp.models import Book
{code}
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.stdout.strip()


def test_the_models_are_listened_to_and_nothing_is_started_or_built():
    code = """
from mcp_django import site
connection.ensure_connection()
print([signal.has_listeners(model) for signal in (post_save, post_delete) for model in (Book, Session)])
print([m2m_changed.has_listeners(through) for through in (Book.tags.through, User.groups.through)])
print(threading.active_count(), "_exposures" in vars(site))
"""
    assert program("", code) == "[True, False, True, False]\n[True, False]\n1 False"


def test_with_events_turned_off_nothing_is_listened_to():
    code = "print(post_save.has_listeners(Book), post_delete.has_listeners(Book))"
    assert program('MCP_DJANGO={"EVENTS": False}', code) == "False False"
