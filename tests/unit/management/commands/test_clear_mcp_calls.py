"""`manage.py clear_mcp_calls`."""

import pytest
from django.core.management import CommandError, call_command

from mcp_django.models import CallEntry
from tests.unit.operating.test_retention import fill

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("arguments", "left"), [([], 2), (["--days", "5"], 1), (["--days", "0"], 0)])
def test_what_is_older_is_deleted(arguments, left, settings, capsys):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CALL_LOG_DAYS": 20}
    fill(1, 10, 25, hours=1)
    call_command("clear_mcp_calls", *arguments)
    assert CallEntry.objects.count() == left
    assert capsys.readouterr().out == f"Deleted {3 - left} calls.\n"


def test_a_slip_deletes_nothing():
    fill(1, 10)
    with pytest.raises(CommandError, match="0 or more"):
        call_command("clear_mcp_calls", "--days", "-1")
    assert CallEntry.objects.count() == 2
