import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
from channels.db import database_sync_to_async
from django.db import connection
from django.db.backends.signals import connection_created
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_django.context.call_record import CallRecord
from mcp_django.operating import query_comments
from mcp_django.operating.query_comments import reading
from mcp_django.testing import MCPClient
from tests.cases import drawn
from tests.factories import make_author, make_superuser
from tests.session_client import SessionClient
from tests.testapp.models import Author

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

ROOT = Path(__file__).resolve().parents[3]
COMMENT = re.compile(r" /\*(?P<pairs>[a-z]+='[\w.~%-]*'(?:,[a-z]+='[\w.~%-]*')*)\*/\Z", re.ASCII)
# Each statement is prepared when it comes first.
PREPARED = {"prepare_threshold": 0}
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
# What a client could try: the end of the comment, quotes, parameters, escapes, and what looks like any of them.
PARTS = [
    "*/",
    "/*",
    "'",
    '"',
    "%",
    "%s",
    "%%",
    "%27",
    "\\",
    "\x00",
    "\n",
    "--",
    ";",
    "é",
    "＊／",
    "\ud800",
    "🐍",
    "DROP",
]
TEXTS = st.lists(st.sampled_from(PARTS) | st.text(max_size=5) | st.characters(), max_size=20).map("".join)


@pytest.fixture(autouse=True)
def commented(db):
    connection.ensure_connection()
    query_comments.annotate_queries()
    yield
    connection_created.disconnect(dispatch_uid="mcp_django.comments")
    connection.execute_wrappers.remove(query_comments.annotate)


@pytest.fixture
def within():
    """Have the test run as if it were a call."""
    tokens = []

    def begin(**fields):
        tokens.append(CallRecord.current.set(CallRecord(**fields)))

    yield begin
    for token in reversed(tokens):
        CallRecord.current.reset(token)


@contextmanager
def executed():
    """Yield a list of the statements as the database gets them; Django's own log has them as they were before."""
    found = []

    def note(execute, sql, *arguments):
        found.append(sql)
        return execute(sql, *arguments)

    with connection.execute_wrapper(note):
        yield found


def pairs_of(sql):
    """What the comment of a query says, decoded."""
    found = COMMENT.search(sql)
    assert found is not None, sql
    return {name: unquote(value) for name, value in re.findall(r"(\w+)='([^']*)'", found["pairs"])}


def test_each_query_of_a_call_says_who_asked():
    client = MCPClient(make_superuser(), name="Claude Code")
    make_author("Ada")
    with executed() as found:
        client.request(
            "tools/call",
            name="query_records",
            arguments={"model": "testapp.author"},
            _meta={"traceparent": TRACEPARENT},
        )
    told = [sql.replace("%%", "%") for sql in found if "/*" in sql]
    table = connection.ops.quote_name("testapp_author")
    assert any(f"FROM {table}" in sql for sql in told)
    for sql in told:
        pairs = pairs_of(sql)
        assert pairs.pop("client")
        assert pairs == {"application": "django", "tool": "query_records", "traceparent": TRACEPARENT}


def test_outside_of_a_call_there_is_none():
    with executed() as found:
        Author.objects.count()
    assert "/*" not in found[0]


@settings(max_examples=drawn(100))
@given(application=TEXTS, client=TEXTS, tool=TEXTS)
def test_no_text_can_end_the_comment_or_be_a_parameter(application, client, tool):
    settings = SimpleNamespace(SERVER={"name": application})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_comments, "settings", settings)
        text = query_comments.comment_of(CallRecord(client_name=client, tool=tool, traceparent=TRACEPARENT))
    found = pairs_of(f"SELECT 1 {text}")
    expected = {"application": application, "client": client, "tool": tool, "traceparent": TRACEPARENT}
    expected = {name: value[: query_comments.MAX_VALUE] for name, value in expected.items() if value}
    assert found == {name: value.encode(errors="replace").decode() for name, value in expected.items()}
    token = CallRecord.current.set(CallRecord(client_name=client, tool=tool))
    try:
        with connection.cursor() as cursor:
            for sql, params in (
                ("SELECT 'a%'", None),
                ("SELECT 'a%%'", ()),
                ("SELECT CAST(%s AS char(2))", ["a%"]),
                ("SELECT 'a%';", None),
            ):
                cursor.execute(sql, params)
                assert list(cursor.fetchall()) == [("a%",)]
    finally:
        CallRecord.current.reset(token)


