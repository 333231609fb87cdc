import base64
import json
import re
import time
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit
from uuid import UUID

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client, override_settings
from django.utils import timezone
from django.utils.html import escape
from oauth2_provider.models import AccessToken, Application, Grant, RefreshToken

from mcp_django.context import refused_request_log as log
from mcp_django.exceptions import AuthenticationFailed
from mcp_django.models import TokenFacts
from mcp_django.oauth.bearer import verify
from tests.oauth_flow import ORIGIN, REDIRECT_URI, RESOURCE, STATE, Flow, redirected

pytestmark = pytest.mark.django_db
TOKENS_URL = "/oauth/authorized_tokens/"


@pytest.fixture
def flow() -> Flow:
    return Flow()


def test_a_client_registers_gets_consent_a_token_and_another_by_refresh(flow: Flow) -> None:
    answer = redirected(flow.answer())
    assert answer["state"] == STATE
    assert answer["iss"] == ORIGIN
    tokens = flow.exchange(answer["code"]).json()
    assert tokens["token_type"] == "Bearer"
    assert tokens["expires_in"] == 3600
    assert tokens["scope"] == "mcp:read mcp:write"
    user, token = verify(tokens["access_token"], RESOURCE)
    assert user == flow.user
    assert token.client_id == flow.client_id
    again = flow.refresh(tokens["refresh_token"]).json()
    assert verify(again["access_token"], RESOURCE)[0] == flow.user
    with pytest.raises(AuthenticationFailed):
        verify(tokens["access_token"], RESOURCE)


def test_J188_tokens_at_rest_are_hashed(flow: Flow) -> None:
    tokens = flow.tokens()
    assert AccessToken.objects.get().token == ""
    assert RefreshToken.objects.get().token == ""
    assert tokens["access_token"] not in str(list(AccessToken.objects.values()))


# The page


def test_J172_the_consent_page_names_client_host_scopes_and_resource_and_warns_of_loopback(flow: Flow) -> None:
    page = flow.ask()
    text = page.content.decode()
    assert page.status_code == 200
    for part in (
        "Robot",
        "Unverified",
        "127.0.0.1",
        RESOURCE,
        "mcp:read",
        "mcp:write",
        "ada",
        "runs on your own device",
    ):
        assert part in text
    assert "51763" not in page.context["redirect_host"]
    assert 'name="csrfmiddlewaretoken"' in text


def test_J172_the_consent_page_protects_itself_from_frames_scripts_and_caches(flow: Flow) -> None:
    with override_settings(MIDDLEWARE=[item for item in _middleware() if "clickjacking" not in item]):
        page = flow.ask()
    assert page["X-Frame-Options"] == "DENY"
    assert "frame-ancestors 'none'" in page["Content-Security-Policy"]
    assert "default-src 'none'" in page["Content-Security-Policy"]
    assert "form-action" not in page["Content-Security-Policy"]
    assert "no-store" in page["Cache-Control"]


def test_J172_the_consent_form_needs_its_csrf_token_even_without_the_middleware(flow: Flow) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(flow.user)
    with override_settings(MIDDLEWARE=[item for item in _middleware() if "csrf" not in item]):
        answer = browser.post("/oauth/authorize/", flow.query(allow="1", granted="mcp:read"))
    assert answer.status_code == 403
    assert not Grant.objects.exists()


def test_J172_a_client_name_cannot_inject_markup_or_turn_the_text_around(flow: Flow) -> None:
    Application.objects.update(name="<script>x</script>\u202eevil\x07")
    text = flow.ask().content.decode()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "\u202e" not in text
    assert "\x07" not in text


@pytest.mark.parametrize(
    ("name", "shown", "doubts"),
    [
        ("Robot", "Robot", []),
        ("Clаude", "Clаude", ["several alphabets"]),
        ("\u202eedualC", "\ufffdedualC", ["cannot be seen"]),
        ("<b>Сlaude\u200b</b>", "&lt;b&gt;Сlaude\ufffd&lt;/b&gt;", ["cannot be seen", "several alphabets"]),
        ("x" * 255, "x" * 100 + "<", ["very long"]),
    ],
)
def test_a_name_that_lies_is_marked_on_the_pages_for_users(
    flow: Flow, name: str, shown: str, doubts: list[str]
) -> None:
    flow.tokens()
    Application.objects.update(name=name)
    token = AccessToken.objects.get()
    pages = [flow.ask(), flow.browser.get(TOKENS_URL), flow.browser.get(f"{TOKENS_URL}{token.pk}/delete/")]
    for page in pages:
        text = page.content.decode()
        marks = re.findall(r'<p class="notice doubt" role="note">(.*?)</p>', text)
        assert len(marks) == len(doubts)
        assert all(doubt in mark for doubt, mark in zip(doubts, marks, strict=True))
        assert shown in text
        assert name == shown or name not in text


def test_a_product_s_name_is_marked_where_it_comes_from_elsewhere() -> None:
    uri, own = "https://evil.example/cb", "https://claude.ai/api/mcp/auth_callback"
    for registered, asked, is_marked in (((uri,), uri, True), ((own,), own, False), ((own, uri), own, True)):
        flow = Flow(registered=registered)
        Application.objects.filter(client_id=flow.client_id).update(name="Claude")
        text = flow.ask(redirect_uri=asked).content.decode()
        assert ("evil.example does not belong to the makers of that product" in text) is is_marked


