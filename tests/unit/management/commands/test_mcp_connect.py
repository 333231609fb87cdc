import pytest
from django.core.management import CommandError, call_command


def test_it_prints_what_mcp_install_prints(capsys):
    call_command("mcp_connect", "codex")
    found = capsys.readouterr().out
    call_command("mcp_install", "codex")
    assert found == capsys.readouterr().out
    assert "http://testserver/mcp" in found


def test_a_client_that_is_not_known_is_refused():
    with pytest.raises(CommandError, match="invalid choice"):
        call_command("mcp_connect", "telex")
