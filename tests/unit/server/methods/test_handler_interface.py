import logging

from mcp_django.server.methods.handler_interface import log_failure


def test_a_failure_is_logged_once_under_the_id_that_is_returned(caplog):
    with caplog.at_level(logging.ERROR, "mcp_django"):
        identifier = log_failure("tools/call", ValueError("boom"))
    assert len(caplog.records) == 1
    assert identifier in caplog.text
    assert caplog.records[0].exc_info


def test_K192_a_name_from_outside_cannot_forge_a_line_of_the_log(caplog):
    with caplog.at_level(logging.ERROR, "mcp_django"):
        log_failure("x\nERROR forged", ValueError())
    assert "\nERROR forged" not in caplog.records[0].getMessage()