def test_a_client_that_administrators_registered_is_not_called_unverified(flow: Flow) -> None:
    Application.objects.update(registration_source="manual")
    assert "Unverified" not in flow.ask().content.decode()


def test_the_host_and_port_of_a_web_client_are_shown() -> None:
    uri = "https://chat.example:8443/cb"
    page = Flow(registered=(uri,)).ask(redirect_uri=uri)
    assert page.context["redirect_host"] == "chat.example:8443"
    assert "runs on your own device" not in page.content.decode()


def test_an_app_scheme_is_shown_and_answered() -> None:
    uri = "cursor://anysphere.cursor-mcp/oauth/callback"
    flow = Flow(registered=(uri,))
    assert flow.ask(redirect_uri=uri).context["redirect_host"] == "cursor://anysphere.cursor-mcp"
    assert flow.answer(redirect_uri=uri)["Location"].startswith(uri + "?code=")


def test_the_user_is_asked_each_time_whatever_the_client_says(flow: Flow) -> None:
    flow.tokens()
    assert flow.ask(approval_prompt="auto").status_code == 200


def test_scopes_that_the_user_unticks_are_not_granted(flow: Flow) -> None:
    tokens = flow.exchange(flow.code(("mcp:read",), scope="mcp:read mcp:write mcp:admin")).json()
    assert tokens["scope"] == "mcp:read"


def test_nothing_ticked_is_a_denial(flow: Flow) -> None:
    assert redirected(flow.answer(()))["error"] == "access_denied"


def test_scopes_beyond_the_request_cannot_be_ticked(flow: Flow) -> None:
    tokens = flow.exchange(flow.code(("mcp:read", "mcp:admin"), scope="mcp:read")).json()
    assert tokens["scope"] == "mcp:read"


def test_a_request_without_scope_asks_for_reading_only(flow: Flow) -> None:
    assert flow.exchange(flow.code(scope=None)).json()["scope"] == "mcp:read"


def test_an_anonymous_user_signs_in_and_comes_back(flow: Flow) -> None:
    get_user_model().objects.update(is_staff=True)
    flow.browser.logout()
    page = flow.ask()
    assert page.status_code == 200
    assert page.context["login"].startswith("/admin/login/?next=/oauth/authorize/%3F")
    sign_in = flow.browser.get(page.context["login"])
    assert sign_in.status_code == 200
    came = flow.browser.post(page.context["login"], {"username": "ada", "password": "pw"})
    assert "to act for you?" in flow.browser.get(came["Location"]).text


@pytest.mark.parametrize("login", ["admin:login", "/accounts/login/", "https://sign-in.example/"])
def test_who_has_to_sign_in_is_told_which_application_asks_whatever_the_login_page(settings: Any, login: str) -> None:
    settings.LOGIN_URL = login
    flow = Flow(registered=(WEB,))
    page = Client().get("/oauth/authorize/", flow.query(redirect_uri=WEB))
    assert '<bdi class="client">Robot</bdi> wants to connect to this site' in page.text
    assert "Sign in to go on." in page.text
    assert "The name is what the application calls itself." in page.text
    assert f'<a class="button primary" rel="next" href="{escape(page.context["login"])}">Sign in</a>' in page.text
    assert "no-store" in page["Cache-Control"]
    assert "frame-ancestors 'none'" in page["Content-Security-Policy"]


def test_the_name_of_an_application_at_sign_in_is_untrusted_text(flow: Flow) -> None:
    Application.objects.update(name="\u202eClaude\n<script>alert(1)</script>")
    page = Client().get("/oauth/authorize/", flow.query())
    assert "&lt;script&gt;" in page.text
    assert "<script" not in page.text
    assert "\u202e" not in page.text
    assert 'class="notice doubt"' in page.text


@pytest.mark.parametrize(
    "changes",
    [
        {"client_id": "gone"},
        {"client_id": "\x00"},
        {"client_id": "https://claude.ai/oauth/metadata.json"},
        {"redirect_uri": "https://evil.example/"},
        {"redirect_uri": "http://["},
        {"redirect_uri": None},
    ],
)
def test_what_is_not_registered_so_has_no_name_at_sign_in(flow: Flow, changes: dict[str, Any]) -> None:
    answer = Client().get("/oauth/authorize/", flow.query(**changes))
    assert answer.status_code == 302
    assert answer["Location"].startswith("/admin/login/?next=")


def test_an_application_that_administrators_registered_has_the_name_that_they_gave_it(flow: Flow) -> None:
    Application.objects.update(registration_source="manual")
    assert "what the application calls itself" not in Client().get("/oauth/authorize/", flow.query()).text


def test_nothing_is_ticked_that_was_not_asked_for_in_words(flow: Flow) -> None:
    page = flow.ask(scope=None)
    assert " checked" not in page.text.partition("</style>")[2]
    assert '<input type="checkbox" name="granted" value="mcp:read" required>' in page.text
    assert "did not say what it needs" in page.text
    asked = flow.ask(scope="mcp:write").text.partition("</style>")[2]
    assert asked.count(" checked") == 1
    assert 'value="mcp:write" checked' in asked
    assert "did not say what it needs" not in asked
    assert 'name="models"' not in asked or 'name="models" checked' not in asked


