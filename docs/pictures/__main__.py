"""Make the pictures of the README and the documentation anew: `.venv/bin/python -m docs.pictures`.

Starts the example project, asks it with the official Python client, and drives Chromium. It needs what `make test`
installs. `docs/images/` is what it writes.
"""

import argparse
import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from docs.pictures.conversation import hold
from docs.pictures.film import MOVING, film, moving_picture, shrink, stills, switched_off, take
from tests.e2e.servers import ROOT, manage, prepare_example, run_example

IMAGES = ROOT / "docs" / "images"
REFUND = """
from mcp_django.models import CallEntry
print(CallEntry.objects.filter(tool="refund_shop_order", outcome="ok").latest("time").pk)
"""
# The calls of an incident, without the names that the tests have to break a page.
DAYS = """
from mcp_django.models import CallEntry
from tests.incident import log_incident
log_incident(calls=8_000)
for name, odd in {"client_name": "<", "tool": "recompute", "username": "anneliese"}.items():
    CallEntry.objects.filter(**{f"{name}__startswith": odd}).delete()
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.pictures", description="Makes docs/images.")
    parser.add_argument("--only", choices=["moving", "stills"], help="one of the two kinds")
    only = parser.parse_args().only
    node = str(ROOT / "tests" / "node_modules" / "node" / "bin" / "node")
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome") or ""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "prepared").mkdir()
        prepared = prepare_example(directory / "prepared", population=100_000)
        with run_example(prepared, directory / "served", "runserver", "", "tests.e2e.settings_console") as server:
            conversation = asyncio.run(hold(server))
            refund = manage(server, "shell", "-c", REFUND).split()[-1]
            if only != "stills":
                frames = take(server, node, chromium, directory, **film(server, conversation))["frames"]
                moving_picture(frames, IMAGES / MOVING)
            if only != "moving":
                manage(server, "shell", "-c", DAYS)
                keep(take(server, node, chromium, directory, stills=stills(server, conversation, refund)))
                keep(take(server, node, chromium, directory, stills=switched_off(server)))


def keep(taken: dict[str, Any]) -> None:
    """Put stills among the images."""
    for path in map(Path, taken["stills"]):
        shrink(path, IMAGES / path.name)


if __name__ == "__main__":
    main()
