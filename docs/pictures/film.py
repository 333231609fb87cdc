"""Which pages are pictured, and how frames become one moving picture."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from docs.pictures.conversation import Conversation
from tests.e2e.browser import CALLBACK
from tests.e2e.servers import ROOT, Server, manage
from tests.e2e.test_browser import authorization

HERE = Path(__file__).parent
MOVING = "question-to-call.webp"
CALLS = "admin/mcp_django/callentry/"


def film(server: Server, conversation: Conversation) -> dict[str, Any]:
    """Return the task to picture a conversation, and then its last call in the console."""
    first = '#content table a[href*="/change/"]'
    path = [{"link": first, "duration": 1800}, {"link": "", "duration": 3500}]
    return {
        "conversation": conversation.as_json(),
        "console": {"url": f"{server.origin}/{CALLS}", "path": path},
    }


def stills(server: Server, conversation: Conversation, refund: str) -> list[dict[str, Any]]:
    """Return what `docs/images` shows besides: one page each, with ``refund`` as the key of the call that refunded."""
    console = f"{server.origin}/{CALLS}"
    asked = (
        '{"model": "shop.shipment", "aggregates": ["count", "avg:delivered_at-shipped_at"], "group_by": ["carrier"]}'
    )
    pages = {
        "overview": {"url": f"{console}overview/", "height": 1100},
        "calls": {"url": f"{console}?q=failed+client%3ACodex", "height": 860},
        "call": {"url": f"{console}{refund}/change/", "height": 800},
        "conversation": {"url": f"{console}conversations/?call={refund}", "height": 700},
        "try": {
            "url": f"{console}try/?tool=aggregate_records",
            "fill": {"#try_json": asked},
            "press": "form:has(#try_json) [type=submit]",
            "height": 760,
        },
        "endpoint": {"url": server.url, "width": 840, "height": 900},
        "consent": {"url": authorization(server, CALLBACK, "mcp:read mcp:write mcp:admin"), "width": 840},
    }
    return [{"name": name, "width": 1280, **page} for name, page in pages.items()]


def switched_off(server: Server) -> list[dict[str, Any]]:
    """Turn a tool off, and return the picture of what is off."""
    manage(server, "mcp_switch", "off", "tool", "delete_record", "--for", "2h", "--reason", "Audit", "--user", "admin")
    return [{"name": "switches", "url": f"{server.origin}/{CALLS}switches/", "width": 1280, "height": 800}]


def take(server: Server, node: str, chromium: str, directory: Path, **task: Any) -> dict[str, Any]:
    """Take the pictures of a task; return their files, and the texts that the stage showed."""
    task |= {
        "executable": chromium,
        "modules": str(ROOT / "tests" / "node_modules"),
        "directory": str(directory),
        "stage": (HERE / "stage.html").as_uri(),
        "login": {"url": f"{server.origin}/login/?next=/", "username": "admin"},
    }
    program = [node, str(HERE / "film.mjs")]
    done = subprocess.run(program, input=json.dumps(task), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def moving_picture(frames: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the frames as one WebP file that plays again and again."""
    first, *others = [Image.open(frame["file"]).convert("RGB") for frame in frames]
    first.save(
        path,
        save_all=True,
        append_images=others,
        duration=[frame["duration"] for frame in frames],
        loop=0,
        quality=55,
        method=6,
        minimize_size=True,
    )


def shrink(source: Path, target: Path) -> None:
    """Write a picture of a page with the 256 colours that pages do with."""
    with Image.open(source) as picture:
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(target, optimize=True)
