"""Policies and schemas of PostgreSQL follow the caller by the middleware of their pages, on kept connections."""

import json
import sys
from contextlib import contextmanager
from types import ModuleType

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group
from django.db import connection, connections
from django.db.backends.signals import connection_created
from django.urls import include, path

from mcp_django import MCPSite, ModelExposure, asgi
from mcp_django.oauth.stored_tokens import issue_token
from tests.asgi_client import Exchange, http_scope
from tests.cases import HERE
from tests.documentation import DOCS, blocks_of
from tests.factories import make_author, make_superuser
from tests.testapp.models import Author, Book, Tag

pytestmark = [
    pytest.mark.skipif(not HERE.startswith("postgres"), reason="has policies on rows"),
    pytest.mark.django_db(transaction=True),
]
ROLE = "mcp_row_security"
PAGES = (DOCS / "row-level-security.md", DOCS / "tenants.md")
FILES = {block.file: block.text for page in PAGES for block in blocks_of(page) if block.file}


@contextmanager
def connections_of_calls(first=""):
    """Give the connections that are made meanwhile, which run a first statement, and close them at the end."""
    made = []

    def keep(connection, **kwargs):
        made.append(connection)
        if first:
            with connection.cursor() as cursor:
                cursor.execute(first)

    connection_created.connect(keep)
    yield made
    connection_created.disconnect(keep)
    for each in made:
        each.inc_thread_sharing()
        each.close()


@pytest.fixture
def policies():
    """The policies of the page, on the table of books, for connections of calls that are no superuser's."""
    names = {}
    exec(FILES["shop/migrations/0002_policies.py"], names)
    with connection.cursor() as cursor:
        cursor.execute(f"DROP ROLE IF EXISTS {ROLE}")
        cursor.execute(f"CREATE ROLE {ROLE}")
        cursor.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {ROLE}")
        cursor.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {ROLE}")
        cursor.execute(names["POLICIES"].replace("shop_order", "testapp_book"))
    with connections_of_calls(f"SET ROLE {ROLE}") as made:
        yield made
    with connection.cursor() as cursor:
        cursor.execute("DROP POLICY own_rows ON testapp_book")
        cursor.execute("ALTER TABLE testapp_book NO FORCE ROW LEVEL SECURITY")
        cursor.execute("ALTER TABLE testapp_book DISABLE ROW LEVEL SECURITY")
        cursor.execute(f"DROP OWNED BY {ROLE}")
        cursor.execute(f"DROP ROLE {ROLE}")


@pytest.fixture
def use(settings, monkeypatch):
    """Return what puts the middleware of a page around calls, whose connections are kept."""

    def use(file, name):
        module = ModuleType("middleware_of_a_page")
        exec(FILES[file], vars(module))
        monkeypatch.setitem(sys.modules, module.__name__, module)
        settings.MCP_DJANGO = settings.MCP_DJANGO | {"CALL_MIDDLEWARE": [f"{module.__name__}.{name}"]}

    monkeypatch.setitem(connections.databases["default"], "CONN_MAX_AGE", None)
    return use


@pytest.fixture
def people():
    """Two superusers with two books each: Django refuses neither of them any row."""
    author = make_author()
    users = {name: make_superuser(name) for name in ("ada", "bob")}
    for name, user in users.items():
        for number in (1, 2):
            Book.objects.create(title=f"{name} {number}", author=author, isbn=f"{name}{number}", price=1, owner=user)
    return users


@pytest.fixture
def counting(tools):
    """Tools of the project that read on the loop and in their own thread."""

    async def count_async(request) -> int:
        """Count."""
        return await Book.objects.acount()

    def count_sync(request) -> int:
        """Count."""
        return Book.objects.count()

    tools(count_async)
    tools(count_sync)


@async_to_sync
async def called(token, tool, mount="/mcp", **arguments):
    headers = {"authorization": f"Bearer {token}", "mcp_protocol_version": "2025-11-25"}
    asked = Exchange(asgi.get_asgi_application(), http_scope(mount, **headers))
    params = {"name": tool, "arguments": arguments}
    await asked.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    _, _, body = await asked.answer()
    message = json.loads(body)
    return message.get("result", message)


