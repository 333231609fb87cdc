import hashlib
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import RequestFactory
from django.urls import clear_script_prefix, set_script_prefix
from django.utils import timezone
from oauth2_provider.models import AccessToken, Application, set_token_value
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException

from mcp_django.exceptions import AuthenticationFailed
from mcp_django.oauth.bearer import (
    AMBIGUOUS,
    CLOSED,
    NOT_ACTIVE,
    BearerAuthentication,
    ProtectedResource,
    Token,
    verify,
)
from mcp_django.oauth.stored_tokens import create_token
from mcp_django.oauth.token_query import _forget, plannable
from mcp_django.oauth.validator import MCPValidator
from mcp_django.signin import FactName
from tests.oauth_flow import RESOURCE

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

SECRET = "a-token-of-some-length"


class OwnValidator(MCPValidator):
    """What a project might set: it is asked, instead of the plan."""


def make(**changes: Any) -> AccessToken:
    user = get_user_model().objects.create_user("ada", is_active=changes.pop("is_active", True))
    client = Application.objects.create(
        client_id="robot",
        client_type="public",
        authorization_grant_type="authorization-code",
        redirect_uris="https://a/",
    )
    values = {
        "user": user,
        "application": client,
        "scope": "mcp:read",
        "expires": timezone.now() + timedelta(minutes=5),
        "resource": [RESOURCE],
    } | changes
    token = AccessToken(**values)
    set_token_value(token, SECRET)
    token.save()
    return token


def request(header: str | None = f"Bearer {SECRET}", resource: str = RESOURCE, **extra: Any) -> Any:
    headers: Any = {} if header is None else {"HTTP_AUTHORIZATION": header}
    made = RequestFactory().post("/mcp", **headers, **extra)
    made.mcp = SimpleNamespace(resource=resource)  # type: ignore[attr-defined]
    return made


def verdict(asked: Any) -> str:
    try:
        found = BearerAuthentication().authenticate(asked)
    except AuthenticationFailed as failure:
        return "invalid" if failure.invalid else "missing"
    return "none" if found is None else "accepted"


@pytest.fixture(params=["plan", "toolkit"])
def road(request: pytest.FixtureRequest, settings: Any) -> str:
    if request.param == "toolkit":
        settings.OAUTH2_PROVIDER = settings.OAUTH2_PROVIDER | {
            "OAUTH2_VALIDATOR_CLASS": "tests.unit.oauth.test_bearer.OwnValidator"
        }
    assert plannable() is (request.param == "plan")
    return request.param


# Both roads give one verdict


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "accepted"),
        ({"scope": "something:else"}, "accepted"),
        ({"scope": ""}, "accepted"),
        ({"expires": timezone.now() - timedelta(seconds=1)}, "invalid"),
        ({"resource": []}, "invalid"),
        ({"resource": ["http://testserver"]}, "invalid"),
        ({"resource": ["http://testserver/"]}, "invalid"),
        ({"resource": ["http://testserver/mc"]}, "invalid"),
        ({"resource": ["http://testserver/mcp/admin"]}, "invalid"),
        ({"resource": ["http://testserver/mcp//"]}, "invalid"),
        ({"resource": ["http://testserver/%6dcp"]}, "invalid"),
        ({"resource": ["http://testserver/x/../mcp"]}, "invalid"),
        ({"resource": ["http://testserver/MCP"]}, "invalid"),
        ({"resource": ["http://testserver:8000/mcp"]}, "invalid"),
        ({"resource": ["https://testserver/mcp"]}, "invalid"),
        ({"resource": ["http://u@testserver/mcp"]}, "invalid"),
        ({"resource": ["http://testserver/mcp?x"]}, "invalid"),
        ({"resource": ["https://evil.example/mcp"]}, "invalid"),
        ({"resource": ["not a url", "http://["]}, "invalid"),
        ({"resource": ["http://testserver/m\tcp", " http://testserver/mcp", "http://testserver/mcp\n"]}, "invalid"),
        ({"resource": ["http://testserver/mcp/"]}, "accepted"),
        ({"resource": ["HTTP://TESTSERVER:80/mcp"]}, "accepted"),
        ({"resource": ["https://evil.example/", RESOURCE]}, "accepted"),
        ({"is_active": False}, "invalid"),
        ({"user": None}, "invalid"),
        ({"application": None}, "accepted"),
        ({"scope": "oauth2_provider:registration"}, "invalid"),
        ({"scope": "mcp:read oauth2_provider:registration"}, "invalid"),
    ],
)
@pytest.mark.parametrize("hashed", [True, False])
def test_J163_J165_J168_the_table_of_tokens(
    road: str, settings: Any, changes: dict[str, Any], expected: str, hashed: bool
) -> None:
    settings.OAUTH2_PROVIDER = settings.OAUTH2_PROVIDER | {"COMPLIANT_BCP_RFC9700_TOKEN_STORAGE": hashed}
    make(**changes)
    assert verdict(request()) == expected


