"""The README's project: what `startproject` makes, with an app that has models and an admin, and the snippets."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.management import call_command

from tests.documentation import DOCS, README, ROOT, blocks_of
from tests.e2e.forks import Fork, run_to_end

SOURCES = ROOT / "tests" / "readme_project"
START = 60
# The README begins without writes, and has the line that opens them.
OPENS_WRITES = '# MCP_DJANGO["READ_ONLY"] = False  # opens writes'
OWN_SETTINGS = """
INSTALLED_APPS += ["shop"]
# What is slow: the hashes of passwords, on purpose, and the migrations of other apps.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
from tests.tables import UNMIGRATED as MIGRATION_MODULES
"""


def readme_file(name: str) -> str:
    """Return a file of the project as the README has it, or the page to which the README leads for it."""
    pages = (README, DOCS / "deployment.md", DOCS / "testing.md")
    return next(block.text for page in pages for block in blocks_of(page) if block.file == name)


@dataclass(frozen=True)
class Project:
    path: Path
    token: str = ""

    @property
    def environment(self) -> dict[str, str]:
        # The settings of the tests are named there; the project's own files say which are theirs.
        named = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
        return {**named, "PYTHONPATH": f"{self.path}{os.pathsep}{ROOT}"}

    def run(self, *command: str, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        env = {**self.environment, "DJANGO_SETTINGS_MODULE": "project.settings", **environment}
        return run_to_end(command, env, self.path, given)

    def script(self, name: str, given: str = "", without: str = "", **environment: str) -> str:
        """Run a module of `readme_project/` within the project, where one may be empty; return what it prints."""
        empty = f"import sys, types; sys.modules['{without}'] = types.ModuleType('{without}'); " if without else ""
        code = f"{empty}import django; django.setup(); import tests.readme_project.{name}"
        done = self.run("-c", code, given=given, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @contextmanager
    def server(self) -> Iterator[str]:
        """Serve `asgi.py` and give its address."""
        with socket.socket() as listening, open(os.devnull, "w") as nothing:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            port = listening.getsockname()[1]
            # The socket listens already, so the first request waits in its queue until the server is up.
            command = [sys.executable, "-m", "uvicorn", "project.asgi:application", "--fd", "0"]
            server = Fork(command, self.environment, listening, nothing, nothing, directory=self.path)
            try:
                yield f"http://127.0.0.1:{port}"
            finally:
                server.terminate()
                server.wait(START)


def made(path: Path) -> Project:
    """Make the project in an empty folder, with writes opened, and its database, with a superuser."""
    call_command("startproject", "project", str(path))
    shutil.copytree(SOURCES / "shop", path / "shop", ignore=shutil.ignore_patterns("__pycache__"))
    settings = path / "project" / "settings.py"
    assert OPENS_WRITES in readme_file("settings.py")
    opened = readme_file("settings.py").replace(OPENS_WRITES, OPENS_WRITES.removeprefix("# "))
    settings.write_text(settings.read_text() + OWN_SETTINGS + opened)
    urls = path / "project" / "urls.py"
    urls.write_text(urls.read_text() + readme_file("urls.py"))
    take_fast_road(path / "project" / "asgi.py")
    (path / "shop" / "mcp.py").write_text(readme_file("shop/mcp.py"))
    (path / "shop" / "tests.py").write_text(readme_file("shop/tests.py"))
    blocks = [block for page in sorted(DOCS.glob("*.md")) for block in blocks_of(page)]
    # Settings of the pages name them.
    for name in ("shop/signin.py", "shop/row_security.py"):
        (path / name).write_text("\n".join(block.text for block in blocks if block.file == name))
    return Project(path, token=Project(path).script("prepare", DJANGO_SUPERUSER_PASSWORD="ada"))


def take_fast_road(asgi: Path) -> None:
    """Replace a line of `asgi.py` as the README says."""
    (line,) = re.findall(r"`(from mcp_django\.asgi import \w+)` instead of Django's", README.read_text())
    asgi.write_text(asgi.read_text().replace("from django.core.asgi import get_asgi_application", line))


def ask(url: str, token: str, method: str, **params: Any) -> dict[str, Any]:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=START) as response:
        result: dict[str, Any] = json.load(response)["result"]
    return result
