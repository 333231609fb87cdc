"""What rows hold is in no span, no measurement and no comment of a query, and what clients write is inert there."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.backends.signals import connection_created
from django.test import RequestFactory

from mcp_django.operating import metrics
from mcp_django.operating.query_comments import annotate, annotate_queries
from mcp_django.testing import MCPClient
from tests import telemetry
from tests.factories import make_author, make_superuser
from tests.testapp.models import Author

pytestmark = pytest.mark.django_db

CANARY = "canary-0b7e"
MARKUP = '"}}</script><img src=x onerror=alert(1)>{{7*7}}\n# HELP forged\nmcp_forged 1\x1b[31m*/ DROP'


@pytest.fixture
def statements(settings: Any) -> Iterator[list[str]]:
    """Turn all of it on; gives the statements that the database gets."""
    settings.MCP_DJANGO = {
        **settings.MCP_DJANGO,
        "TELEMETRY": {"opentelemetry": True, "prometheus": True, "sql_comments": True, "metrics_token": "x"},
    }
    telemetry.set_up()
    found: list[str] = []

    def note(execute: Any, sql: str, *arguments: Any) -> Any:
        found.append(sql)
        return execute(sql, *arguments)

    connection.ensure_connection()
    annotate_queries()
    with connection.execute_wrapper(note):
        yield found
    connection_created.disconnect(dispatch_uid="mcp_django.comments")
    connection.execute_wrappers.remove(annotate)


def told(statements: list[str]) -> dict[str, str]:
    """All that leaves the site by telemetry."""
    page = metrics.metrics(RequestFactory().get("/metrics", headers={"Authorization": "Bearer x"}))
    points = [telemetry.measurements(f"mcp.server.{name}.duration") for name in ("operation", "session")]
    found = {
        "spans": "".join(span.to_json() for span in telemetry.spans()),
        "measurements": repr(points),
        "metrics": page.content.decode(),
        "comments": "".join(sql.partition("/*")[2] for sql in statements),
    }
    assert all(found.values())
    return found


def test_values_of_rows_leave_by_none_of_them(statements: list[str], tools: Any) -> None:
    author = make_author(f"Ada {CANARY}")
    Author.objects.filter(pk=author.pk).update(secret_token=CANARY, email=f"{CANARY}@x.example")

    def broken(request: Any) -> str:
        """Fail with what a row holds."""
        raise RuntimeError(Author.objects.get().secret_token)

    tools(broken, scopes=["mcp:read"])
    client = MCPClient(make_superuser())
    calls: list[tuple[str, dict[str, Any]]] = [
        ("query_records", {"model": "testapp.author"}),
        ("query_records", {"model": "testapp.author", "filters": {"name__contains": CANARY}}),
        ("query_records", {"model": "testapp.author", "filters": {"secret_token": CANARY}}),
        ("query_records", {"model": CANARY, "search": CANARY}),
        ("get_record", {"model": "testapp.author", "pk": str(author.pk)}),
        ("get_record", {"model": "testapp.author", "pk": CANARY}),
        ("update_record", {"model": "testapp.author", "pk": str(author.pk), "values": {"email": CANARY}}),
        ("run_action", {"model": "testapp.author", "action": CANARY}),
        ("broken", {}),
    ]
    for name, arguments in calls:
        client.send("tools/call", {"name": name, "arguments": arguments})
    assert len(telemetry.spans()) == len(calls)
    for place, text in told(statements).items():
        assert CANARY not in text, place


def test_what_a_client_writes_is_inert_where_it_is_told(statements: list[str]) -> None:
    user = make_superuser()
    # In the older revisions no header has to repeat the name.
    client = MCPClient(user, version="2025-06-18")
    client.send("tools/call", {"name": MARKUP, "arguments": {"model": MARKUP}})
    client.send("tools/call", {"name": "query_records", "arguments": {"model": MARKUP}})
    client.send("resources/read", {"uri": f"django://{MARKUP}"})
    client.send("prompts/get", {"name": MARKUP})
    MCPClient(user, name=MARKUP).call("query_records", model="testapp.author")
    assert len(telemetry.spans()) == 5
    found = told(statements)
    for place in ("measurements", "metrics", "comments"):
        for part in ("<img", "</script", "\x1b", "forged 1\n", "DROP ", "onerror=alert(1)"):
            assert part not in found[place], (place, part)
    # The address of a resource is the client's own text, and is told on one line, without what steers a terminal.
    assert "\x1b" not in found["spans"]
    assert "\\u001b" not in found["spans"]
    # Each comment ends where it has to.
    assert all(sql.count("*/") == sql.count("/*") for sql in statements)
    assert all(sql.endswith("*/") for sql in statements if "/*" in sql)