def test_many_rows_at_once_are_written_with_it_too(within):
    within(client_name="100% */", tool="create_record")
    with executed() as found, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO testapp_author (name, email, secret_token) VALUES (%s, 'a%%', '')", [["a%"], ["b"]]
        )
    assert "client='100%%25%%20%%2A%%2F'" in found[0]
    assert {author.email for author in Author.objects.all()} == {"a%"}
    Author.objects.bulk_create([Author(name="c")])
    assert sorted(Author.objects.values_list("name", flat=True)) == ["a%", "b", "c"]


@pytest.mark.parametrize("sql", ["SELECT 1 /* theirs */", "SELECT 1 /*a='b'*/ \n"])
def test_a_comment_of_somebody_else_stays_the_only_one(within, sql):
    within(tool="x")
    with executed() as found, connection.cursor() as cursor:
        cursor.execute(sql)
    assert found == [sql]


def test_what_looks_at_statements_does_not_see_the_text_of_a_client(within):
    within(client_name="testapp_book", tool="x")
    with executed() as found, reading() as seen:
        Author.objects.count()
    assert "testapp_book" in found[0]
    assert "testapp_book" not in seen[0]


def test_the_trace_is_left_out_where_plans_are_found_by_the_whole_text(within):
    within(tool="x", traceparent=TRACEPARENT)
    found = []

    def execute(sql, *arguments):
        found.append(sql)

    for vendor, threshold in (("postgresql", None), ("postgresql", 5), ("oracle", None)):
        database = SimpleNamespace(vendor=vendor, connection=SimpleNamespace(prepare_threshold=threshold))
        query_comments.annotate(execute, "SELECT 1", None, False, {"connection": database})
    assert ["traceparent" in sql for sql in found] == [True, False, False]


def test_what_is_no_text_is_executed_as_it_is(within):
    within(tool="x")
    composed = object()
    assert query_comments.annotate(lambda sql, *rest: sql, composed, None, False, {}) is composed


def test_hidden_values_are_in_no_comment():
    canary = "canary-77ab"
    make_author(canary)
    with executed() as found:
        MCPClient(make_superuser()).call("query_records", model="testapp.author", filters={"name": canary})
    told = [sql.partition("/*")[2] for sql in found]
    assert any(told)
    assert canary not in "".join(told)


@pytest.mark.skipif(connection.vendor != "postgresql", reason="PostgreSQL's statistics and binding")
@pytest.mark.parametrize("options", [{}, {"server_side_binding": True}, {"server_side_binding": True, **PREPARED}])
def test_postgresql_takes_it_however_parameters_are_bound(options, within, django_db_blocker):
    within(client_name="100% */ '", tool="%s", traceparent=TRACEPARENT)
    own = connection.copy()
    own.settings_dict = {**own.settings_dict, "OPTIONS": {**own.settings_dict.get("OPTIONS", {}), **options}}
    try:
        own.ensure_connection()
        assert query_comments.annotate in own.execute_wrappers
        for _ in range(3):
            with own.cursor() as cursor:
                cursor.execute("SELECT CAST(%s AS text), '%%'", ["a%"])
                assert cursor.fetchall() == [("a%", "%")]
                cursor.execute("SELECT current_query()")
                assert pairs_of(cursor.fetchone()[0])["client"] == "100% */ '"
        with own.cursor() as cursor:
            cursor.execute(
                "SELECT count(DISTINCT statement) FROM pg_prepared_statements WHERE statement LIKE 'SELECT CAST%'"
            )
            assert cursor.fetchone()[0] == (1 if "prepare_threshold" in options else 0)
    finally:
        own.close()


@pytest.mark.django_db(transaction=True)
async def test_queries_of_async_tools_have_it_too(token, tools):
    seen = []

    async def work(request) -> str:
        """Ask the database from the loop."""

        def ask():
            # What the backend asks when it connects is no query of the call.
            connection.ensure_connection()
            Author.objects.count()
            with executed() as found:
                Author.objects.count()
            seen.extend(found)

        await database_sync_to_async(ask, thread_sensitive=False)()
        return "done"

    tools(work)
    client = SessionClient(token)
    await client.initialize()
    await client.result("tools/call", {"name": "work", "arguments": {}})
    assert pairs_of(seen[0])["tool"] == "work"


def test_it_is_installed_at_the_start_where_it_is_turned_on():
    code = """
import django
from django.conf import settings
settings.MCP_DJANGO = {**settings.MCP_DJANGO, "TELEMETRY": {"sql_comments": ON}}
settings.DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
django.setup()
from django.db import connection
from django.db.backends.signals import connection_created
connection.ensure_connection()
print([wrapper.__name__ for wrapper in connection.execute_wrappers])
"""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONPATH": str(ROOT)}
    for is_on, expected in (("True", "['annotate']"), ("False", "[]")):
        command = [sys.executable, "-c", code.replace("ON}", f"{is_on}}}")]
        done = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
        assert done.stdout.strip() == expected