def test_J163_a_revoked_token_is_refused_at_once(road: str) -> None:
    token = make()
    assert verdict(request()) == "accepted"
    token.revoke()
    assert verdict(request()) == "invalid"


def test_a_user_who_was_deactivated_is_refused_at_once(road: str) -> None:
    make()
    assert verdict(request()) == "accepted"
    get_user_model().objects.update(is_active=False)
    assert verdict(request()) == "invalid"


def test_what_is_accepted_is_the_same_on_both_roads(road: str) -> None:
    row = make(scope="mcp:write own")
    user, token = verify(SECRET, RESOURCE)
    assert user == row.user
    assert type(user) is get_user_model()
    checksum = hashlib.sha256(SECRET.encode()).hexdigest()
    assert token == Token(frozenset({"mcp:read", "mcp:write", "own"}), "robot", row.expires, checksum)


def test_the_user_is_whole(road: str) -> None:
    row = make()
    user, _ = verify(SECRET, RESOURCE)
    fields = [field.attname for field in user._meta.concrete_fields]
    assert {name: getattr(user, name) for name in fields} == {name: getattr(row.user, name) for name in fields}
    assert not user.get_deferred_fields()
    assert user._state.adding is False
    assert not user.has_perm("auth.view_user")  # type: ignore[attr-defined]


def test_one_query(road: str, django_assert_num_queries: Any) -> None:
    make()
    verify(SECRET, RESOURCE)
    with django_assert_num_queries(1):
        verify(SECRET, RESOURCE)


# The header


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, "none"),
        (f"Bearer {SECRET}", "accepted"),
        (f"bearer {SECRET}", "accepted"),
        (f"BEARER   {SECRET} ", "accepted"),
        ("Basic YTpi", "none"),
        (f"BearerX {SECRET}", "none"),
        ("", "invalid"),
        ("   ", "invalid"),
        ("Bearer", "invalid"),
        ("Bearer ", "invalid"),
        ("Bearer nothing", "invalid"),
        (f"Bearer {SECRET},{SECRET}", "invalid"),
        (f"Bearer {SECRET}, Bearer {SECRET}", "invalid"),
        (f"Bearer {SECRET} {SECRET}", "invalid"),
        (f"Bearer\t{SECRET}", "invalid"),
        (f"Bearer {SECRET}\x00", "invalid"),
        (f"Bearer {SECRET}é", "invalid"),
        ("Bearer " + "a" * 10_000, "invalid"),
    ],
)
def test_J163_the_header(header: str | None, expected: str) -> None:
    make()
    assert verdict(request(header)) == expected


