"""The pages of the console under other people's looks of the admin: there, readable, and one leads to the next."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases import whole
from tests.e2e.servers import Server, manage, run_example
from tests.e2e.test_browser import look_at
from tests.e2e.test_console import DAY, OURS, WIDTHS, screenshots

THEMES = ["unfold", *whole(["jazzmin", "grappelli"])]
PAGES = {
    "overview": ("overview/", "Calls by outcome"),
    "calls": ("", "Calls found: 603"),
    "call": ("{call}/change/", "Where the time went"),
    "conversations": ("conversations/", "Calls of one session"),
    "conversation": ("conversations/?call={call}", "Its calls"),
    "clients": ("clients/", "Connections"),
    "connections": ("connections/", "Open streams"),
    "switches": ("switches/", "Switch"),
    "health": ("health/", "Health"),
    "seen": ("seen/?user=warehouse", "query_records"),
    "try": ("try/?tool=query_records", "query_records"),
    "connect": ("connect/", "Claude"),
    "approvals": ("approvals/", "Mine to decide"),
    "tasks": ("tasks/?list=all", "waits too long for a worker"),
}


@pytest.fixture(scope="module", params=THEMES)
def theme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(prepared: Path, tmp_path_factory: pytest.TempPathFactory, theme: str) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("E2E_THEME", theme)
        with run_example(
            prepared, tmp_path_factory.mktemp(theme), "runserver", "", "tests.e2e.settings_themes"
        ) as found:
            yield found


@pytest.fixture(scope="module")
def seen(server: Server, node: str, chromium: str, theme: str) -> dict[str, dict[str, Any]]:
    console = f"{server.origin}/admin/mcp_django/callentry/"
    call = manage(server, "shell", "-c", DAY).rpartition("call ")[2].split()[0]
    urls = {name: f"{console}{path.format(call=call)}" for name, (path, _) in PAGES.items()}
    pages = [{"name": f"{theme}-{name}", "url": url} for name, url in urls.items()]
    task: dict[str, Any] = {"languages": ["en"], "widths": WIDTHS, "within": OURS, "pages": pages}
    found = look_at(server, node, chromium, "admin", **task, **screenshots())
    return {name.removeprefix(f"{theme}-"): page for (name, _), page in found.items()}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_what_it_is_for_and_the_way_to_the_others(seen: dict[str, dict[str, Any]], name: str) -> None:
    page = seen[name]
    assert page["status"] == 200
    assert PAGES[name][1] in page["seen"]["text"]
    for tab in (
        "Overview",
        "Calls",
        "Conversations",
        "Clients",
        "Switches",
        "Health",
        "As this user",
        "Try it",
        "Connect",
    ):
        assert tab in page["seen"]["text"]
    # The icon that is not there, and the fonts of one look, are not ours.
    assert not [problem for problem in page["problems"] if "Failed to load resource" not in problem]
