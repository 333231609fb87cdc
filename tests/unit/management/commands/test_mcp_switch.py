import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command
from django.utils import timezone
from oauth2_provider.models import Application

from mcp_django.models import ServiceAccount, Switch
from mcp_django.operating.switches import board
from mcp_django.testing import MCPClient
from tests.factories import make_superuser, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*args: str) -> str:
        call_command("mcp_switch", *args)
        return capsys.readouterr().out

    return call


def make_client(**values: Any) -> Application:
    return Application.objects.create(client_type="public", authorization_grant_type="authorization-code", **values)


def test_a_tool_is_off_for_two_hours_and_on_again(run: Any) -> None:
    client = MCPClient(make_superuser())
    said = run("off", "tool", "delete_record", "--reason", "Audit", "--for", "2h")
    assert said.startswith("tool delete_record is off until ")
    switch = Switch.objects.get()
    assert timedelta(minutes=119) < switch.until - timezone.now() <= timedelta(hours=2)
    assert switch.by.startswith("mcp_switch")
    assert client.call("delete_record", model="testapp.author", pk="1").text.endswith("Reason given: Audit")
    assert run("on", "tool", "delete_record").startswith("tool delete_record is on again.")
    assert board.current() is None


def test_who_does_it_is_in_the_history(run: Any) -> None:
    root = make_superuser()
    run("off", "writes", "--user", "root")
    run("on", "writes", "--user", "root")
    assert [entry.user for entry in LogEntry.objects.all()] == [root, root]
    assert Switch.objects.get().ended_by == "root"


def test_a_user_who_is_not_active_switches_nothing(run: Any) -> None:
    make_user("gone").__class__.objects.update(is_active=False)
    with pytest.raises(CommandError, match="not active"):
        run("off", "writes", "--user", "gone")
    assert not Switch.objects.exists()


@pytest.mark.parametrize("lasts", [("30m", 1800), ("3d", 259_200), ("1w", 604_800), ("90s", 90)])
def test_times_have_units(run: Any, lasts: tuple[str, int]) -> None:
    run("off", "everything", "--for", lasts[0])
    switch = Switch.objects.get()
    assert (switch.until - switch.begins).total_seconds() == lasts[1]


@pytest.mark.parametrize("lasts", ["2", "h", "0h", "-2h", "2 h", "1y"])
def test_other_times_are_refused(run: Any, lasts: str) -> None:
    with pytest.raises(CommandError, match="such as 2h"):
        run("off", "everything", f"--for={lasts}")
    assert not Switch.objects.exists()


def test_the_list_says_what_who_until_when_and_why(run: Any) -> None:
    make_user("ada")
    run("off", "user", "ada", "--reason", "On leave", "--for", "1d", "--user", "ada")
    Switch.objects.create(kind="writes", begins=timezone.now() + timedelta(days=1), by="ops")
    Switch.objects.create(kind="everything", ended=timezone.now())
    first, second = run("--list").splitlines()
    assert "user ada  off  until 2" in first
    assert first.endswith("by ada  On leave")
    assert "writes  off from 2" in second
    assert [(item["kind"], item["by"]) for item in json.loads(run("--list", "--json"))] == [
        ("user", "ada"),
        ("writes", "ops"),
    ]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "Say what to switch"),
        (("off",), "Say what to switch"),
        (("off", "tool", "delete_recrd"), "Did you mean 'delete_record'"),
        (("off", "model", "testapp.boook"), "Did you mean 'testapp.book'"),
        (("off", "action", "testapp.book.withdrw"), "Did you mean 'testapp.book.withdraw'"),
        (("off", "user", "nobody"), "no user"),
        (("off", "client", "nothing"), "no client 'nothing'"),
        (("off", "everything", "else"), "has no target"),
        (("on", "tool", "delete_record"), "is not off"),
        (("on", "everything"), "is not off"),
        (("off", "nothing"), "invalid choice"),
    ],
)
def test_what_is_not_there_is_refused(run: Any, args: tuple[str, ...], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        run(*args)
    assert not Switch.objects.exists()


def test_clients_are_named_by_id_name_and_host(run: Any) -> None:
    make_client(client_id="abc", name="Claude")
    for name in ("abc", "Claude"):
        run("off", "client", name)
        assert Switch.objects.latest("pk").target == "abc"
        run("on", "client", name)
    run("off", "client", "Claude.ai")
    assert Switch.objects.latest("pk").target == "claude.ai"
    make_client(client_id="def", name="Claude")
    with pytest.raises(CommandError, match="Several clients"):
        run("off", "client", "Claude")


def test_actions_and_services_are_found(run: Any) -> None:
    account = ServiceAccount.objects.create(name="nightly", user=make_superuser())
    for kind, target in (("action", "testapp.book.withdraw"), ("action", "withdraw"), ("service", "nightly")):
        run("off", kind, target)
    assert set(Switch.objects.values_list("target", flat=True)) == {
        "testapp.book.withdraw",
        "withdraw",
        account.client_id,
    }


def test_what_is_gone_can_be_turned_on(run: Any) -> None:
    user = make_user("ada")
    run("off", "user", "ada")
    user.delete()
    Switch.objects.create(kind="tool", target="removed_tool")
    run("on", "user", "ada")
    run("on", "tool", "removed_tool")
    assert not Switch.objects.filter(ended=None).exists()
