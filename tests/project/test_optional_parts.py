"""Parts that a project may leave unused: who knows them, and that nobody pays for them who does not use them."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from .test_architecture import MODULES, dotted, imports_of, parsed
from .test_setup_cost import EXPOSURE, SERVERS, TABLES, loaded, written

pytestmark = pytest.mark.one_django

# Each part, the modules and rooms that import it, and those of them that import it only inside a function.
KNOWN_BY: Final = {
    "mcp_django.console": ({"mcp_django.admin", "mcp_django.management"}, set()),
    "mcp_django.rest": ({"mcp_django.console"}, {"mcp_django.sites"}),
    "mcp_django.operating.metrics": (set(), {"mcp_django.apps", "mcp_django.operating.recorded_calls"}),
    "mcp_django.operating.opentelemetry_spans": (
        set(),
        {
            "mcp_django.operating.recorded_calls",
            "mcp_django.server.sessions",
            "mcp_django.transports.stdio.server",
        },
    ),
    "mcp_django.oauth.account_admin": ({"mcp_django.admin"}, set()),
    "mcp_django.oauth.service_accounts": (set(), {"mcp_django.oauth.account_admin"}),
    "mcp_django.oauth.identity_providers": (set(), {"mcp_django.oauth.account_admin"}),
}
# What the project's admin loads of them, as it has their pages.
OF_THE_ADMIN: Final = {
    "mcp_django.console",
    "mcp_django.console.call_log_admin",
    "mcp_django.console.console_pages",
    "mcp_django.oauth.account_admin",
}
TABLES_OF_PARTS: Final = ("mcp_django_linkedidentity", "mcp_django_serviceaccount")


def is_of(module: str, part: str) -> bool:
    return module == part or module.startswith(f"{part}.")


def importers(part: str) -> Iterator[tuple[str, str]]:
    """Yield the modules outside of a part that import it, each with the function or class of the import."""
    for path in MODULES:
        module = dotted(path)
        for item in imports_of(path, types=True):
            if is_of(item.target, part) and not is_of(module, part):
                yield module, item.scope


@pytest.mark.parametrize("part", KNOWN_BY)
def test_the_core_imports_nothing_of_a_part_that_may_be_unused(part: str) -> None:
    at_once, when_used = KNOWN_BY[part]
    strangers = []
    for module, scope in importers(part):
        if any(is_of(module, known) for known in at_once):
            continue
        if module not in when_used or not scope:
            strangers.append(f"{module} {scope}")
    assert not strangers


@pytest.mark.parametrize("part", KNOWN_BY)
def test_those_that_know_a_part_import_it(part: str) -> None:
    modules = {module for module, _ in importers(part)}
    known = set().union(*KNOWN_BY[part])
    assert all(any(is_of(module, name) for module in modules) for name in known)


def test_no_signal_decides_a_sign_in() -> None:
    """A signal tells of what was done: it is sent after the commit, and what its receivers raise changes nothing."""
    sent = []
    for path in MODULES:
        if dotted(path).startswith(("mcp_django.oauth", "mcp_django.signin")):
            calls = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
            sent += [
                (node.func.attr, any(node in ast.walk(outer.args[0]) for outer in calls if is_on_commit(outer)))
                for node in calls
                if isinstance(node.func, ast.Attribute) and node.func.attr in ("send", "send_robust")
            ]
    assert sent == [("send_robust", True)]


def is_on_commit(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "on_commit"


# Calls of each kind, and the SQL of their second time.
CALLS: Final = """
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from mcp_django.testing import MCPClient

settings.ALLOWED_HOSTS = ["*"]
client = MCPClient(user=User.objects.create_superuser("client"))

def calls(number):
    client.tools()
    client.call("create_record", model="shop.order", values={"number": number})
    client.call("query_records", model="shop.order", order_by=["number"])

calls("A1")
Client().get("/.well-known/oauth-authorization-server")
Client().post("/oauth/token/", {"grant_type": "client_credentials", "client_id": "a", "client_secret": "b"})
Client().post("/oauth/token/", {"grant_type": "refresh_token", "client_id": "a", "refresh_token": "b"})
with CaptureQueriesContext(connection) as queries:
    calls("A2")
with open(%r, "w") as file:
    json.dump([query["sql"] for query in queries], file)
"""


@pytest.mark.parametrize("has_exposure", [False, True], ids=["admin", "exposure"])
def test_a_project_without_these_parts_neither_loads_nor_queries_them(tmp_path: Path, has_exposure: bool) -> None:
    project = written(tmp_path)
    if has_exposure:
        (project / "shop" / "mcp.py").write_text(EXPOSURE)
    queries = tmp_path / "queries.json"
    modules = loaded(project, f"{TABLES}{SERVERS['asgi']}\n{CALLS % str(queries)}", "mcp_django")
    of_parts = {module for module in modules if any(is_of(module, part) for part in KNOWN_BY)}
    assert of_parts <= OF_THE_ADMIN

    executed: list[str] = json.loads(queries.read_text())
    assert not [sql for sql in executed if any(table in sql for table in TABLES_OF_PARTS)]
    # Each of the three calls checks its token. One inserts a row with its history, and reads it; then it reads the row
    # as it is stored, and keeps that. One reads a page.
    assert len([sql for sql in executed if sql.startswith(("SELECT", "INSERT"))]) == 3 + 3 + 2 + 1
