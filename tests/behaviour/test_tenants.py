"""Tenants: by what middleware leaves in a context variable, and by an argument of the URL."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from mcp_django import asgi
from mcp_django.oauth.resource_urls import canonical, default_resource
from mcp_django.routing import ENDPOINTS
from mcp_django.testing import MCPClient
from tests.asgi_client import Exchange, http_scope
from tests.factories import make_superuser
from tests.oauth_flow import Flow
from tests.sitesapp import tenancy
from tests.sitesapp.models import Customer, Invoice, Receipt, Shelf
from tests.sitesapp.urls import by_header, by_url
from tests.subscribers import listen, tell_at_once

pytestmark = pytest.mark.postgresql

BY_HEADER = "/tenants/mcp"
TENANTS = ("acme", "other")


@pytest.fixture(autouse=True)
def _project(settings):
    settings.ROOT_URLCONF = "tests.sitesapp.urls"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "tests.sitesapp.tenancy.tenant_middleware"]


def make_rows():
    for tenant in TENANTS:
        customer = Customer.everyone.create(tenant=tenant, name=f"Customer of {tenant}")
        for number in range(3):
            values = {"tenant": tenant, "customer": customer}
            invoice = Invoice.everyone.create(number=f"{tenant}-{number}", **values)
            Receipt.everyone.create(tenant=tenant, text=f"for {tenant}-{number}", invoice=invoice)
        shelf = Shelf.objects.create(name="Shelf", customer=customer)
        shelf.receipts.set(Receipt.everyone.all())


@pytest.fixture
def rows(db):
    make_rows()


class TenantClient(MCPClient):
    """A client whose requests name a tenant."""

    def __init__(self, user, tenant):
        super().__init__(user, path=BY_HEADER)
        self.headers["X-Tenant"] = tenant


@pytest.fixture
def clients(rows):
    root = make_superuser()
    return {tenant: TenantClient(root, tenant) for tenant in (*TENANTS, "", "*")}


def ok(result):
    assert not result.is_error, result.text
    return result.structured


def is_of(tenant, text):
    """Return whether the text tells of this tenant and of no other."""
    assert tenant in text
    return not any(name in text for name in TENANTS if name != tenant)


READS = {
    "query": {"model": "sitesapp.invoice", "fields": ["number", "customer"]},
    "query of its own rows": {"model": "sitesapp.receipt", "fields": ["text", "invoice"]},
    "reverse": {"model": "sitesapp.customer", "fields": ["name", "invoices"]},
    "filter": {"model": "sitesapp.invoice", "filters": {"paid": False}, "fields": ["number"]},
    "search": {"model": "sitesapp.invoice", "search": "-1", "fields": ["number"]},
    "related filter": {"model": "sitesapp.shelf", "fields": ["customer"], "filters": {"name": "Shelf"}},
    "linked": {"model": "sitesapp.shelf", "fields": ["receipts"]},
}


@pytest.mark.parametrize("arguments", READS.values(), ids=READS)
@pytest.mark.parametrize("order", [("*", *TENANTS), ("", *TENANTS), TENANTS, TENANTS[::-1]])
def test_row_121_a_page_has_the_rows_of_the_tenant_whoever_came_before(clients, arguments, order):
    """What was compiled for one tenant, for none, or for one who sees everything, is not another's."""
    for tenant in order:
        answer = clients[tenant].call("query_records", **arguments)
        assert not answer.is_error
        if tenant in TENANTS:
            assert is_of(tenant, answer.text)


def test_row_121_a_row_of_another_tenant_is_not_there(clients):
    for tenant, others in zip(TENANTS, TENANTS[::-1], strict=True):
        own, foreign = Invoice.everyone.filter(tenant=tenant)[0], Invoice.everyone.filter(tenant=others)[0]
        client = clients[tenant]
        assert is_of(tenant, client.call("get_record", model="sitesapp.invoice", pk=own.pk).text)
        assert client.call("get_record", model="sitesapp.invoice", pk=foreign.pk).is_error
        told = client.call("update_record", model="sitesapp.invoice", pk=foreign.pk, values={"number": "mine"})
        assert told.is_error
    assert not Invoice.everyone.filter(number="mine").exists()


