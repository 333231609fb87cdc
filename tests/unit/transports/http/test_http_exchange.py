import json

import pytest
from django.db import OperationalError, connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from mcp_django import site
from mcp_django.protocol.versions import Revisions
from mcp_django.testing import MCPClient
from mcp_django.transports.http.http_exchange import Response, _renew_connections
from mcp_django.transports.http.streamable_http import StreamableExchange
from tests.asgi_client import http_scope
from tests.factories import make_superuser, make_user

pytestmark = pytest.mark.django_db

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
MCP = {"BASE_URL": "http://testserver"}


@pytest.fixture
def client():
    return MCPClient(make_superuser(), version="2025-11-25")


def post(client, body=PING, **headers):
    return client.post(json.dumps(body) if not isinstance(body, (bytes, str)) else body, **headers)


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
def test_R1_the_endpoint_answers_with_and_without_a_slash_and_never_redirects(path):
    client = MCPClient(make_superuser(), path="/mcp", version="2025-11-25")
    client.path = path
    assert post(client).json() == {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.mark.parametrize("path", ["/mcp//", "/mcp/.", "/mcp;x", "/MCP", "/mcp/x", "/mcpx"])
def test_A20_no_other_path_is_the_endpoint_and_none_is_redirected(path, client):
    client.path = path
    assert post(client).status_code == 404


@pytest.mark.parametrize("method", ["get", "head", "put", "patch", "delete", "post"])
@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
def test_J163_without_a_token_every_method_is_told_how_to_get_one(method, path):
    response = getattr(Client(), method)(path)
    assert response.status_code == 401
    assert response["WWW-Authenticate"] == (
        f'Bearer resource_metadata="http://testserver/.well-known/oauth-protected-resource{path}", '
        'scope="mcp:read mcp:write"'
    )


@pytest.mark.parametrize(
    "credentials", ["Bearer", "Bearer ", "Bearer nonsense", "Bearer a,b", "Basic dTpw", "Bearer " + "x" * 10_000]
)
def test_J163_bad_credentials_are_an_invalid_token(credentials):
    response = Client().post("/mcp", headers={"Authorization": credentials})
    assert response.status_code == 401
    assert 'error="invalid_token"' in response["WWW-Authenticate"]


def test_J163_the_scheme_of_the_credentials_is_case_insensitive(client):
    client.headers["Authorization"] = client.headers["Authorization"].replace("Bearer", "bearer")
    assert post(client).status_code == 200


def test_J169_a_token_in_the_query_or_the_body_is_no_token(client):
    token = client.headers.pop("Authorization").split()[1]
    assert Client().post(f"/mcp?access_token={token}").status_code == 401
    assert Client().post("/mcp", {"access_token": token}).status_code == 401


def test_J170_a_session_cookie_is_no_authority():
    browser = Client()
    browser.force_login(make_superuser())
    assert browser.post("/mcp", PING, content_type="application/json").status_code == 401


def test_J170_the_token_decides_who_calls_whatever_cookie_comes_with_it():
    client = MCPClient(make_user("nobody", staff=False), version="2025-11-25")
    client.http.force_login(make_superuser())
    assert client.tools() == []


@pytest.mark.parametrize("method", ["get", "put", "patch", "delete"])
def test_A9_with_a_token_only_post_is_taken(method, client):
    response = getattr(client.http, method)("/mcp", headers=client.headers)
    assert response.status_code == 405
    assert response["Allow"] == "POST"


@pytest.mark.parametrize("version", ["", *Revisions.LEGACY, "1.0"])
def test_9_get_and_delete_are_for_sessions(version):
    scope = http_scope(mcp_protocol_version=version)
    assert StreamableExchange(site, scope).allowed == "POST, GET, DELETE"
    assert StreamableExchange(site, scope, can_stream=False).allowed == "POST"


def test_9_the_modern_era_has_post_alone():
    assert StreamableExchange(site, http_scope(mcp_protocol_version=Revisions.LATEST)).allowed == "POST"


@pytest.mark.parametrize("host", ["evil.example", "testserver.evil.example", "evil.example:80"])
def test_A1_a_host_that_is_not_ours_is_refused_before_the_token_is_looked_at(host):
    response = Client().post("/mcp", headers={"Host": host})
    assert response.status_code == 400
    assert "WWW-Authenticate" not in response


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://testserver.evil.example",
        "https://testserver",
        "http://testserver:81",
        "http://testserver/",
        "testserver",
        "",
    ],
)
def test_A3_an_origin_that_is_not_allowed_is_refused(origin, client):
    response = post(client, Origin=origin)
    assert response.status_code == 403
    assert "Access-Control-Allow-Origin" not in response


