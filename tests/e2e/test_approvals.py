"""The pages of requests for approval, in a browser: narrow, wide, light and dark, in both directions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.servers import Server, manage, run_example
from tests.e2e.test_browser import look_at
from tests.e2e.test_console import OURS, WIDTHS, screenshots

# Requests of several kinds, and how some of them ended; one reason has what would break a page.
REQUESTS = """
from datetime import timedelta
from django.conf import settings
from django.contrib.auth import get_user_model
from django.utils import timezone
from mcp_django.approvals.queue import ApprovalQueue
from mcp_django.models import ApprovalRequest, CallEntry, Change
from example_project.shop.models import Order, Review, Supplier
from tests.approving import ask

settings.ALLOWED_HOSTS = ["*"]
users = get_user_model().objects
boss = users.create_superuser("boss", "", "boss")
admin = users.get(username="admin")
orders = list(Order.objects.filter(status="cancelled").order_by("pk")[:30])
keys = [order.pk for order in orders]
noted = {"model": "shop.order", "filters": {"id__in": keys}, "values": {"note": "Ask the carrier " * 9}}
reason = "The customer asked for it. " * 6 + "<b>" + "LongestWordOfAll" * 9
given = {"rows": orders, "permission": "shop.change_order", "rule_name": "Orders of last year"}
made = {"waiting": ask(boss, "update_record", reason=reason, **given, **noted)}

def review(number, **values):
    row = Review.objects.order_by("pk")[number]
    given = {"rows": [row], "permission": "shop.delete_review", "rule_name": "Reviews", **values}
    return ask(values.pop("user", boss), "delete_record", model="shop.review", pk=str(row.pk), **given)

made["deleting"] = review(0)
made["unseen"] = review(1, reads={"shop.review": ["not_there"]})
made["declined"] = review(2)
ApprovalQueue(admin).refuse(made["declined"], "Reviews stay, whatever they say. " * 3)
made["failed"] = review(3)
now = timezone.now()
outcome = "The rows have changed since the user was asked: it would no longer do what was shown."
Change.objects.filter(pk=made["failed"].pk).update(state="failed", by="admin", decided=now, outcome=outcome)
made["late"] = review(4)
Change.objects.filter(pk=made["late"].pk).update(expires=now - timedelta(hours=1))
order = Order.objects.filter(status="paid").order_by("pk")[0]
form = {"amount": "120.00", "reason": "damaged"}
refund = {"model": "shop.order", "action": "refund", "pks": [str(order.pk)], "form": form}
made["action"] = ask(boss, "run_action", rows=[order], permission="shop.change_order", rule_name="Refunds", **refund)
made["own"] = ask(admin, "update_record", **given, **noted)
made["yes"] = review(5)
made["no"] = review(6)
for name, approval in made.items():
    print("made", name, approval.pk)
"""
PAGES = {
    "queue": ("approvals/", "Mine to decide"),
    "asked": ("approvals/?tab=asked", "waits"),
    "all": ("approvals/?tab=all", "not decided in time"),
    "waiting": ("approvals/?request={waiting}", "Why, in the words of the AI model"),
    "deleting": ("approvals/?request={deleting}", "Yes, do it"),
    "action": ("approvals/?request={action}", "Not tried"),
    "unseen": ("approvals/?request={unseen}", "You cannot decide this"),
    "declined": ("approvals/?request={declined}", "Reviews stay"),
    "failed": ("approvals/?request={failed}", "would no longer do what was shown"),
    "own": ("approvals/?request={own}", "somebody else decides"),
    "index": ("../../", "requests wait for your decision"),
}
# Those that are looked at in a language that is written from right to left.
TURNED = ["queue", "waiting"]
# What a person fills in and presses, and what the page then says.
DECISIONS: dict[str, Any] = {
    "yes": ({"press": "[name=yes]"}, "approved and done"),
    "no": ({"fill": {"[name=word]": "Keep it."}, "press": "[name=no]"}, "Keep it."),
}


@pytest.fixture(scope="module")
def server(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("approvals")
    with run_example(prepared, directory, "runserver", "", "tests.e2e.settings_console") as found:
        yield found


@pytest.fixture(scope="module")
def seen(server: Server, node: str, chromium: str) -> dict[tuple[str, str], dict[str, Any]]:
    lines = manage(server, "shell", "-c", REQUESTS).splitlines()
    numbers = dict(line.split()[1:] for line in lines if line.startswith("made "))
    console = f"{server.origin}/admin/mcp_django/callentry/"
    pages = [{"name": name, "url": f"{console}{path.format(**numbers)}"} for name, (path, _) in PAGES.items()]
    # Which axe leaves out by itself: what is touched is 24 px in size, or apart from the rest.
    task: dict[str, Any] = {"widths": WIDTHS, "within": OURS, "also": ["target-size"], **screenshots()}
    found = look_at(server, node, chromium, "admin", languages=["en"], pages=pages, **task)
    turned = [page for page in pages if page["name"] in TURNED]
    found |= look_at(server, node, chromium, "admin", languages=["ar"], pages=turned, **task)
    decided = [
        {"name": name, "url": f"{console}approvals/?request={numbers[name]}", "sent": sent}
        for name, (sent, _) in DECISIONS.items()
    ]
    return found | look_at(server, node, chromium, "admin", languages=["en"], pages=decided, **task)


@pytest.mark.parametrize(("name", "language"), [*((name, "en") for name in PAGES), *((name, "ar") for name in TURNED)])
def test_a_page_is_fit_for_everybody(seen: dict[tuple[str, str], dict[str, Any]], name: str, language: str) -> None:
    # This server has no icon.
    assert not [problem for problem in seen[name, language]["problems"] if "404 (Not Found)" not in problem]


@pytest.mark.parametrize("name", DECISIONS)
def test_a_person_decides_with_a_browser(seen: dict[tuple[str, str], dict[str, Any]], name: str) -> None:
    page = seen[name, "en"]
    assert not [problem for problem in page["problems"] if "404 (Not Found)" not in problem]
    assert DECISIONS[name][1] in page["seen"]["text"]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_it_is_about(seen: dict[tuple[str, str], dict[str, Any]], name: str) -> None:
    assert PAGES[name][1] in seen[name, "en"]["seen"]["text"]


@pytest.mark.parametrize("name", TURNED)
def test_a_page_is_written_from_right_to_left(seen: dict[tuple[str, str], dict[str, Any]], name: str) -> None:
    assert (seen[name, "ar"]["seen"]["lang"], seen[name, "ar"]["seen"]["dir"]) == ("ar", "rtl")
