"""The command itself, in processes of its own: what it prints, how it ends, what it refuses."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from mcp_django import MCPSite
from mcp_django.management.command_arguments import find_site
from mcp_django.management.commands import mcp_stdio

pytestmark = [pytest.mark.walk, pytest.mark.one_django]

ROOT = Path(__file__).resolve().parents[4]
TIMEOUT = 60
SETTINGS = """
from tests.settings import *
INSTALLED_APPS = ["noisy", *INSTALLED_APPS]
ROOT_URLCONF = "noisy.urls"
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"out": {"class": "logging.StreamHandler", "stream": "ext://sys.stdout"}},
    "root": {"handlers": ["out"], "level": "INFO"},
}
"""
# An app that prints wherever it can.
APP = """
import mcp_django as mcp
import logging, os, subprocess, sys, time
print("printed when imported")

@mcp.tool(destructive=False)
def noisy(request):
    print("printed by a tool")
    sys.stdout.write("half a line")
    os.write(1, b"written by a tool")
    subprocess.run(["echo", "echoed by a child"], check=True)
    logging.getLogger("noisy").warning("logged by a tool")
    assert sys.stdin.read() == ""
    return "quiet"

@mcp.tool(destructive=False)
def broken(request):
    raise RuntimeError("a traceback")

@mcp.tool(destructive=False)
def hang(request):
    print("hanging", file=sys.stderr, flush=True)
    time.sleep(600)
"""
URLS = """
from django.urls import path
import mcp_django
other = mcp_django.MCPSite("other", instructions="The other site.")
urlpatterns = [path("mcp", mcp_django.site.urls), path("other", other.urls)]
"""
PREPARE = """
import django
django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
call_command("migrate", run_syncdb=True, verbosity=0)
User.objects.create_superuser("ada")
"""
HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}},
}


def call(identifier, tool):
    params = {"name": tool, "arguments": {}}
    return {"jsonrpc": "2.0", "id": identifier, "method": "tools/call", "params": params}


def lines(*messages):
    return "".join(json.dumps(message) + "\n" for message in messages)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The environment of a project whose apps print."""
    directory = tmp_path_factory.mktemp("stdio")
    (directory / "noisy").mkdir()
    for name, text in (("__init__", ""), ("mcp", APP), ("urls", URLS), ("settings", SETTINGS)):
        (directory / "noisy" / f"{name}.py").write_text(text)
    found = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "noisy.settings",
        "TEST_DATABASE_URL": str(directory / "db.sqlite3"),
        "PYTHONPATH": os.pathsep.join([str(directory), str(ROOT)]),
        "PYTHONUNBUFFERED": "",
        "PYTHONWARNINGS": "error::ResourceWarning",
    }
    made = subprocess.run([sys.executable, "-c", PREPARE], env=found, capture_output=True, text=True, timeout=TIMEOUT)
    assert made.returncode == 0, made.stderr
    return found


@contextmanager
def start(environment, *arguments, user="ada"):
    """The process, which is ended when it has taken too long, so that no read from it waits for ever."""
    command = [sys.executable, "-m", "django", "mcp_stdio", "--user", user, *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        timer = threading.Timer(2 * TIMEOUT, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()


def run(environment, *arguments, messages=(), user="ada"):
    """The return code, the messages on standard output, and standard error."""
    with start(environment, *arguments, user=user) as process:
        out, err = process.communicate(lines(*messages), timeout=TIMEOUT)
    return process.returncode, [json.loads(line) for line in out.splitlines()], err


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_nothing_but_messages_is_on_standard_output(environment, unbuffered):
    environment = environment | {"PYTHONUNBUFFERED": unbuffered}
    code, found, err = run(environment, messages=[HELLO, call(1, "noisy"), call(2, "broken")])
    assert code == 0, err
    results = {message["id"]: message["result"] for message in found}
    assert len(results) == len(found) == 3
    assert results[1]["content"][0]["text"] == "quiet"
    assert results[2]["isError"]
    for told in (
        "printed when imported",
        "printed by a tool",
        "half a line",
        "written by a tool",
        "echoed by a child",
        "logged by a tool",
        "a traceback",
    ):
        assert told in err
    assert "Warning" not in err


def test_another_site_and_narrower_scopes(environment):
    code, found, _ = run(
        environment,
        "--site",
        "other",
        "--scope",
        "mcp:read",
        messages=[HELLO, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}],
    )
    assert code == 0
    assert "The other site." in found[0]["result"]["instructions"]
    assert "create_record" not in {tool["name"] for tool in found[1]["result"]["tools"]}


def test_it_ends_at_once_without_input(environment):
    assert run(environment)[:2] == (0, [])


@pytest.mark.parametrize("how", ["end of input", "SIGTERM"])
def test_a_tool_that_hangs_does_not_keep_the_process(environment, how):
    with start(environment) as process:
        process.stdin.write(lines(HELLO, call(1, "hang")))
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 0
        told = iter(process.stderr.readline, "")
        assert any("hanging" in line for line in told)
        if how == "SIGTERM":
            process.send_signal(signal.SIGTERM)
        else:
            process.stdin.close()
        assert process.wait(TIMEOUT) == 0
        assert process.stdout.read() == ""


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--user", "nobody"], "There is no user 'nobody'"),
        (["--user", "ada", "--scope", "everything"], "No such scope: everything"),
        (["--user", "ada", "--site", "nowhere"], "There is no site 'nowhere'. There are mcp_django"),
        ([], "--user"),
    ],
)
@pytest.mark.django_db
def test_mistakes_are_told(arguments, reason, django_user_model, monkeypatch):
    django_user_model.objects.create_user("ada")
    monkeypatch.setattr(mcp_stdio, "claim", lambda: (-1, -1))
    with pytest.raises(CommandError, match=reason):
        call_command("mcp_stdio", *arguments)


def test_a_mistake_is_told_on_standard_error_alone(environment):
    code, found, err = run(environment, user="nobody")
    assert (code, found) == (1, [])
    assert "There is no user 'nobody'" in err


def test_a_site_that_needs_middleware_is_refused(monkeypatch):
    tenants = MCPSite("tenants", needs_middleware=True)
    monkeypatch.setattr("mcp_django.management.command_arguments.mounted_sites", lambda: [tenants])
    with pytest.raises(CommandError, match="needs middleware"):
        find_site("tenants")