def test_denying_stands_before_allowing(flow: Flow) -> None:
    page = flow.ask().text
    assert 0 < page.index('name="deny"') < page.index('name="allow"')


def test_another_user_can_sign_in(flow: Flow) -> None:
    response = flow.browser.post("/oauth/authorize/?client_id=x", {"switch": "1"})
    assert response["Location"] == "/admin/login/?next=/oauth/authorize/%3Fclient_id%3Dx"
    assert "_auth_user_id" not in flow.browser.session


# The request


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"resource": "https://evil.example/"}, "invalid_target"),
        ({"resource": ORIGIN}, "invalid_target"),
        ({"resource": RESOURCE + "/admin"}, "invalid_target"),
        ({"resource": RESOURCE + "#x"}, "invalid_target"),
        ({"resource": ""}, "invalid_target"),
        ({"resource": "http://["}, "invalid_target"),
        ({"resource": [RESOURCE, "https://evil.example/"]}, "invalid_target"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge": "x"}, "invalid_request"),
        ({"code_challenge": "x" * 44}, "invalid_request"),
        ({"scope": "offline_access"}, "invalid_scope"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_type": "code id_token"}, "unauthorized_client"),
    ],
)
def test_J173_J175_J185_a_bad_request_is_refused_before_the_page_with_issuer_and_state(
    flow: Flow, changes: dict[str, Any], error: str
) -> None:
    answer = redirected(flow.ask(**changes))
    assert answer["error"] == error
    assert answer["iss"] == ORIGIN
    assert answer["state"] == STATE
    assert not Grant.objects.exists()


@pytest.mark.parametrize(
    ("scope", "granted"),
    [
        ("mcp:read offline_access", "mcp:read"),
        ("openid profile mcp:write mcp:write", "mcp:write"),
        ("  mcp:read   mcp:read ", "mcp:read"),
        ("", "mcp:read"),
        ("  ", "mcp:read"),
    ],
)
def test_unknown_scopes_are_left_out_repeats_too_and_an_empty_one_is_none(flow: Flow, scope: str, granted: str) -> None:
    tokens = flow.tokens(scope=scope)
    assert tokens["scope"] == granted
    refreshed = flow.refresh(tokens["refresh_token"], scope=scope or None)
    assert refreshed.json()["scope"] == granted


def test_where_no_scope_is_known_the_client_is_told_which_there_are(flow: Flow) -> None:
    answer = redirected(flow.ask(scope="offline_access openid"))
    assert answer["error"] == "invalid_scope"
    assert answer["error_description"].endswith("There are: mcp:read mcp:write mcp:admin.")


def test_a_refresh_for_more_is_told_what_it_is_for(flow: Flow) -> None:
    refused = flow.refresh(flow.tokens(scope="mcp:read")["refresh_token"], scope="mcp:read mcp:admin").json()
    assert refused == {"error": "invalid_scope", "error_description": "The refresh token is for mcp:read only."}


@pytest.mark.parametrize(
    ("registered", "sent"),
    [
        ("https://a.example/cb", "https://a.example/cb?x=1"),
        ("https://a.example/cb", "https://a.example/CB"),
        ("https://a.example/cb", "https://u@a.example/cb"),
        ("https://a.example/cb", "https://a.example/cb#f"),
        ("https://a.example/cb", "https://a.example:8443/cb"),
        ("https://a.example/cb", "http://a.example/cb"),
        ("https://a.example/cb", "javascript:alert(1)"),
        ("http://127.0.0.1/cb", "http://localhost/cb"),
        ("http://localhost/cb", "http://127.0.0.1/cb"),
        ("http://localhost/cb", "http://localhost.evil.example/cb"),
    ],
)
def test_J174_another_redirect_uri_is_refused_where_the_user_is(registered: str, sent: str) -> None:
    page = Flow(registered=(registered,)).ask(redirect_uri=sent)
    assert page.status_code == 400
    assert "Location" not in page
    assert sent not in page.content.decode()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_J174_the_port_of_loopback_is_free(host: str) -> None:
    flow = Flow(registered=(f"http://{host}/cb",))
    assert flow.ask(redirect_uri=f"http://{host}:49152/cb").status_code == 200


def test_an_unknown_client_gets_a_page_and_no_redirect(flow: Flow) -> None:
    assert flow.ask(client_id="nobody").status_code == 400


@pytest.mark.parametrize("query", ["client_id=%zz", "client_id=a&client_id=b", "client_id=%00", "%", ""])
def test_a_malformed_query_is_a_bad_request(flow: Flow, query: str) -> None:
    assert flow.browser.get(f"/oauth/authorize/?{query}").status_code == 400


@pytest.mark.parametrize(
    "changes",
    [
        {"client_id": "nobody"},
        {"client_id": ""},
        {"redirect_uri": "https://evil.example/"},
        {"redirect_uri": "javascript:x"},
        {"redirect_uri": "http://["},
        {"resource": "http://["},
    ],
)
def test_a_changed_form_leads_nowhere(flow: Flow, changes: dict[str, str]) -> None:
    for answer in ({"allow": "1", "granted": "mcp:read"}, {"deny": "1"}):
        response = flow.browser.post("/oauth/authorize/", flow.query(**changes, **answer))
        assert response.status_code == 400
    assert not Grant.objects.exists()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"resource": "https://evil.example/"}, "invalid_target"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"code_challenge": ""}, "invalid_request"),
    ],
)
def test_a_form_changed_after_the_page_is_checked_again(flow: Flow, changes: dict[str, str], error: str) -> None:
    response = flow.browser.post("/oauth/authorize/", flow.query(**changes, allow="1", granted="mcp:read"))
    answer = redirected(response)
    assert (answer["error"], answer["iss"], answer["state"]) == (error, ORIGIN, STATE)
    assert not Grant.objects.exists()