def test_counts_and_aggregates_are_of_the_tenant(clients):
    Invoice.everyone.filter(tenant="other").first().delete()
    counts = {
        tenant: ok(clients[tenant].call("aggregate_records", model="sitesapp.invoice", aggregates=["count"]))["rows"]
        for tenant in TENANTS
    }
    assert counts == {"acme": [[3]], "other": [[2]]}


def test_tools_resources_actions_and_completions_know_the_tenant(clients):
    for tenant in TENANTS:
        client = clients[tenant]
        assert client.call("whoami").text == tenant
        assert client.read("tenant://me")[0]["text"] == tenant
        assert is_of(tenant, client.read("django://sitesapp/invoice")[0]["text"])
        pk = Invoice.everyone.filter(tenant=tenant)[0].pk
        told = client.call("run_action", model="sitesapp.invoice", action="pay", pks=[pk])
        assert f"{tenant} paid 1" in told.text
        ref = {"type": "ref/resource", "uri": "django://sitesapp/invoice/{pk}"}
        found = client.request("completion/complete", ref=ref, argument={"name": "pk", "value": ""})
        own = {str(invoice.pk) for invoice in Invoice.everyone.filter(tenant=tenant)}
        assert set(found["completion"]["values"]) <= own
    assert Invoice.everyone.filter(paid=True).count() == 2


@pytest.mark.django_db(transaction=True)
def test_two_tenants_at_once_never_see_a_row_of_each_other():
    make_rows()
    root = make_superuser()

    def look(number):
        tenant = TENANTS[number % 2]
        client = TenantClient.__new__(TenantClient)
        client.__dict__.update(made[tenant].__dict__, http=Client())
        try:
            name = list(READS)[number // 2 % len(READS)]
            return is_of(tenant, client.call("query_records", **READS[name]).text) and client.call("whoami").text
        finally:
            connection.close()

    made = {tenant: TenantClient(root, tenant) for tenant in TENANTS}
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(look, range(28))) == [*TENANTS] * 14


@pytest.fixture
def headers(transactional_db):
    make_rows()
    root = make_superuser()
    found = {path: MCPClient(root, path=path).headers["Authorization"] for path in (BY_HEADER, "/t/acme/mcp")}
    return {**found, "pks": {tenant: Invoice.everyone.filter(tenant=tenant)[0].pk for tenant in TENANTS}}


def modern(method, named, **params):
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    return body, {"mcp_protocol_version": "2026-07-28", "mcp_method": method, "mcp_name": named}


async def called(path, authorization, tool, arguments, *, project=None, **headers):
    """Call a tool through the ASGI application; return the status and what the tool says."""
    body, named = modern("tools/call", tool, name=tool, arguments=arguments)
    scope = http_scope(path, **named, **headers, authorization=authorization)
    asked = Exchange(asgi.get_asgi_application(project), scope)
    await asked.send(body)
    status, _, body = await asked.answer()
    return status, json.loads(body)["result"]["content"][0]["text"] if status == 200 else ""


async def test_in_an_asgi_server_the_middleware_of_each_request_says_which_tenant(headers):
    """Reads, and what has a pool of its own, many at once."""
    pks = headers["pks"]

    async def look(tenant, tool, arguments):
        status, text = await called(BY_HEADER, headers[BY_HEADER], tool, arguments, x_tenant=tenant)
        return status == 200 and is_of(tenant, text)

    looks = []
    for tenant in TENANTS:
        pay = {"model": "sitesapp.invoice", "action": "pay", "pks": [pks[tenant]]}
        for tool, arguments in (("whoami", {}), ("query_records", READS["query"]), ("run_action", pay)):
            looks += [look(tenant, tool, arguments) for _ in range(3)]
    assert all(await asyncio.gather(*looks))


# Subscriptions


@pytest.fixture
def commit(rows, monkeypatch, django_capture_on_commit_callbacks):
    """Do something, commit it, and have everyone told, by a thread that no middleware has passed."""
    news = tell_at_once(monkeypatch)

    def run(work):
        with django_capture_on_commit_callbacks(execute=True):
            work()
        Context().run(news.process.tell)

    return run


