"""The shop of ``python -m mcp_django`` as a project: sound, filled once, with a password of each start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.apps import apps

from mcp_django import tryout
from mcp_django.transports.client_configs import CLIENTS, Connection

pytestmark = [pytest.mark.one_django, pytest.mark.walk]

FOLDER = Path(tryout.__file__).parent
# Two starts with the same folder, in one process.
STARTS = """
import pathlib
import sys
from mcp_django.tryout.shop import configure, fill

configure(pathlib.Path(sys.argv[1]), "http://127.0.0.1:8000")
passwords = [fill(), fill()]

from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from mcp_django.tryout.models import Customer, Order, Product

assert len(set(passwords)) == 2
user = User.objects.get()
assert user.check_password(passwords[-1])
assert (Customer.objects.count(), Product.objects.count(), Order.objects.count()) == (15, 10, 600)
waiting = Order.objects.filter(status="pending").count()
assert 5 <= waiting <= 15, waiting

call_command("check", fail_level="WARNING")
call_command("makemigrations", check=True, dry_run=True)

browser = Client(headers={"host": "127.0.0.1:8000"})
browser.force_login(user)
for model in (Customer, Order, Product):
    for page in ("", "add/", f"{model.objects.first().pk}/change/"):
        assert browser.get(f"/admin/tinyshop/{model._meta.model_name}/{page}").status_code == 200
for page in ("overview", "connect"):
    assert browser.get(f"/admin/mcp_django/callentry/{page}/").status_code == 200
"""


def test_it_is_a_sound_project_and_its_rows_are_made_once(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    command = [sys.executable, "-W", "error", "-c", STARTS, str(tmp_path)]
    done = subprocess.run(command, env=environment, cwd=FOLDER.parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_other_projects_do_not_see_its_tables() -> None:
    assert not apps.is_installed("mcp_django.tryout")
    assert "tinyshop" not in apps.all_models


def test_what_it_prints_is_what_mcp_install_prints() -> None:
    text = (FOLDER / "opened.txt").read_text()
    connection = Connection("tiny-shop", url="{base}/mcp")
    for name in ("claude-code", "codex"):
        assert CLIENTS[name].shell(connection).replace("'", "") in text


def test_it_is_small() -> None:
    files = [path for path in FOLDER.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(path.stat().st_size for path in files) < 100_000