def test_J175_a_denial_carries_the_issuer_and_a_planted_one_is_replaced() -> None:
    uri = "https://a.example/cb?iss=https://evil.example&k=v"
    response = Flow(registered=(uri,)).answer(deny=True, redirect_uri=uri)
    assert response["Location"].count("iss=") == 1
    assert "iss=http%3A%2F%2Ftestserver" in response["Location"]
    assert "k=v" in response["Location"]


def test_a_request_without_resource_means_the_only_endpoint(flow: Flow) -> None:
    tokens = flow.exchange(flow.code(resource=None), resource=None).json()
    assert verify(tokens["access_token"], RESOURCE)[0] == flow.user
    assert AccessToken.objects.get().resource == [RESOURCE]


def test_a_slash_a_port_or_case_is_no_other_resource(flow: Flow) -> None:
    tokens = flow.exchange(flow.code(resource=RESOURCE + "/"), resource="HTTP://TestServer:80/mcp").json()
    assert AccessToken.objects.get().resource == [RESOURCE]
    assert flow.refresh(tokens["refresh_token"], resource=RESOURCE + "/").status_code == 200


def test_with_several_endpoints_the_client_must_say_which(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_django.routing.ENDPOINTS.by_path", lambda: {"/mcp": None, "/mcp/admin": None})
    assert redirected(flow.ask(resource=None))["error"] == "invalid_target"
    tokens = flow.tokens()
    assert flow.refresh(tokens["refresh_token"], resource=RESOURCE + "/admin").json()["error"] == "invalid_target"
    with pytest.raises(AuthenticationFailed):
        verify(tokens["access_token"], RESOURCE + "/admin")


# The token endpoint


@pytest.mark.parametrize(
    "grant_type",
    ["password", "client_credentials", "urn:ietf:params:oauth:grant-type:device_code", "implicit", "", None, "x"],
)
def test_J185_other_grants_are_refused(flow: Flow, grant_type: str | None) -> None:
    response = flow.token(grant_type=grant_type, username="ada", password="pw")
    assert response.status_code == 400
    assert response.json()["error"] in ("unsupported_grant_type", "invalid_request")
    assert response["Content-Type"] == "application/json"


@pytest.mark.parametrize("method", ["get", "put", "delete"])
def test_the_token_endpoint_takes_post_only(flow: Flow, method: str) -> None:
    assert getattr(flow.application, method)("/oauth/token/").status_code == 405


@pytest.mark.parametrize("path", ["/oauth/token", "/oauth/revoke_token", "/oauth/register", "/oauth/authorize"])
def test_endpoints_answer_without_their_slash_and_never_redirect_a_post(flow: Flow, path: str) -> None:
    assert flow.application.post(path).status_code != 301
    assert flow.application.post(path + "?%zz").status_code in (302, 400)


@pytest.mark.parametrize("field", ["client_id", "code", "refresh_token", "token"])
@pytest.mark.parametrize("path", ["/oauth/token/", "/oauth/revoke_token/"])
def test_values_that_no_database_holds_are_a_bad_request(flow: Flow, path: str, field: str) -> None:
    for grant_type in ("authorization_code", "refresh_token"):
        sent = {"client_id": flow.client_id, "grant_type": grant_type, field: "a\x00"}
        response = flow.application.post(path, sent)
        assert response.status_code in (200, 400, 401)
    nul = base64.b64encode(b"a\x00:b").decode()
    assert flow.application.post(path, sent, HTTP_AUTHORIZATION=f"Basic {nul}").status_code in (400, 401)


def test_errors_of_the_token_endpoint_are_json_that_nobody_stores(flow: Flow) -> None:
    for response in (flow.exchange("nothing"), flow.exchange(flow.code(), resource="https://evil.example/")):
        assert response.status_code == 400
        assert response["Content-Type"] == "application/json"
        assert response["Cache-Control"] == "no-store"


def test_a_client_revokes_its_tokens(flow: Flow) -> None:
    tokens = flow.tokens()
    revoked = flow.application.post(
        "/oauth/revoke_token/", {"token": tokens["refresh_token"], "client_id": flow.client_id}
    )
    assert revoked.status_code == 200
    assert flow.refresh(tokens["refresh_token"]).status_code == 400
    with pytest.raises(AuthenticationFailed):
        verify(tokens["access_token"], RESOURCE)


def test_another_client_cannot_revoke_them(flow: Flow) -> None:
    tokens = flow.tokens()
    other = Flow(username="bob")
    other.application.post("/oauth/revoke_token/", {"token": tokens["access_token"], "client_id": other.client_id})
    assert verify(tokens["access_token"], RESOURCE)[0] == flow.user


@override_settings(
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.auth.middleware.LoginRequiredMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ]
)
def test_the_flow_works_behind_login_required_middleware_and_csrf_checks() -> None:
    flow = Flow()
    flow.application = Client(enforce_csrf_checks=True)
    tokens = flow.tokens()
    assert flow.refresh(tokens["refresh_token"]).status_code == 200
    flow.browser.logout()
    assert redirected(flow.ask(prompt="none"))["error"] == "login_required"


