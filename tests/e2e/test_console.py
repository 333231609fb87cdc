"""The pages of the console, in a browser: narrow, wide, light, dark, from left to right and from right to left.

Those that people fill in come last: what they send is in the log, too.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from tests.e2e.servers import Server, manage, run_example
from tests.e2e.test_browser import look_at

LANGUAGES = ["en", "ar"]
# A phone, a tablet, a laptop, and a wide screen.
WIDTHS = [375, 768, 1280, 1920]
# What is the console's of a page of the admin.
OURS = "#content-main, #mcp-changes"
# A log as a day of several clients leaves it; one client and one tool have names that would break a page.
DAY = """
from datetime import timedelta
from django.utils import timezone
from mcp_django.context.call_record import CallRecord
from mcp_django.models import CallEntry
from mcp_django.operating.call_log_storage import row_of, store
from mcp_django.operating.failure_causes import cause_of

OUTCOMES = ["ok"] * 12 + ["refused:scope", "refused:rate", "tool_error", "error:-32602", "asked"]
CLIENTS = ["Claude", "Codex", "<b>" + "LongestNameOfAll" * 5]
records = []
for n in range(600):
    values = {"outcome": OUTCOMES[n % 17], "tool": ["query_records", "_".join(["long"] * 12)][n * n % 3]}
    values |= {"client_name": CLIENTS[n % 3], "client_id": f"client-{n % 3}", "username": "warehouse", "user": "3"}
    values |= {"method": "tools/call", "model": ["shop.order", "shop.product"][n % 2], "kind": "person", "size": n * 9}
    values |= {"duration": 4 + n * 7 % 90 + (400 if n % 50 == 0 else 0), "rows_read": n % 25, "session": f"s-{n % 9}"}
    if values["outcome"] == "tool_error":
        values["detail"] = ["shop.order has no field 'totl'.", "no_blank_in_" + "this_reason_" * 12][n % 2]
    ago = timedelta(minutes=(n * n * 7) % 1400)
    record = CallRecord(started=timezone.now() - ago, version="2025-11-25", site="mcp", **values)
    record.cause = cause_of(record)
    record.release = "1" if record.cause else ""
    records.append(record)
CallEntry.objects.all().delete()
store(list(map(row_of, records)))
CallEntry.objects.filter(call_id=records[0].id.hex).update(arguments='{"model": "shop.order"}', rows_changed=1)

# What a call changed, and what it may take back.
from django.contrib.auth import get_user_model
from mcp_django import site
from mcp_django.models import Change
from mcp_django.transports.local_client import LocalClient
from example_project.shop.models import Supplier

client = LocalClient(site, get_user_model().objects.get(username="admin"), ["mcp:write"])
pk, other = Supplier.objects.order_by("pk").values_list("pk", flat=True)[:2]
for key, name in ((other, "Somebody"), (pk, "First"), (pk, "<b>" + "LongestNameOfAll" * 4)):
    arguments = {"model": "shop.supplier", "pk": str(key), "values": {"name": name}}
    done = client.request("tools/call", name="update_record", arguments=arguments)["structuredContent"]
    values = {"client_id": "client-0", "client_name": "Claude"}
    if key == pk:
        values["call"] = records[0].id.hex
    Change.objects.filter(pk=done["change"]).update(**values)
Supplier.objects.filter(pk=other).update(name="Somebody else")
CallEntry.objects.filter(call_id=records[0].id.hex).update(site=site.name)

# Tasks of each kind; one has texts that would break a page.
from mcp_django.models import Task
from tests.making_tasks import HOUR, MINUTE, SECOND, ended, make_task, running

