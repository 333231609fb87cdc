"""The wire of tasks."""

from mcp_django.protocol.tasks import EXTENSION


def test_the_extension_has_its_name() -> None:
    assert EXTENSION == "io.modelcontextprotocol/tasks"
