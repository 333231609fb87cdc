"""The example shop in a database of its own, and the answers of its endpoint."""

import io
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

SETTINGS = "example_project.settings"
ORDERS = 1_000
# Large places alone: customers live nowhere else.
MIN_POPULATION = 200_000
SCALE = {"load_places": {"min_population": MIN_POPULATION}, "create_accounts": {}, "load_shop": {"orders": ORDERS}}


def quiet() -> AbstractContextManager[Any]:
    """Return the settings of a measurement: files stay in memory, passwords take no time, nobody counts the calls.

    Nor are they logged: the log's thread would lock the tables of a database in memory now and then.
    """
    from django.conf import settings
    from django.test.utils import override_settings

    storages = settings.STORAGES | {"default": {"BACKEND": "django.core.files.storage.InMemoryStorage"}}
    hashers = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    uncounted = settings.MCP_DJANGO | {"RATES": {"calls": None}, "CALL_LOG": False}
    return override_settings(DEBUG=True, STORAGES=storages, PASSWORD_HASHERS=hashers, MCP_DJANGO=uncounted)


def fill(orders: int = ORDERS) -> None:
    """Load the data of the demo; the history of rows is of the accounts, which come first."""
    from django.core.management import call_command

    scale = SCALE | {"load_shop": {"orders": orders}}
    for command, options in scale.items():
        call_command(command, stdout=io.StringIO(), stderr=io.StringIO(), **options)


@contextmanager
def shop() -> Iterator[None]:
    """Set Django up with the example's settings and a database in memory, which is gone afterwards."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", SETTINGS)
    import django
    from django.test.runner import DiscoverRunner

    django.setup()
    # Refusals are part of what is measured.
    logging.disable(logging.ERROR)
    runner = DiscoverRunner(verbosity=0, interactive=False, debug_mode=True)
    runner.setup_test_environment()
    databases = runner.setup_databases()
    try:
        with quiet():
            fill()
            yield
    finally:
        runner.teardown_databases(databases)
        runner.teardown_test_environment()
        logging.disable(logging.NOTSET)


class Endpoint:
    """The endpoint as a client of ``username`` meets it, in one revision of the protocol."""

    def __init__(self, username: str = "admin", revision: str = "2026-07-28") -> None:
        from django.contrib.auth import get_user_model

        from mcp_django.testing import MCPClient

        user = get_user_model()._default_manager.get(username=username)
        self.client = MCPClient(user, name="evals", version=revision)

    def answer(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole result of ``tools/call``: ``content``, and ``structuredContent`` or ``isError``."""
        return self.client.request("tools/call", name=tool, arguments=dict(arguments))

    def response(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole JSON-RPC response, of an error too."""
        found: dict[str, Any] = self.client.send("tools/call", {"name": tool, "arguments": dict(arguments)}).json()
        return found

    def tools(self) -> list[dict[str, Any]]:
        """Return the definitions of the tools, as ``tools/list`` has them."""
        return self.client.tools()

    def instructions(self) -> str:
        """Return what the server tells a model of itself."""
        return str(self.client.request("server/discover")["instructions"])
