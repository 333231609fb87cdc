"""What an assistant changed, and who read a record: how many clicks lead there, and how the page looks."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.servers import Server, manage, run_example
from tests.e2e.test_browser import look_at
from tests.e2e.test_console import OURS, screenshots
from tests.e2e.test_incident import asked, walk

# Writes and reads of two days by clients of two users. Some values would break a page, and some are kept no longer.
DAYS = """
from datetime import timedelta
from django.contrib.auth import get_user_model
from django.utils import timezone
from mcp_django import site
from mcp_django.models import CallEntry, Change
from mcp_django.operating import call_log_storage
from mcp_django.transports.local_client import LocalClient
from example_project.shop.models import Customer, Supplier

get_user_model().objects.create_superuser("anna")
CallEntry.objects.all().delete()
Change.objects.all().delete()
noon = timezone.localtime().replace(hour=12, minute=0, second=0, microsecond=0)


def call(username, client, ago, name, **arguments):
    user = get_user_model().objects.get(username=username)
    caller = LocalClient(site, user, ["mcp:write"], name=client)
    done = caller.request("tools/call", name=name, arguments=arguments)["structuredContent"]
    if "confirm_token" in done:
        return call(username, client, ago, name, **arguments, confirm_token=done["confirm_token"])
    call_log_storage.flush()
    entry = CallEntry.objects.latest("pk")
    CallEntry.objects.filter(pk=entry.pk).update(time=noon - ago, client_id=client.lower())
    Change.objects.filter(call=entry.call_id).update(time=noon - ago)
    return done


def anna(minutes, name, **arguments):
    return call("anna", "Claude", timedelta(days=1) - timedelta(minutes=minutes), name, **arguments)


def codex(minutes, name, model="shop.supplier", **arguments):
    return call("admin", "Codex", timedelta(days=1) - timedelta(minutes=minutes), name, model=model, **arguments)


customer = Customer.objects.order_by("pk")[16]
first, second, third = Supplier.objects.order_by("pk")[:3]
row = {"model": "shop.customer", "pk": str(customer.pk)}
anna(0, "update_record", **row, values={"phone": "030 1"})
anna(1, "update_record", **row, values={"phone": "030 22", "name": "Ada <b>Evans</b>"})
anna(2, "get_record", **row)
values = {"name": "\u05e9\u05dc\u05d5\u05dd 123", "email": "new@shop.example", "city": customer.city_id}
anna(3, "create_record", model="shop.customer", values=values)
codex(9, "get_record", **row)
values = {"name": "LongestNameOfAll" * 7, "country": second.country_id}
codex(10, "update_record", pk=str(first.pk), values=values)
codex(11, "update_record", filters={"id__in": [second.pk, third.pk]}, values={"email": "all@shop.example"})

# Today: one that is taken back, one that is kept no longer, and its deletion.
done = codex(1440, "update_record", pk=str(third.pk), values={"email": "b@shop.example"})
client = LocalClient(site, get_user_model().objects.get(username="admin"), ["mcp:write"], name="Codex")
client.request("tools/call", name="undo_change", arguments={"change": done["change"]})
done = codex(1442, "create_record", values={"name": "Gone", "country": second.country_id})
codex(1443, "delete_record", pk=str(Supplier.objects.get(name="Gone").pk))
Change.objects.filter(pk=done["change"]).delete()
call_log_storage.flush()
print("customer", customer.pk)
"""


@pytest.fixture(scope="module")
def server(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("changes")
    with run_example(prepared, directory, "runserver", "", "tests.e2e.settings_console") as found:
        yield found


@pytest.fixture(scope="module")
def customer(server: Server) -> str:
    """The key of a customer whom an assistant changed, and another one read."""
    return manage(server, "shell", "-c", DAYS).rpartition("customer ")[2].split()[0]


@pytest.fixture(scope="module")
def walked(server: Server, customer: str, node: str, chromium: str) -> dict[str, dict[str, Any]]:
    console = f"{server.origin}/admin/mcp_django/callentry/"
    row = f"{server.origin}/admin/shop/customer/{customer}/change/"
    journeys: dict[str, tuple[str, list[Any]]] = {
        "changed yesterday": (
            f"{console}overview/",
            [{"click": {"name": "^Changes: yesterday$"}}, {"click": {"name": "^user: anna$"}}],
        ),
        "who read it": (row, [{"click": {"name": "^History$"}}, {"click": {"name": "^Who read it$"}}]),
        "what changed it": (row, [{"click": {"name": "^History$"}}, {"click": {"name": "^What assistants changed$"}}]),
        "taken back": (
            f"{console}changes/?q=user:anna+yesterday",
            [{"click": {"name": "^Take back \\d+$"}}, {"click": {"name": "^Take back$", "role": "button"}}],
        ),
    }
    return walk(server, node, chromium, journeys)


def test_what_an_assistant_changed_yesterday_is_two_clicks_from_the_overview(walked: dict[str, Any]) -> None:
    found = walked["changed yesterday"]
    assert found["clicks"] == 2
    assert asked(found) == "yesterday user:anna"
    listed = found["text"].partition("Show these calls")[2]
    assert re.findall(r"(\w+_record|undo_change)\s+shop", listed) == ["create_record", "update_record", "update_record"]
    assert re.search(r"(?i:phone)\s+030 1\s+030 22", listed)
    assert "Codex" not in listed


def test_who_read_a_customer_is_two_clicks_from_its_page(walked: dict[str, Any], customer: str) -> None:
    found = walked["who read it"]
    assert found["clicks"] == 2
    assert asked(found) == f"model:shop.customer row:{customer}"
    listed = found["text"].partition("Calls found")[2]
    assert re.search(r"get_record\s+shop.customer\s+admin\s+Codex", listed)
    assert re.search(r"get_record\s+shop.customer\s+anna\s+Claude", listed)


def test_what_changed_a_customer_is_two_clicks_from_its_page(walked: dict[str, Any]) -> None:
    found = walked["what changed it"]
    assert found["clicks"] == 2
    assert found["text"].count("Rows changed: 1") == 2


def test_a_change_is_taken_back_from_the_list_and_leads_back_there(walked: dict[str, Any]) -> None:
    found = walked["taken back"]
    assert found["clicks"] == 2
    assert asked(found) == "user:anna yesterday"
    assert found["text"].count("taken back") == 1


def test_the_page_is_fit_for_everybody(
    server: Server, node: str, chromium: str, customer: str, walked: dict[str, Any]
) -> None:
    page = {"name": "changes-of-days", "url": f"{server.origin}/admin/mcp_django/callentry/changes/"}
    task: dict[str, Any] = {"languages": ["en", "ar"], "widths": [375, 768, 1440], "within": OURS, "pages": [page]}
    found = look_at(server, node, chromium, "admin", **task, also=["target-size"], **screenshots())
    for each in found.values():
        assert not [problem for problem in each["problems"] if "404 (Not Found)" not in problem]
    assert "LongestNameOfAll" in found["changes-of-days", "en"]["seen"]["text"]