# The list


def test_users_see_and_remove_their_own_tokens_only(flow: Flow) -> None:
    tokens = flow.tokens()
    row = AccessToken.objects.get()
    assert "Robot" in flow.browser.get("/oauth/authorized_tokens/").text.partition("</style>")[2]
    other = Flow(username="bob")
    assert "Robot" not in other.browser.get("/oauth/authorized_tokens/").text.partition("</style>")[2]
    assert other.browser.post(f"/oauth/authorized_tokens/{row.pk}/delete/").status_code == 404
    assert "Robot" in flow.browser.get(f"/oauth/authorized_tokens/{row.pk}/delete/").content.decode()
    assert flow.browser.post(f"/oauth/authorized_tokens/{row.pk}/delete/").status_code == 302
    assert flow.refresh(tokens["refresh_token"]).status_code == 400
    assert not AccessToken.objects.exists()


def test_a_client_that_refreshes_meanwhile_loses_its_access_all_the_same(flow: Flow) -> None:
    tokens = flow.tokens()
    link = flow.browser.get("/oauth/authorized_tokens/").text.partition('class="button" href="')[2].partition('"')[0]
    for ask in (flow.browser.get, flow.browser.post):
        tokens = flow.refresh(tokens["refresh_token"]).json()
        assert Flow(username="bob").browser.post(link).status_code == 404
        answer = ask(link)
    assert answer.status_code == 302
    assert flow.refresh(tokens["refresh_token"]).status_code == 400
    assert not AccessToken.objects.exists()


@pytest.mark.parametrize("query", ["", "?family=", "?family=None", "?family=x", f"?family={UUID(int=1)}"])
def test_a_link_without_a_family_removes_its_token(flow: Flow, query: str) -> None:
    flow.tokens()
    assert (
        flow.browser.post(f"/oauth/authorized_tokens/{AccessToken.objects.get().pk}/delete/{query}").status_code == 302
    )
    assert not AccessToken.objects.exists()


def test_the_list_needs_a_login() -> None:
    assert Client().get("/oauth/authorized_tokens/").status_code == 302


def test_costs_are_bounded(flow: Flow, django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(6):
        flow.ask()
    code = flow.code()
    with django_assert_max_num_queries(22):
        tokens = json.loads(flow.exchange(code).content)
    with django_assert_max_num_queries(26):
        flow.refresh(tokens["refresh_token"])


def _middleware() -> list[str]:
    from django.conf import settings

    return list(settings.MIDDLEWARE)


def test_an_inactive_user_gets_no_code(flow: Flow) -> None:
    get_user_model().objects.update(is_active=False)
    page = flow.ask()
    assert "wants to connect to this site" in page.text
    assert page.context["login"].startswith("/admin/login/?next=")


# Private-use schemes


@pytest.mark.parametrize("deny", [False, True])
@pytest.mark.parametrize("uri", ["com.example.app:/oauth2redirect", "com.example.app://callback", "zed://mcp/callback"])
def test_an_application_on_the_device_is_gone_back_to_by_its_own_scheme(uri: str, deny: bool) -> None:
    flow = Flow(registered=(uri,))
    page = flow.ask(redirect_uri=uri)
    assert "runs on your own device" in page.content.decode()
    answer = flow.answer(redirect_uri=uri, deny=deny)
    assert answer.status_code == 302
    assert answer["Location"].startswith(f"{uri}?")
    sent = dict(parse_qsl(urlsplit(answer["Location"]).query))
    assert sent["iss"] == ORIGIN
    assert ("error" in sent) is deny
    if not deny:
        assert flow.exchange(sent["code"], redirect_uri=uri).status_code == 200


# Refusals


def test_wrong_secrets_are_tried_so_often_and_no_more(settings: Any) -> None:
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"RATES": {"refusals": "3/h"}}
    flow = Flow()
    tokens = flow.tokens()
    wrong = {"grant_type": "refresh_token", "refresh_token": "x", "client_id": "somebody", "client_secret": "x"}
    answers = [flow.application.post("/oauth/token/", wrong) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [401, 401, 401, 429, 429]
    assert 0 < int(answers[-1]["Retry-After"]) <= 3600
    assert answers[-1].json()["error"] == "temporarily_unavailable"
    assert answers[-1]["Access-Control-Allow-Origin"] == "*"
    # Named in a header, it is the same client; at another address it is another's.
    basic = {"HTTP_AUTHORIZATION": "Basic " + base64.b64encode(b"somebody:x").decode()}
    assert flow.application.post("/oauth/token/", {"grant_type": "refresh_token"}, **basic).status_code == 429
    assert flow.application.post("/oauth/revoke_token/", {"token": "x"}, **basic).status_code == 429
    assert flow.application.post("/oauth/token/", wrong, REMOTE_ADDR="192.0.2.2").status_code == 401
    for _ in range(8):
        tokens = flow.refresh(tokens["refresh_token"]).json()
    assert verify(tokens["access_token"], RESOURCE)[0] == flow.user


def test_wrong_secrets_in_its_name_do_not_lock_the_right_client_out(settings: Any) -> None:
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"RATES": {"refusals": "3/h"}}
    flow = Flow()
    tokens, code = flow.tokens(), flow.code()
    for _ in range(20):
        flow.refresh("x")
    assert flow.refresh("x").status_code == 429
    # Another client's tokens and codes are nobody's key.
    other = Flow(username="bob")
    assert other.application.post("/oauth/token/", {"client_id": flow.client_id, "code": "x"}).status_code == 429
    assert flow.refresh(other.tokens()["refresh_token"]).status_code == 429
    assert flow.exchange(code).status_code == 200
    assert flow.refresh(tokens["refresh_token"]).status_code == 200


