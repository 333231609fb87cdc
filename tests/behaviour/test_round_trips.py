"""How often a write waits for PostgreSQL: the bounds are only ever lowered."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django.context.call_record import CallRecord
from mcp_django.models import CallEntry
from mcp_django.operating.call_log_storage import row_of, store
from mcp_django.testing import MCPClient
from tests.factories import make_author, make_superuser
from tests.postgres_proxy import behind_a_proxy

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="the proxy reads PostgreSQL's protocol"),
]
# The token, the row and its lock, the row, the history, the row as it is now, the rows of its inline, and lock_timeout;
# and to take it back, the row before and after, and what is kept.
STATEMENTS = 7 + 3
# Also BEGIN and COMMIT.
TRIPS = STATEMENTS + 2


def test_statements_and_round_trips_of_an_update() -> None:
    author, client = make_author(), MCPClient(make_superuser())
    with behind_a_proxy() as proxy:
        client.call("update_record", model="testapp.author", pk=author.pk, values={"name": "warm"})
        before = proxy.trips
        with CaptureQueriesContext(connection) as queries:
            client.call("update_record", model="testapp.author", pk=author.pk, values={"name": "new"})
        statements = [query for query in queries if query["sql"] not in ("BEGIN", "COMMIT")]
        assert (len(statements), proxy.trips - before) == (STATEMENTS, TRIPS)


def test_the_log_of_calls_is_written_in_one_round_trip() -> None:
    store([row_of(CallRecord(outcome="ok"))])
    with behind_a_proxy() as proxy:
        connection.ensure_connection()
        before = proxy.trips
        store([row_of(CallRecord(outcome="ok")), row_of(CallRecord(outcome="ok"))])
        assert proxy.trips - before == 1
        with connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            assert cursor.fetchone()[0] == "0"
    assert CallEntry.objects.count() == 3