def test_A4_the_servers_own_origin_is_allowed(client):
    assert post(client, Origin="http://testserver").status_code == 200


def test_A4_a_preflight_is_answered_for_an_allowed_origin_alone():
    asked = {"Access-Control-Request-Method": "POST"}
    with override_settings(MCP_DJANGO=MCP | {"ALLOWED_ORIGINS": ["https://app.example"]}):
        allowed = Client().options("/mcp", headers={"Origin": "https://app.example", **asked})
        foreign = Client().options("/mcp", headers={"Origin": "https://evil.example", **asked})
    assert allowed.status_code == 204
    assert allowed["Access-Control-Allow-Origin"] == "https://app.example"
    assert "Authorization" in allowed["Access-Control-Allow-Headers"]
    assert foreign.status_code == 403
    assert not any(name.startswith("Access-Control") for name in foreign.headers)


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/jsonx", "application/json-patch+json", "text/html; a=application/json", "",
     "application/json, text/plain"],
)  # fmt: skip
def test_A7_a_body_that_does_not_say_it_is_json_is_not_read(content_type, client):
    response = client.http.post("/mcp", json.dumps(PING), content_type=content_type, headers=client.headers)
    assert response.status_code == 415


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
def test_A7_json_is_json_with_parameters_and_in_any_case(content_type, client):
    response = client.http.post("/mcp", json.dumps(PING), content_type=content_type, headers=client.headers)
    assert response.status_code == 200


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0, text/event-stream;q=0", "image/*"])
def test_A8_a_client_that_takes_neither_type_is_told(accept, client):
    assert post(client, Accept=accept).status_code == 406


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/event-stream, application/json", "application/*"])
def test_A8_anything_that_admits_json_is_served(accept, client):
    assert post(client, Accept=accept).status_code == 200


def test_B41_an_encoded_body_is_refused_and_never_inflated(client):
    assert post(client, **{"Content-Encoding": "gzip"}).status_code == 415


@override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=100)
def test_B21_a_body_over_the_bound_is_refused_before_the_token_is_looked_at():
    response = Client().post("/mcp", "x" * 101, content_type="application/json")
    assert response.status_code == 413


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"  ", -32700),
        (b"{", -32700),
        (b"\xff", -32700),
        (b"null", -32600),
        (b"[]", -32600),
        (b"{}", -32600),
        (b"[" * 100_000, -32700),
        (b'{"a":NaN}', -32700),
        (b"{} {}", -32700),
    ],
)
def test_B40_what_is_no_message_gets_400_and_an_error_without_an_id(body, code, client):
    response = post(client, body)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == code
    assert "id" not in response.json()


def test_a_notification_is_accepted_with_an_empty_answer(client):
    response = post(client, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert (response.status_code, response.content) == (202, b"")


def test_A18_no_answer_may_be_cached_sniffed_or_set_a_cookie(client):
    for response in (post(client), Client().get("/mcp")):
        assert response["Cache-Control"] == "no-store"
        assert "Authorization" in response["Vary"]
        assert response["X-Content-Type-Options"] == "nosniff"
        assert not response.cookies


@override_settings(MCP_DJANGO=MCP | {"RATES": {"calls": "2/h"}})
def test_H153_a_caller_over_the_rate_is_told_when_to_come_back(client):
    assert [post(client).status_code for _ in range(3)] == [200, 200, 429]
    assert int(post(client)["Retry-After"]) > 0


def test_J179_a_missing_scope_is_a_challenge_with_all_that_are_needed():
    client = MCPClient(make_superuser(), scopes=["mcp:read"])
    response = client.send("tools/call", {"name": "create_record", "arguments": {}})
    assert response.status_code == 403
    assert 'error="insufficient_scope"' in response["WWW-Authenticate"]
    assert 'scope="mcp:read mcp:write"' in response["WWW-Authenticate"]


def test_J186_hooks_see_neither_token_nor_cookie(client):
    seen = {}

    def look(request) -> str:
        """Look at the request."""
        seen.update(request.META, cookies=dict(request.COOKIES))
        return "seen"

    site.add_tool(look, name="look_at_request", read_only=True)
    try:
        client.http.cookies["sessionid"] = "secret"
        client.call("look_at_request")
    finally:
        site.remove_tool("look_at_request")
    assert "HTTP_AUTHORIZATION" not in seen
    assert "HTTP_COOKIE" not in seen
    assert seen["cookies"] == {}


def test_a_deactivated_user_is_refused_with_the_token_they_had(client):
    from django.contrib.auth.models import User

    User.objects.update(is_active=False)
    assert post(client).status_code == 401


@override_settings(MCP_DJANGO=MCP | {"AUTHENTICATION_CLASSES": ["rest_framework.authentication.BasicAuthentication"]})
def test_a_project_may_name_other_authentication_classes():
    make_superuser("root")
    good = {"Authorization": "Basic cm9vdDpyb290"}
    assert Client().post("/mcp", PING, content_type="application/json", headers=good).status_code == 200
    bad = {"Authorization": "Basic cm9vdDp3cm9uZw=="}
    assert Client().post("/mcp", PING, content_type="application/json", headers=bad).status_code == 401


@pytest.mark.parametrize(("error", "status"), [(OperationalError("secret"), 503), (RuntimeError("secret"), 500)])
def test_L206_an_outage_is_answered_in_json_with_an_opaque_id(error, status, client, monkeypatch):
    def fail(*args):
        raise error

    monkeypatch.setattr("mcp_django.oauth.bearer.verify", fail)
    response = post(client)
    assert response.status_code == status
    assert response.json()["error"]["code"] == -32603
    assert "errorId" in response.json()["error"]["data"]
    assert "secret" not in response.text


@pytest.mark.parametrize(
    ("method", "params", "most"),
    [
        ("ping", {}, 1),
        ("tools/list", {}, 1),
        ("tools/call", {"name": "query_records", "arguments": {"model": "testapp.loan", "fields": ["borrower"]}}, 2),
        ("resources/read", {"uri": "django://testapp/tag"}, 2),
    ],
)
def test_token_and_permissions_take_one_query_beside_the_work_itself(method, params, most):
    client = MCPClient(make_user("viewer", "testapp.view_loan", "testapp.view_tag"), version="2025-11-25")
    client.send(method, params)
    with CaptureQueriesContext(connection) as queries:
        response = client.send(method, params)
    assert "result" in response.json()
    assert len(queries) == most


@pytest.mark.parametrize(
    "accept", ["a/b;" * 25_000 + "application/json", ", ".join(["application/json"] * 5_000), '"' + ";" * 100_000 + '"']
)
def test_A16_an_endless_accept_header_is_refused_unread(accept, client):
    assert post(client, Accept=accept).status_code == 406


def test_A16_a_header_that_comes_a_thousand_times_is_no_single_value(client):
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [(b"host", b"testserver")]}
    scope["headers"] += [(b"content-type", b"application/json")] * 1_000
    scope["headers"] += [(b"authorization", client.headers["Authorization"].encode())]
    exchange = StreamableExchange(site, scope)
    assert exchange.front_door() is None
    assert exchange.answer(json.dumps(PING).encode()).status == 415


@pytest.mark.parametrize("header", ["authorization", "mcp-protocol-version", "origin", "content-length"])
def test_a_header_that_decides_something_may_come_once(header, client):
    value = {"authorization": client.headers["Authorization"], "mcp-protocol-version": "2025-11-25"}.get(header, "1")
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [(b"host", b"testserver")]}
    scope["headers"] += [
        (b"content-type", b"application/json"),
        (b"authorization", client.headers["Authorization"].encode()),
    ]
    scope["headers"] += [(header.encode(), value.encode())] * 2
    exchange = StreamableExchange(site, scope)
    response = exchange.guarded(exchange.front_door) or exchange.answer(json.dumps(PING).encode())
    assert response.status in (400, 401, 403)


def test_two_sites_have_their_own_tools_and_a_token_for_one_is_none_for_the_other():
    with override_settings(ROOT_URLCONF="tests.two_sites"):
        root = make_superuser()
        first, second = MCPClient(root), MCPClient(root, path="/mcp/staff")
        assert "query_records" in [tool["name"] for tool in first.tools()]
        assert [tool["name"] for tool in second.tools()] == ["motto"]
        assert second.call("motto").text == "For the staff."
        second.headers["Authorization"] = first.headers["Authorization"]
        assert second.send("tools/list", {}).status_code == 401


def test_18_every_answer_has_the_headers_that_keep_it_private() -> None:
    headers = dict(Response(200, b"{}", headers={"Allow": "POST"}).header_list())
    assert headers == {
        "Cache-Control": "no-store",
        "Vary": "Authorization, Origin",
        "X-Content-Type-Options": "nosniff",
        "Allow": "POST",
        "Content-Type": "application/json",
        "Content-Length": "2",
    }


@pytest.mark.parametrize(("status", "length"), [(202, "0"), (204, None)])
def test_an_answer_without_a_body_has_no_type(status: int, length: str | None) -> None:
    headers = dict(Response(status).header_list())
    assert "Content-Type" not in headers
    assert headers.get("Content-Length") == length


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_was_closed_is_not_a_dead_one():
    assert not _renew_connections()
    connection.close()
    assert not _renew_connections()