def test_a_secret_that_was_right_lately_gets_its_client_past_the_limit(settings: Any) -> None:
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"RATES": {"refusals": "3/h"}}
    application = Application.objects.create(
        name="x", client_type="confidential", client_secret="right", authorization_grant_type="authorization-code"
    )

    def revoke(secret: str) -> int:
        sent = {"client_id": application.client_id, "client_secret": secret, "token": "x"}
        return int(Client().post("/oauth/revoke_token/", sent).status_code)

    assert revoke("right") == 200
    assert [revoke("wrong") for _ in range(20)][-1] == 429
    assert revoke("right") == 200
    assert revoke("wrong") == 429


@pytest.mark.parametrize(
    ("address", "forwarded", "told"),
    [
        ("127.0.0.1", "203.0.113.5", True),
        ("", "203.0.113.5", True),
        ("10.0.0.2", "198.51.100.1, 203.0.113.5", True),
        ("203.0.113.5", "203.0.113.5", False),
        ("8.8.8.8", "203.0.113.5", False),
        ("127.0.0.1", "", False),
    ],
)
def test_where_all_clients_count_as_the_proxy_the_log_says_so(
    settings: Any, caplog: pytest.LogCaptureFixture, address: str, forwarded: str, told: bool
) -> None:
    log._quiet.clear()
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"RATES": {"refusals": "0/h"}}
    sent = {"grant_type": "refresh_token", "refresh_token": "x", "client_id": "c"}
    headers = {"REMOTE_ADDR": address} | ({"HTTP_X_FORWARDED_FOR": forwarded} if forwarded else {})
    assert Client().post("/oauth/token/", sent, **headers).status_code == 429
    assert ("Let the server set REMOTE_ADDR" in caplog.text) is told


def test_an_address_is_refused_five_times_as_often_as_a_client(settings: Any) -> None:
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"RATES": {"refusals": "2/h"}}
    sent = [{"grant_type": "refresh_token", "refresh_token": "x", "client_id": f"c{number}"} for number in range(12)]
    answers = [Client().post("/oauth/token/", params).status_code for params in sent]
    assert answers == [401] * 10 + [429] * 2


def test_refusals_are_not_counted_without_a_rate_or_a_cache(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*args: Any) -> None:
        raise ConnectionError("cache")

    wrong = {"grant_type": "refresh_token", "refresh_token": "x", "client_id": "c"}
    with override_settings(MCP_DJANGO=settings.MCP_DJANGO | {"RATES": {"refusals": None}}):
        assert Client().post("/oauth/token/", wrong).status_code == 401
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"RATES": {"refusals": "0/h"}}
    monkeypatch.setattr("mcp_django.runtime.cache_and_rate_limits.cache.incr", down)
    assert Client().post("/oauth/token/", wrong).status_code == 401