@pytest.mark.parametrize("header", ["Bearer " + "a" * 10_000, "Bearer a,b", "Bearer", None])
def test_J163_malformed_credentials_cost_no_query(header: str | None, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        verdict(request(header))


def test_J169_tokens_in_the_query_or_the_body_are_not_looked_at() -> None:
    make()
    assert verdict(request(None, QUERY_STRING=f"access_token={SECRET}")) == "none"
    asked = request(None, data={"access_token": SECRET})
    assert verdict(asked) == "none"


def test_J170_a_session_beside_the_token_changes_nothing() -> None:
    row = make()
    asked = request()
    asked.user = get_user_model().objects.create_user("bob")
    user, _ = BearerAuthentication().authenticate(asked)  # type: ignore[misc]
    assert user == row.user


def test_J165_a_token_for_one_endpoint_is_not_one_for_another() -> None:
    make()
    assert verdict(request(resource="http://testserver/mcp/admin")) == "invalid"
    assert verdict(request(resource="http://testserver/mcp/")) == "accepted"


def test_J187_with_introspection_the_toolkit_is_asked(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.OAUTH2_PROVIDER = settings.OAUTH2_PROVIDER | {
        "RESOURCE_SERVER_INTROSPECTION_URL": "https://as.example/introspect",
        "RESOURCE_SERVER_AUTH_TOKEN": "x",
    }
    user = get_user_model().objects.create_user("ada")
    checksum = hashlib.sha256(SECRET.encode()).hexdigest()

    def introspect(audience: list[str]) -> Callable[..., AccessToken]:
        expires = timezone.now() + timedelta(minutes=1)
        return lambda *args: AccessToken(
            user=user, scope="mcp:read", expires=expires, resource=audience, token_checksum=checksum
        )

    monkeypatch.setattr(MCPValidator, "_get_token_from_authentication_server", introspect([RESOURCE]))
    assert verdict(request()) == "accepted"
    monkeypatch.setattr(MCPValidator, "_get_token_from_authentication_server", introspect([]))
    assert verdict(request()) == "invalid"


# The challenge


METADATA = "http://testserver/.well-known/oauth-protected-resource/mcp"


def test_a_challenge_without_a_token_names_metadata_and_scopes_only() -> None:
    value = ProtectedResource(request(), "/mcp").challenge(["mcp:write", "mcp:read"])
    assert value == f'Bearer resource_metadata="{METADATA}", scope="mcp:read mcp:write"'


def test_J179_a_challenge_for_more_scopes_lists_them_all() -> None:
    scopes = {"mcp:admin", "mcp:read"} | {"own"}
    value = ProtectedResource(request(), "/mcp").challenge(scopes, error="insufficient_scope", description="Need it")
    assert value == (
        f'Bearer resource_metadata="{METADATA}", scope="mcp:read mcp:admin own", error="insufficient_scope", '
        'error_description="Need it"'
    )


def test_a_challenge_cannot_break_out_of_its_header() -> None:
    description = 'x"\r\nSet-Cookie: é\\'
    value = ProtectedResource(request(), "/mcp").challenge([], error="invalid_token", description=description)
    assert value == (f'Bearer resource_metadata="{METADATA}", error="invalid_token", error_description="xSet-Cookie: "')


# What becomes of a token later


def test_a_stored_token_is_good_until_it_is_cut_back_revoked_or_over(road: str) -> None:
    row = make(scope="mcp:read mcp:write")
    found = BearerAuthentication().authenticate(request())
    assert found is not None
    token = found[1]
    assert token.checksum == hashlib.sha256(SECRET.encode()).hexdigest()
    assert token.checksum not in repr(token)
    assert Token.still_good([token]) == {token}
    AccessToken.objects.update(scope="mcp:admin")
    assert Token.still_good([token]) == {token}
    for changes in ({"scope": "mcp:read"}, {"scope": ""}, {"expires": timezone.now() - timedelta(seconds=1)}):
        AccessToken.objects.update(**{"scope": "mcp:write", "expires": row.expires} | changes)
        assert Token.still_good([token]) == set()
    AccessToken.objects.update(scope="mcp:write", expires=row.expires)
    assert Token.still_good([token]) == {token}
    row.revoke()
    assert Token.still_good([token]) == set()


def resumed(user: Any, checksum: str, scope: str = "mcp:read") -> Any:
    """The request of a link that the user got, None where it is refused."""
    asked = request(None)
    try:
        ProtectedResource(asked, "/mcp").resume(user, frozenset({scope}), checksum)
    except AuthenticationFailed:
        return None
    return asked


def test_a_link_acts_as_the_user_of_a_token_while_the_token_is_good() -> None:
    user = get_user_model().objects.create_user("ada", password="first")
    row, _ = create_token(user, scopes=["mcp:read"], resources=[RESOURCE], facts={"badge": 1})
    asked = resumed(user, row.token_checksum)
    assert (asked.user, asked.mcp.scopes, asked.mcp.resource) == (user, frozenset({"mcp:read"}), RESOURCE)
    assert asked.mcp.facts["badge"] == 1
    assert resumed(user, row.token_checksum, "mcp:write") is None
    user.set_password("second")
    assert resumed(user, row.token_checksum) is None
    user.refresh_from_db()
    assert resumed(user, row.token_checksum) is not None
    row.revoke()
    assert resumed(user, row.token_checksum) is None


def test_a_link_that_was_made_without_a_token_has_no_facts() -> None:
    user = get_user_model().objects.create_user("ada")
    assert resumed(user, "").mcp.facts == {}


def test_a_token_that_is_not_stored_is_good_until_it_is_over() -> None:
    scopes, now = frozenset({"mcp:read"}), timezone.now()
    tokens = [Token(scopes, "robot", now + timedelta(seconds=seconds)) for seconds in (60, -60)]
    assert Token.still_good(tokens) == {tokens[0]}
    assert Token.still_good([]) == set()


def test_many_tokens_are_looked_up_together(django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    later = timezone.now() + timedelta(minutes=1)
    tokens = [Token(frozenset(), "robot", later, checksum=f"{number:064}") for number in range(10)]
    make()
    found = BearerAuthentication().authenticate(request())
    assert found is not None
    with django_assert_num_queries(1):
        assert Token.still_good([*tokens, found[1]]) == {found[1]}
    monkeypatch.setattr("mcp_django.oauth.bearer.QUERY", 4)
    with django_assert_num_queries(3):
        assert Token.still_good([*tokens, found[1]]) == {found[1]}


def test_a_validator_that_keeps_tokens_elsewhere_gives_one_without_a_checksum(settings: Any) -> None:
    settings.OAUTH2_PROVIDER = settings.OAUTH2_PROVIDER | {
        "OAUTH2_VALIDATOR_CLASS": "tests.unit.oauth.test_bearer.ElsewhereValidator"
    }
    make()
    _, token = verify(SECRET, RESOURCE)
    assert token.checksum == ""


class ElsewhereValidator(MCPValidator):
    """Makes tokens of what another server says, and stores none."""

    def validate_bearer_token(self, token: str, scopes: Any, request: Any) -> bool:
        row = AccessToken.objects.get()
        row.pk = None
        request.access_token = row
        return True


class Unparsable(MCPValidator):
    """Stores something that is no list of URLs."""

    def validate_bearer_token(self, token: str, scopes: Any, request: Any) -> bool:
        raise ValueError(token)


def test_a_stored_resource_that_cannot_be_read_is_no_endpoint(settings: Any) -> None:
    settings.OAUTH2_PROVIDER = settings.OAUTH2_PROVIDER | {
        "OAUTH2_VALIDATOR_CLASS": "tests.unit.oauth.test_bearer.Unparsable"
    }
    make()
    assert verdict(request()) == "invalid"


# The project's own classes


class Refusing(BaseAuthentication):
    def authenticate(self, request: Any) -> Any:
        raise APIException("Not today.", "closed")


class Silent(BaseAuthentication):
    def authenticate(self, request: Any) -> Any:
        return None


class Knowing(BaseAuthentication):
    def authenticate(self, request: Any) -> Any:
        return get_user_model().objects.get(username=request.META["HTTP_X_USER"]), "no token of ours"


def refused(asked: Any) -> AuthenticationFailed:
    with pytest.raises(AuthenticationFailed) as caught:
        ProtectedResource(asked, "/mcp").authenticate()
    return caught.value


@pytest.fixture
def with_classes(settings: Any) -> Callable[..., None]:
    def use(*classes: type) -> None:
        names = [f"{found.__module__}.{found.__qualname__}" for found in classes]
        settings.MCP_DJANGO = settings.MCP_DJANGO | {"AUTHENTICATION_CLASSES": names}

    return use


def test_a_class_that_refuses_is_not_followed_by_another(with_classes: Callable[..., None]) -> None:
    with_classes(Refusing, BearerAuthentication)
    make()
    failure = refused(request())
    assert failure.invalid
    assert "Refusing refuses the credentials: closed" in str(failure.reason)


def test_a_caller_whom_no_class_knows_is_refused(with_classes: Callable[..., None]) -> None:
    with_classes(Silent)
    assert refused(request()).invalid
    assert not refused(request(None)).invalid


def test_a_user_of_another_class_has_all_scopes_and_has_to_be_active(with_classes: Callable[..., None]) -> None:
    with_classes(Silent, Knowing)
    user = get_user_model().objects.create_user("ada")
    asked = request(None, HTTP_X_USER="ada")
    ProtectedResource(asked, "/mcp").authenticate()
    assert asked.user == user
    assert asked.mcp.scopes == {"mcp:read", "mcp:write", "mcp:admin"}
    assert (asked.mcp.client_id, asked.mcp.facts, asked.mcp.resource) == ("", {}, RESOURCE)
    get_user_model().objects.update(is_active=False)
    assert refused(request(None, HTTP_X_USER="ada")).reason is NOT_ACTIVE


def test_without_a_class_everybody_is_a_stranger(with_classes: Callable[..., None]) -> None:
    with_classes()
    asked = request()
    ProtectedResource(asked, "/mcp").authenticate()
    assert asked.user.is_anonymous


def test_a_prefix_that_makes_one_endpoint_of_another_is_refused(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.unit.test_asgi"
    set_script_prefix("/front")
    try:
        assert refused(request()).reason is AMBIGUOUS
    finally:
        clear_script_prefix()


def test_an_endpoint_says_where_its_tokens_come_from() -> None:
    endpoint = ProtectedResource(request(HTTP_HOST="localhost"), "/mcp")
    assert endpoint.url == RESOURCE
    assert endpoint.other_origin == "http://localhost"
    assert ProtectedResource(request(), "/mcp").other_origin is None
    assert endpoint.origin == "http://testserver"
    metadata = "http://testserver/.well-known/oauth-protected-resource/mcp"
    told = f'Bearer resource_metadata="{metadata}", scope="mcp:read", error="invalid_token"'
    assert endpoint.challenge(["mcp:read"], error="invalid_token") == told


# Facts of a token


def test_a_token_of_a_service_account_that_is_gone_is_refused(road: str) -> None:
    user = get_user_model().objects.create_user("ada")
    _, raw = create_token(user, scopes=["mcp:read"], resources=[RESOURCE], facts={FactName.SERVICE_ACCOUNT: 999})
    with pytest.raises(AuthenticationFailed) as caught:
        verify(raw, RESOURCE)
    assert caught.value.reason is CLOSED


def test_facts_in_another_database_than_the_tokens_are_read_by_a_query_of_their_own(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    user = get_user_model().objects.create_user("ada")
    _, raw = create_token(user, scopes=["mcp:read"], resources=[RESOURCE], facts={"badge": 7})
    monkeypatch.setattr("mcp_django.oauth.token_query.beside_tokens", lambda: False)
    _forget()
    try:
        with django_assert_num_queries(2):
            assert verify(raw, RESOURCE)[1].facts["badge"] == 7
    finally:
        _forget()