def test_each_caller_reads_and_writes_the_rows_of_the_policy(people, policies, use, counting):
    use("shop/row_security.py", "UserOfPolicies")
    granted = {"scopes": ["mcp:read", "mcp:write"], "resource": "http://testserver/mcp"}
    tokens = {name: issue_token(user, **granted) for name, user in people.items()}
    keys = {book.title: book.pk for book in Book.objects.all()}
    author = Author.objects.get().pk
    # Each twice: the connections of the first round are kept.
    for name, other in [("ada", "bob"), ("bob", "ada")] * 2:
        token = tokens[name]
        page = called(token, "query_records", model="testapp.book", fields=["title"])
        assert {row[-1] for row in page["structuredContent"]["rows"]} == {f"{name} 1", f"{name} 2"}
        counted = called(token, "aggregate_records", model="testapp.book")
        assert counted["structuredContent"]["rows"] == [[2]]
        for tool in ("count_sync", "count_async"):
            assert called(token, tool)["structuredContent"] == {"result": 2}
        hidden = {"model": "testapp.book", "pk": keys[f"{other} 1"]}
        assert called(token, "get_record", **hidden)["isError"]
        assert called(token, "update_record", **hidden, values={"pages": 99})["isError"]
        mine = {"model": "testapp.book", "pk": keys[f"{name} 1"]}
        changed = called(token, "update_record", **mine, values={"pages": 7})
        assert not changed.get("isError"), changed
        # PostgreSQL refuses a row that its writer would not see.
        values = {"title": "New", "author": author, "isbn": "new", "price": "1", "owner": people[other].pk}
        refused = called(token, "create_record", model="testapp.book", values=values)
        assert refused["isError"]
        assert "row-level security" in refused["content"][0]["text"], refused
    assert set(Book.objects.filter(title__endswith="1").values_list("pages", flat=True)) == {7}
    assert Book.objects.count() == 4
    assert policies


def test_without_the_middleware_a_caller_sees_no_row(people, policies):
    token = issue_token(people["ada"], scopes=["mcp:read"], resource="http://testserver/mcp")
    page = called(token, "query_records", model="testapp.book", fields=["title"])
    assert page["structuredContent"]["rows"] == []


# Schemas


@pytest.fixture
def schemas(settings):
    """Two schemas with a table of tags each, and connections of calls that are closed at the end."""
    settings.ROOT_URLCONF = __name__
    with connection.cursor() as cursor:
        for tenant in ("acme", "other"):
            cursor.execute(f"CREATE SCHEMA {tenant}")
            cursor.execute(f"CREATE TABLE {tenant}.testapp_tag (LIKE public.testapp_tag INCLUDING ALL)")
            cursor.execute(f"INSERT INTO {tenant}.testapp_tag (name) VALUES ('tag of {tenant}')")
    with connections_of_calls():
        yield
    with connection.cursor() as cursor:
        cursor.execute("DROP SCHEMA acme, other CASCADE")


by_schema = MCPSite("by_schema")
by_schema.register(Tag, ModelExposure, fields=["id", "name"])
urlpatterns = [path("t/<slug:tenant>/mcp", by_schema.urls), path("", include("mcp_django.oauth.urls"))]


def test_each_tenant_has_its_schema_and_a_stranger_none(schemas, use):
    use("shop/tenant_schemas.py", "SchemaOfTenant")
    user = make_superuser()
    user.groups.add(*(Group.objects.create(name=tenant) for tenant in ("acme", "other")))
    granted = {"scopes": ["mcp:read", "mcp:write"]}
    for tenant in ("acme", "other") * 2:
        mount = f"/t/{tenant}/mcp"
        token = issue_token(user, resource=f"http://testserver{mount}", **granted)
        page = called(token, "query_records", mount, model="testapp.tag", fields=["name"])
        assert [row[-1] for row in page["structuredContent"]["rows"]][:1] == [f"tag of {tenant}"]
        values = {"name": f"written {len(page['structuredContent']['rows'])}"}
        made = called(token, "create_record", mount, model="testapp.tag", values=values)
        assert not made.get("isError"), made
    assert not Tag.objects.exists()
    user.groups.clear()
    assert "error" in called(token, "query_records", mount, model="testapp.tag")
