"""`manage.py clear_mcp_calls`."""

import pytest
from django.core.management import CommandError, call_command

from mcp_django.models import CallEntry
from tests.unit.management.commands.test_clear_mcp_calls_retention import fill

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("arguments", "left"), [([], 2), (["--days", "5"], 1), (["--all"], 0)])
def test_what_is_older_is_deleted(arguments, left, settings, capsys):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CALL_LOG": {"days": 20}}
    fill(1, 10, 25, hours=1)
    call_command("clear_mcp_calls", *arguments)
    assert CallEntry.objects.count() == left
    assert capsys.readouterr().out == f"Deleted {3 - left} calls.\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--days", "-1"], "1 or more"),
        (["--days", "0"], "To delete the whole log, use --all"),
        (["--days", "0", "--dry-run"], "--all"),
        (["--days", "5", "--all"], "not allowed with"),
    ],
)
def test_a_slip_deletes_nothing(arguments, told):
    fill(1, 10)
    with pytest.raises(CommandError, match=told):
        call_command("clear_mcp_calls", *arguments)
    assert CallEntry.objects.count() == 2


@pytest.mark.parametrize(("arguments", "count"), [(["--days", "5"], 1), (["--all"], 2)])
def test_a_dry_run_counts_and_deletes_nothing(arguments, count, capsys):
    fill(1, 10, hours=1)
    call_command("clear_mcp_calls", "--dry-run", *arguments)
    assert capsys.readouterr().out == f"Would delete {count} calls.\n"
    assert CallEntry.objects.count() == 2
