"""What ``tools/list`` shows to four accounts of the example in five revisions, held against a snapshot.

A change of it is seen in the same commit, or a test fails; more tokens than ``bounds.json`` allows are too many,
whatever the snapshot says.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.tokens import count_tokens
from mcp_django.protocol.versions import Revisions

from .measures import shown
from .shop import Endpoint

ROLES = ("admin", "warehouse", "auditor", "nobody")
FOLDER = Path(__file__).with_name("surface")
BOUNDS = FOLDER / "bounds.json"
# Of what the list had when its bound was set.
GROWTH = 1.05

Lists = Mapping[str, Sequence[Mapping[str, Any]]]


def surface(role: str) -> list[dict[str, Any]]:
    """Return the lists of tools of an account, each once with the revisions that show it."""
    found: list[dict[str, Any]] = []
    for revision in Revisions.SUPPORTED:
        tools = Endpoint(role, revision).tools()
        same = next((entry for entry in found if entry["tools"] == tools), None)
        if same is None:
            found.append({"revisions": [revision], "tools": tools})
        else:
            same["revisions"].append(revision)
    return found


def written(role: str) -> str:
    """Return the snapshot of an account as text, a line for each member: its changes are easy to review."""
    return json.dumps(surface(role), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def kept(role: str) -> str:
    """Return the snapshot that the repository has."""
    page = FOLDER / f"{role}.json"
    return page.read_text() if page.exists() else ""


def tokens() -> dict[str, int]:
    """Return the tokens of what each account is shown, in the revision that shows most."""
    texts = {role: [json.dumps(shown(entry["tools"])) for entry in surface(role)] for role in ROLES}
    counts = iter(count_tokens([text for found in texts.values() for text in found]))
    return {role: max(next(counts) for _ in found) for role, found in texts.items()}


def bounds() -> dict[str, int]:
    """Return the most tokens that each account may be shown."""
    found: dict[str, int] = json.loads(BOUNDS.read_text())
    return found


def write() -> None:
    """Write the snapshots; the bounds are set by hand."""
    FOLDER.mkdir(exist_ok=True)
    for role in ROLES:
        (FOLDER / f"{role}.json").write_text(written(role))
