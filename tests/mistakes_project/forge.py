"""Makes small projects and runs a command in each, for `test_mistakes.py`: a program, which reads requests line by line.

Each command runs in a fork of its own, as `manage.py` would run it; what every project needs is imported once.
"""

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

import django.core.management
import mcp_types  # noqa: F401
import orjson  # noqa: F401
import pydantic.json_schema  # noqa: F401


def run(files: dict[str, str], command: list[str]) -> str:
    """Return what the command prints in a project that has these files."""
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryFile() as printed:
        for name, text in files.items():
            path = Path(place, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        child = os.fork()
        if child == 0:
            for stream in (1, 2):
                os.dup2(printed.fileno(), stream)
            os._exit(act(place, command))
        os.waitpid(child, 0)
        printed.seek(0)
        return printed.read().decode()


def act(place: str, command: list[str]) -> int:
    """Be `manage.py` within the project."""
    os.chdir(place)
    sys.path.insert(0, place)
    sys.argv = ["manage.py", *command]
    os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
    try:
        django.core.management.execute_from_command_line(sys.argv)
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps(run(asked["files"], asked["command"])), flush=True)