def test_102_who_watches_is_told_of_the_rows_of_the_tenant_by_which_the_stream_came(commit):
    root = make_superuser()
    invoices = {tenant: Invoice.everyone.filter(tenant=tenant)[0] for tenant in TENANTS}
    uris = [f"django://sitesapp/invoice/{invoice.pk}" for invoice in invoices.values()]
    listeners = {}
    for tenant in TENANTS:
        token = tenancy.current.set(tenant)
        listeners[tenant] = listen(root, *uris, "django://sitesapp/invoice", site=by_header)
        tenancy.current.reset(token)
    for number, tenant in enumerate(TENANTS):
        commit(invoices[tenant].save)
        told = {name: listener.take() for name, listener in listeners.items()}
        assert set(told[tenant]) == {uris[number], "django://sitesapp/invoice"}
        assert told[TENANTS[1 - number]] == []


# By an argument of the URL


@pytest.fixture
def user(rows):
    return make_superuser("acme-user")


def at(user, tenant, prefix="t"):
    return MCPClient(user, path=f"/{prefix}/{tenant}/mcp")


def test_the_argument_of_the_url_reaches_hooks_and_tools(user):
    client = at(user, "acme")
    assert client.call("which").text == "acme by_url:endpoint"
    assert is_of("acme", client.call("query_records", model="sitesapp.invoice").text)
    made = ok(client.call("create_record", model="sitesapp.invoice", values={"number": "acme-new"}))
    assert Invoice.everyone.get(pk=made["pk"]).tenant == "acme"


def test_row_121_a_row_of_another_tenants_url_is_not_there(user):
    foreign = Invoice.everyone.filter(tenant="other")[0]
    assert at(user, "acme").call("get_record", model="sitesapp.invoice", pk=foreign.pk).is_error


def test_row_125_hooks_decide_who_may_use_the_url_of_a_tenant(user):
    stranger = at(user, "other")
    assert [tool["name"] for tool in stranger.tools()] == ["which"]
    assert "sitesapp.invoice" not in str(stranger.request("server/discover"))


def test_row_165_a_token_for_one_tenants_url_is_none_for_another(user):
    client = at(user, "acme")
    for path in ("/t/other/mcp", "/r/acme/mcp", "/t/ACME/mcp", "/tenants/mcp"):
        client.path = path
        answer = client.send("tools/list", {})
        assert answer.status_code == 401
        assert f"/.well-known/oauth-protected-resource{path}" in answer["WWW-Authenticate"]
    client.path = "/t/acme/mcp/"
    assert client.send("tools/list", {}).status_code == 200


def test_what_one_tenants_url_gave_is_not_taken_at_another(user):
    user.username = "acme"
    user.save()
    client = at(user, "acme")
    other = at(user, "acme", "r")
    arguments = {"model": "sitesapp.invoice", "limit": 1}
    cursor = ok(client.call("query_records", **arguments))["next_cursor"]
    assert not client.call("query_records", **arguments, cursor=cursor).is_error
    assert other.call("query_records", **arguments, cursor=cursor).is_error
    pk = Invoice.everyone.filter(tenant="acme")[0].pk
    token = ok(client.call("delete_record", model="sitesapp.invoice", pk=pk))["confirm_token"]
    assert other.call("delete_record", model="sitesapp.invoice", pk=pk, confirm_token=token).is_error
    version = ok(client.call("get_record", model="sitesapp.invoice", pk=pk))["version"]
    values = {"values": {"number": "x"}, "version": version}
    assert "has changed since" in other.call("update_record", model="sitesapp.invoice", pk=pk, **values).text


@pytest.mark.parametrize("path", ["/t/acme/mcp", "/t/acme/mcp/", "/r/acme/mcp"])
def test_each_url_has_the_document_of_its_own(client, path):
    document = client.get(f"/.well-known/oauth-protected-resource{path}").json()
    assert document["resource"] == f"http://testserver{path}"
    assert client.get(f"/.well-known/oauth-authorization-server{path}").json()["issuer"] == "http://testserver"