def test_who_is_named_by_half_a_character_is_counted_too(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.MCP_DJANGO = settings.MCP_DJANGO | {"RATES": {"refusals": "2/h"}}
    header, claims = (base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (b"{}", b'{"sub": "\\ud800"}'))
    sent = {"grant_type": "refresh_token", "refresh_token": "x", "client_assertion": f"{header}.{claims}.AA"}
    answers = [Client().post("/oauth/token/", sent).status_code for _ in range(3)]
    assert answers == [401, 401, 429]
    assert "cache" not in caplog.text


@pytest.mark.parametrize("path", ["token", "revoke_token"])
@pytest.mark.parametrize(
    "name", ["client_id", "code", "code_verifier", "refresh_token", "token", "grant_type", "other"]
)
def test_what_is_sent_twice_is_refused_and_spends_nothing(flow: Flow, path: str, name: str) -> None:
    code = flow.code()
    sent: dict[str, Any] = {"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT_URI}
    sent |= {"code_verifier": flow.verifier, "client_id": flow.client_id, "token": code}
    answer = flow.application.post(f"/oauth/{path}/", sent | {name: ["x", sent.get(name, "x")]})
    told = "each parameter" if name == "other" else name
    assert answer.status_code == 400
    assert answer.json() == {"error": "invalid_request", "error_description": f"Send {told} once."}
    assert flow.exchange(code).status_code == 200


@pytest.mark.parametrize("header", ["Basic", "Basic =", "Basic \xff", "Bearer x", "Basic " + "A" * 5000])
def test_any_header_is_counted_as_somebody(header: str) -> None:
    sent = {"grant_type": "refresh_token", "refresh_token": "x"}
    assert Client().post("/oauth/token/", sent, HTTP_AUTHORIZATION=header).status_code in (400, 401)


# What the user must know to decide

WEB = "https://chat.assistant.co.uk/cb"
NOTICE = 'class="notice"'


def web_tokens(flow: Flow) -> Any:
    answer = flow.answer(redirect_uri=WEB)
    code = dict(parse_qsl(urlsplit(answer["Location"]).query))["code"]
    return flow.exchange(code, redirect_uri=WEB).json()


def test_the_page_says_in_numbers_what_is_reached_and_how_long_it_lasts(flow: Flow) -> None:
    flow.user.is_staff = True
    flow.user.save()
    for codename in ("view_author", "view_tag", "change_tag", "delete_tag"):
        flow.user.user_permissions.add(Permission.objects.get(codename=codename))
    page = flow.ask()
    reach = page.context["reach"]
    # Authors, tags, and the history of both.
    assert (reach["models"], reach["changeable"], reach["deletable"]) == (3, 1, 1)
    assert f"Kinds of records: <b>3</b> · Fields: <b>{reach['fields']}</b>" in page.text
    assert "Kinds of records to add or change: <b>1</b> · to delete: <b>1</b>" in page.text
    assert "until it has not been used for 30 days" in page.text
    assert "have to be confirmed each time" in page.text


@pytest.mark.parametrize(("seconds", "words"), [(None, ""), (7200, "2 hours"), (90, "1 minute")])
def test_any_lifetime_is_told_in_words(flow: Flow, settings: Any, seconds: int | None, words: str) -> None:
    settings.OAUTH2_PROVIDER = {**settings.OAUTH2_PROVIDER, "REFRESH_TOKEN_EXPIRE_SECONDS": seconds}
    assert flow.ask().context["unused_for"] == words


def test_a_hook_that_fails_costs_the_numbers_and_not_the_page(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr("mcp_django.oauth.access_page.access_of", fails)
    page = flow.ask()
    assert page.status_code == 200
    assert "Kinds of records" not in page.text


def test_changing_is_not_ticked_where_the_client_asked_for_reading_only(flow: Flow, settings: Any) -> None:
    page = flow.ask(scope="mcp:read")
    assert '<input type="checkbox" name="granted" value="mcp:write" disabled>' in page.text
    assert '<input type="checkbox" name="granted" value="mcp:read" checked>' in page.text
    assert "disabled" not in flow.ask(scope="mcp:admin").text.partition("</style>")[2]
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "READ_ONLY": True}
    assert "mcp:write" not in flow.ask(scope="mcp:read").text.partition("</style>")[2].replace("mcp%3Awrite", "")


def test_the_domain_of_the_redirect_is_set_apart_and_warned_of_by_name() -> None:
    page = Flow(registered=(WEB,)).ask(redirect_uri=WEB)
    assert "chat.<strong>assistant.co.uk</strong>" in page.text
    assert "if you recognise <bdi>assistant.co.uk</bdi>" in page.text
    assert page.text.count(NOTICE) == 1


def test_there_is_one_warning_where_there_is_reason_and_none_where_there_is_none() -> None:
    flow = Flow(registered=(WEB,))
    tokens = web_tokens(flow)
    known = flow.ask(redirect_uri=WEB)
    assert NOTICE not in known.text
    assert "You have allowed this application before" in known.text
    flow.application.post("/oauth/revoke_token/", {"token": tokens["refresh_token"], "client_id": flow.client_id})
    assert flow.ask(redirect_uri=WEB).text.count(NOTICE) == 1
    Application.objects.update(registration_source="manual")
    assert NOTICE not in flow.ask(redirect_uri=WEB).text


def test_a_program_on_the_device_is_warned_of_each_time_as_any_other_can_pass_for_it(flow: Flow) -> None:
    flow.tokens()
    page = flow.ask()
    assert page.text.count(NOTICE) == 1
    assert "runs on your own device" in page.text


def test_what_another_user_allowed_is_unknown_to_this_one() -> None:
    flow = Flow(registered=(WEB,))
    web_tokens(flow)
    flow.browser.force_login(get_user_model().objects.create_user("eve"))
    assert flow.ask(redirect_uri=WEB).text.count(NOTICE) == 1


@pytest.mark.parametrize("changes", [{}, {"redirect_uri": "https://evil.example/"}])
def test_an_application_that_the_database_lost_is_told_to_connect_again(flow: Flow, changes: dict[str, str]) -> None:
    Application.objects.all().delete()
    page = flow.ask(**changes)
    assert page.status_code == 400
    assert "Connect the application again" in page.text
    assert RESOURCE in page.text
    assert "invalid_request" not in page.text
    answer = flow.browser.post("/oauth/authorize/", flow.query(**changes, allow="1", granted="mcp:read"))
    assert answer.status_code == 400
    assert "Connect the application again" in answer.text


def test_a_known_application_with_another_fault_is_not(flow: Flow) -> None:
    page = flow.ask(redirect_uri="https://evil.example/")
    assert "We could not complete this sign-in" in page.text
    assert '<p class="fine" lang="en" dir="ltr">' in page.text


def test_the_list_says_host_scopes_endpoint_and_times(flow: Flow) -> None:
    flow.tokens()
    text = flow.browser.get("/oauth/authorized_tokens/").text
    for part in ("127.0.0.1", "(this computer)", "See the data that you can see", RESOURCE, "none known", "Ends"):
        assert part in text


# Less than all


def test_the_user_chooses_models_and_time_on_the_page(flow: Flow) -> None:
    flow.user.is_superuser = flow.user.is_staff = True
    flow.user.save()
    page = flow.ask()
    for part in (
        'name="models" value="testapp"',
        'name="models" value="testapp.book"',
        '<select id="days" name="days">',
    ):
        assert part in page.text
    fields = flow.query(granted="mcp:read", allow="1", models=["testapp.book", "auth"], days="1")
    tokens = flow.exchange(redirected(flow.browser.post("/oauth/authorize/", fields))["code"]).json()
    _, token = verify(tokens["access_token"], RESOURCE)
    assert token.facts["narrowed_to"] == {"models": ["auth", "testapp.book"]}
    again = flow.refresh(tokens["refresh_token"]).json()
    assert verify(again["access_token"], RESOURCE)[1].facts["narrowed_to"] == {"models": ["auth", "testapp.book"]}
    shown = flow.browser.get("/oauth/authorized_tokens/").text
    assert "testapp.book" in shown


def test_nothing_chosen_narrows_nothing(flow: Flow) -> None:
    facts = verify(flow.tokens()["access_token"], RESOURCE)[1].facts
    assert not {"narrowed_to", "granted_until"} & set(facts)


@pytest.mark.parametrize(
    "changes", [{"models": ["*"]}, {"models": ["a.b.c", "testapp"]}, {"days": "31"}, {"days": "x"}]
)
def test_a_choice_that_was_not_on_the_page_grants_nothing(flow: Flow, changes: dict[str, Any]) -> None:
    answer = flow.browser.post("/oauth/authorize/", flow.query(granted="mcp:read", allow="1", **changes))
    assert answer.status_code == 400
    assert not Grant.objects.exists()


def test_access_ends_when_the_user_chose_whatever_was_refreshed(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = flow.query(granted="mcp:read", allow="1", days="1")
    tokens = flow.exchange(redirected(flow.browser.post("/oauth/authorize/", fields))["code"]).json()
    assert tokens["expires_in"] == 3600
    kept = TokenFacts.objects.latest("created")
    kept.facts["granted_until"] = int(time.time()) + 600
    kept.save()
    again = flow.refresh(tokens["refresh_token"]).json()
    assert 0 < again["expires_in"] <= 600
    ends = AccessToken.objects.get().expires
    assert ends <= timezone.now() + timedelta(seconds=600)
    assert flow.browser.get("/oauth/authorized_tokens/").context["authorized_tokens"][0].until <= ends + timedelta(
        seconds=1
    )
    TokenFacts.objects.filter(pk=AccessToken.objects.get().token_checksum).update(
        facts={**kept.facts, "granted_until": int(time.time()) - 1}
    )
    refused = flow.refresh(again["refresh_token"])
    assert refused.status_code == 400
    assert refused.json()["error"] == "invalid_grant"
    assert not RefreshToken.objects.filter(revoked__isnull=True).exists()


def test_a_time_that_cannot_be_read_is_over(flow: Flow) -> None:
    tokens = flow.tokens()
    for row in TokenFacts.objects.all():
        row.facts["granted_until"] = "soon"
        row.save()
    assert flow.refresh(tokens["refresh_token"]).status_code == 400


# The way back from the login page


def test_a_browser_that_comes_back_without_its_session_is_told_so(
    flow: Flow, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    log._quiet.clear()
    settings.SESSION_COOKIE_PATH = "/admin/"
    browser = Client()
    sent = browser.get("/oauth/authorize/", flow.query())
    back = parse_qs(urlsplit(sent.context["login"]).query)["next"][0]
    answered = browser.get(back)
    assert answered.status_code == 403
    page = answered.content.decode()
    assert "Your sign-in did not reach this page" in page
    assert "Sign in again" in page
    assert "SESSION_COOKIE_PATH" in caplog.text
    flow.browser.cookies[settings.SESSION_COOKIE_NAME]["path"] = "/"
    assert flow.browser.get(back).status_code == 200
    assert "mcp_signed_in" not in flow.answer()["Location"]


def test_a_session_that_the_site_has_lost_is_told_from_a_cookie_that_is_not_sent(
    flow: Flow, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    log._quiet.clear()
    browser = Client()
    browser.cookies[settings.SESSION_COOKIE_NAME] = "of-another-worker"
    answered = browser.get("/oauth/authorize/", flow.query(mcp_signed_in="1"))
    assert answered.status_code == 403
    page = answered.content.decode()
    assert "the site no longer knows your sign-in" in page
    assert "Allow cookies" not in page
    assert "Workers have to share sessions" in caplog.text
    assert "one SECRET_KEY" in caplog.text


def test_a_client_that_would_have_its_user_sign_up_is_told_that_nobody_can(flow: Flow) -> None:
    for browser in (Client(), flow.browser):
        answer = browser.get("/oauth/authorize/", flow.query(prompt="create"))
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


def test_a_client_that_may_ask_nobody_gets_its_answer(flow: Flow) -> None:
    for query in (flow.query(prompt="none"), flow.query(prompt="none", mcp_signed_in="1")):
        assert "login_required" in Client().get("/oauth/authorize/", query)["Location"]