Task.objects.all().delete()
wide = {"tool": "_".join(["long"] * 12), "username": "w" * 100, "client_name": "<b>" + "LongestNameOfAll" * 5}
wide |= {"message": "Order " + "1234567890" * 15, "progress": 12, "total": 48, "attempt": 3}
task = running(40 * MINUTE, lease=HOUR, run=records[0].id.hex, model="shop.order", action="reprice", **wide)
Task.objects.filter(pk=task.pk).update(call=records[0].id.hex)
shop = {"model": "shop.order", "username": "warehouse"}
running(MINUTE, lease=HOUR, progress=3, total=40, message="Order 3", **shop)
running(MINUTE, lease=-SECOND, **shop)
make_task(2 * SECOND, **shop)
make_task(5 * MINUTE, **shop)
make_task(MINUTE, state="input_required", **shop)
ended("completed", MINUTE, message="Order 40", progress=40, total=40, **shop)
ended("failed", MINUTE, outcome="The worker was lost that did this. It may have been done.", **shop)
ended("cancelled", MINUTE, outcome="Cancelled by admin. Reason given: wrong prices.", **shop)
print("task", task.pk)
print("supplier", other)
print("change", done["change"])
print("call", CallEntry.objects.get(call_id=records[0].id.hex).pk)
"""
EVER = "since=2000-01-01T00:00&until=2999-01-01T00:00"
PAGES = {
    "overview": ("overview/", "Calls by outcome"),
    "calls": ("", "Calls found: 603"),
    "refused": ("?q=refused", "missing scope"),
    "call": ("{call}/change/", "Where the time went"),
    "failures": ("failures/", "no field 'totl'"),
    "changes": ("changes/", "Its values are not kept."),
    "changes-none": ("changes/?q=user:nobody", "No call changed anything"),
    "conversations": ("conversations/", "Calls of one session"),
    "conversation": ("conversations/?call={call}", "Its calls"),
    "undo": ("undo/?change={change}", "Rows go back as they were"),
    "undo-conflict": ("undo/?change={earlier}", "was changed since"),
    "client-time": ("client_time/?client=client-0", "You see what that is"),
    "client-time-look": (f"client_time/?client=client-0&{EVER}&look=1", "Would be taken back (2)"),
    "client-time-wrong": ("client_time/?client=client-7&since=x&until=x&look=1", "Enter a valid date/time."),
    "history": ("../../shop/supplier/{supplier}/history/", "Take back: supplier Somebody changed: name"),
    "tasks": ("tasks/?list=all", "waits too long for a worker"),
    "tasks-narrowed": ("tasks/?user=warehouse&list=late", "perhaps none runs"),
    "task": ("tasks/?task={task}", "runs for a long time"),
    "seen": ("seen/?user=warehouse", "query_records"),
    "seen-form": ("seen/?user=nobody-at-all", "There is no such user"),
    "try": ("try/", "Call a tool as yourself"),
    "try-write": ("try/?tool=create_record", "This can change data"),
    "try-answer": ("try/?tool=query_records", "The same call with curl"),
    "try-refused": ("try/?tool=get_record", "The model is told of an error"),
    "switches": ("switches/", "Stocktaking until noon"),
    "clients": ("clients/", "mcp_token"),
    "clients-new": ("clients/?new", "New this week"),
    "client": ("clients/?client=mcp_token", "warehouse"),
    "client-of-the-log": ("clients/?client=client-2", "LongestNameOfAll"),
    "connections": ("connections/", "Open streams"),
    "connect": ("connect/", "Metadata of the authorization server"),
    "health": ("health/", "All migrations are applied"),
    "try-question": ("try/?tool=delete_record", "The call asks"),
}
# What a person fills in before they send the page.
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


def screenshots() -> dict[str, str]:
    """Where they are to be kept, for whoever wants to look at them."""
    kept = os.environ.get("SCREENSHOTS")
    return {} if kept is None else {"screenshots": kept}


@pytest.fixture(scope="module")
def server(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_example(
        prepared, tmp_path_factory.mktemp("console"), "runserver", "", "tests.e2e.settings_console"
    ) as found:
        yield found


@pytest.fixture(scope="module")
def seen(server: Server, node: str, chromium: str) -> dict[tuple[str, str], dict[str, Any]]:
    manage(server, "mcp_token", "warehouse", "--name", "nightly report")
    told = manage(server, "shell", "-c", DAY)
    call = told.rpartition("call ")[2].split()[0]
    change = int(told.rpartition("change ")[2].split()[0])
    supplier = told.rpartition("supplier ")[2].split()[0]
    task = told.rpartition("task ")[2].split()[0]
    keys = {"call": call, "change": change, "earlier": change - 1, "supplier": supplier, "task": task}
    console = f"{server.origin}/admin/mcp_django/callentry/"
    pages = [
        {"name": name, "url": urljoin(console, path.format(**keys)), "sent": SENT.get(name)}
        for name, (path, _) in PAGES.items()
    ]
    look: dict[str, Any] = {"languages": LANGUAGES, "widths": WIDTHS, "within": OURS, "pages": pages}
    # Which axe leaves out by itself: what is touched is 24 px in size, or apart from the rest.
    look["also"] = ["target-size"]
    return look_at(server, node, chromium, "admin", **look, **screenshots())


def test_the_rows_of_calls_are_legible_on_a_wide_screen(server: Server, node: str, chromium: str, seen: Any) -> None:
    failed = {"name": "failed", "url": f"{server.origin}/admin/mcp_django/callentry/?q=failed"}
    task: dict[str, Any] = {"languages": ["en"], "widths": [1280], "within": OURS, "pages": [failed], **screenshots()}
    found = look_at(server, node, chromium, "admin", **task)["failed", "en"]
    assert "failed" in found["seen"]["text"]
    assert not [problem for problem in found["problems"] if "404 (Not Found)" not in problem]


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