@pytest.mark.parametrize("path", ["/t/a b/mcp", "/t/closed/mcp", "/t//mcp", "/t/acme/mcp/x", "/r/9/mcp"])
def test_a_url_that_is_no_endpoint_has_no_document(client, path):
    assert client.get(f"/.well-known/oauth-protected-resource{path}").status_code == 404


@pytest.mark.parametrize(
    ("resource", "url"),
    [
        ("http://testserver/t/acme/mcp", "http://testserver/t/acme/mcp"),
        ("HTTP://testserver:80/t/acme/mcp/", "http://testserver/t/acme/mcp"),
        ("http://testserver/s/m%C3%BCnchen/mcp", "http://testserver/s/m%C3%BCnchen/mcp"),
        ("http://testserver/t/%61cme/mcp", None),
        ("http://testserver/s/münchen/mcp", None),
        ("http://testserver/t/acme/mcp?x", None),
        ("http://testserver/t/acme/../other/mcp", None),
        ("http://testserver/t/acme%2Fmcp", None),
        ("http://testserver/t/mcp", None),
        ("http://testserver/t", None),
        ("http://elsewhere/t/acme/mcp", None),
        ("http://testserver", None),
    ],
)
def test_row_165_a_tenants_url_has_one_spelling(resource, url):
    assert canonical(None, resource) == url


def test_row_165_a_user_signs_in_for_the_url_of_one_tenant(user):
    flow, url = Flow(username=user.username), "http://testserver/t/acme/mcp"
    code = flow.code(resource=f"{url}/")
    answer = flow.exchange(code, resource=url)
    assert answer.status_code == 200, answer.content
    client = at(user, "acme")
    client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
    assert client.call("which").text.startswith("acme ")
    client.path = "/t/other/mcp"
    assert client.send("tools/list", {}).status_code == 401
    assert "code" not in flow.ask(resource="http://testserver/t/closed/mcp").headers.get("Location", "")


def test_the_command_gives_tokens_for_the_url_of_a_tenant(user):
    said = StringIO()
    call_command("mcp_token", user.username, resource="/t/acme/mcp", stdout=said, stderr=StringIO())
    client = at(user, "acme")
    client.headers["Authorization"] = f"Bearer {said.getvalue().strip()}"
    assert client.call("which").text.startswith("acme ")
    with pytest.raises(CommandError, match="No such endpoint"):
        call_command("mcp_token", user.username, resource="/t/closed/mcp", stdout=said, stderr=StringIO())


def test_without_a_resource_parameter_none_is_guessed_where_there_are_many():
    assert default_resource(None) is None


def test_a_tenant_may_have_a_name_in_any_script(user):
    user.username = "münchen"
    user.save()
    client = MCPClient(user, path="/s/münchen/mcp")
    assert client.call("which").text.startswith("münchen ")


async def test_the_fast_road_gives_the_argument_too_and_does_not_ask_the_project(headers):
    async def project(scope, receive, send):
        raise AssertionError("not for the project")

    token = headers["/t/acme/mcp"]
    status, text = await called("/t/acme/mcp", token, "which", {}, project=project)
    assert (status, text.split()[0]) == (200, "acme")
    assert (await called("/t/other/mcp", token, "which", {}, project=project))[0] == 401


def test_what_stands_before_the_tenants_in_urls_py_is_not_taken_for_one():
    assert ENDPOINTS.match("/t/closed/mcp") is None
    assert ENDPOINTS.match("/t/acme/mcp").kwargs == {"tenant": "acme"}


async def test_the_plain_road_gives_the_argument_in_an_asgi_server_too(headers, monkeypatch):
    monkeypatch.setattr(by_url, "needs_middleware", True)
    token = headers["/t/acme/mcp"]
    assert (await called("/t/acme/mcp", token, "which", {}))[1].split()[0] == "acme"
    assert (await called("/t/other/mcp", token, "which", {}))[0] == 401


def test_nothing_of_a_tenant_is_left_behind(clients):
    clients["acme"].call("whoami")
    assert tenancy.current.get() == ""
