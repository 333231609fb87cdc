"""Runs commands of `manage.py` in a small project, after the edits that a request names: one request on each line.

Each command runs in a fork, whose project is ready to be checked: only the `mcp.py` and the URLconf are imported anew.
With `fresh` nothing of the project is imported before, for edits that Django reads once. What is printed comes back.
"""

import json
import os
import runpy
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import django
import mcp_types  # noqa: F401
import orjson  # noqa: F401
from django.core.management import execute_from_command_line

SOURCE = Path(__file__).parent / "project"


def run(place: Path, edits: list[list[str]], command: list[str]) -> str:
    """Return what the command prints in the project at the place, which has these edits meanwhile."""
    with tempfile.TemporaryFile() as printed:
        for name, old, new in edits:
            path = place / name
            text = path.read_text() if path.exists() else ""
            assert old in text, f"{name} has no {old}"
            path.write_text(text.replace(old, new) if old else text + new)
        child = os.fork()
        if child == 0:
            for stream in (1, 2):
                os.dup2(printed.fileno(), stream)
            os._exit(act(command))
        os.waitpid(child, 0)
        shutil.copytree(SOURCE, place, dirs_exist_ok=True)
        for name in {name for name, _, _ in edits if not (SOURCE / name).exists()}:
            (place / name).unlink()
        printed.seek(0)
        return printed.read().decode()


def act(command: list[str]) -> int:
    """Be `manage.py`."""
    sys.argv = ["manage.py", *command]
    try:
        if django.apps.apps.ready:
            adopt()
        execute_from_command_line(sys.argv)
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def adopt() -> None:
    """Take the settings and the `mcp.py` as they are now."""
    from django.apps import apps
    from django.conf import settings
    from django.test import override_settings

    now: dict[str, Any] = {name: value for name, value in runpy.run_path("settings.py").items() if name.isupper()}
    # Django has completed this one.
    del now["DATABASES"]
    override_settings(**now).enable()
    for name in ("MCP_DJANGO", "OAUTH2_PROVIDER"):
        if name not in now:
            delattr(settings, name)
    apps.get_app_config("mcp_django").ready()


def main(kind: str) -> None:
    """Answer requests."""
    # A file that changes twice in one second would be taken from its cache.
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        shutil.copytree(SOURCE, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        os.chdir(place)
        sys.path.insert(0, name)
        os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
        if kind == "ready":
            (place / "shop" / "mcp.py").unlink()
            django.setup()
            import mcp_django.oauth.urls
            import mcp_django.transports.http.django_views  # noqa: F401

            shutil.copytree(SOURCE, place, dirs_exist_ok=True)
        for line in sys.stdin:
            request = json.loads(line)
            print(json.dumps(run(place, request["edits"], request["command"])), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
