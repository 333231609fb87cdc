"""The pages of the console that people fill in, and what they answer, in a browser."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.servers import Server, manage, run_example
from tests.e2e.test_browser import look_at
from tests.e2e.test_console_views import OURS, WIDTHS

LANGUAGES = ["en", "ar"]
PAGES: dict[str, tuple[str, str]] = {
    "try": ("try/", "Call a tool as yourself"),
    "try-write": ("try/?tool=create_record", "This can change data"),
    "try-answer": ("try/?tool=query_records", "The same call with curl"),
    "try-refused": ("try/?tool=get_record", "The model is told of an error"),
    "switches": ("switches/", "Stocktaking until noon"),
    "connections": ("connections/", "mcp_token"),
    "connect": ("connect/", "Metadata of the authorization server"),
    "health": ("health/", "All migrations are applied"),
    "try-question": ("try/?tool=delete_record", "The call asks"),
}
SEND = "#content-main form[method=post] [type=submit]"
RUN = "form[method=post] [type=submit].default"
ORDERS = {
    "[name=arg-model]": "shop.order",
    "[name=arg-fields]": "number\nstatus\ntotal\ncreated",
    "[name=arg-limit]": "8",
}
SUPPLIER = {"[name=arg-model]": "shop.supplier", "[name=arg-pk]": "1"}
SENT: dict[str, dict[str, Any]] = {
    "try-answer": {"fill": ORDERS, "press": RUN},
    "try-refused": {"fill": {"[name=arg-model]": "shop.orders"}, "press": RUN},
    "switches": {
        "fill": {"[name=target]": "revenue_by_month", "[name=reason]": "Stocktaking until noon"},
        "press": RUN,
    },
    "connect": {"press": SEND},
    "try-question": {"fill": SUPPLIER, "tick": ["[name=confirmed]"], "press": RUN},
}


@pytest.fixture(scope="module")
def server(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("console")
    with run_example(prepared, directory, "runserver", "", "tests.e2e.settings_console") as found:
        yield found


@pytest.fixture(scope="module")
def seen(server: Server, node: str, chromium: str) -> dict[tuple[str, str], dict[str, Any]]:
    manage(server, "mcp_token", "warehouse", "--name", "nightly report")
    console = f"{server.origin}/admin/mcp_django/callentry/"
    pages = [{"name": name, "url": f"{console}{path}", "sent": SENT.get(name)} for name, (path, _) in PAGES.items()]
    task: dict[str, Any] = {"languages": LANGUAGES, "widths": WIDTHS, "within": OURS, "pages": pages}
    if kept := os.environ.get("SCREENSHOTS"):
        task["screenshots"] = kept
    return look_at(server, node, chromium, "admin", **task)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_fit_for_everybody(seen: dict[tuple[str, str], dict[str, Any]], name: str, language: str) -> None:
    found = seen[name, language]
    assert found["seen"]["dir"] == ("rtl" if language == "ar" else "ltr")
    # Django's admin has no icon.
    assert not [problem for problem in found["problems"] if "404 (Not Found)" not in problem]


@pytest.mark.parametrize("name", PAGES)
def test_the_browser_came_to_the_page_that_was_meant(seen: dict[tuple[str, str], dict[str, Any]], name: str) -> None:
    assert PAGES[name][1] in seen[name, "en"]["seen"]["text"]
