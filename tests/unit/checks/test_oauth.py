from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.urls import clear_script_prefix, get_urlconf, include, path, re_path, set_script_prefix

from mcp_django import MCPSite, ModelExposure, site
from mcp_django.checks import oauth as oauth_checks
from mcp_django.checks.oauth import (
    CHECKS,
    DEPLOYMENT_CHECKS,
    TOOLKIT_RULES,
    check_proxy,
    check_session_cookie,
)
from mcp_django.oauth.bearer import BearerAuthentication
from mcp_django.oauth.toolkit_settings import provider_settings
from mcp_django.signin import OTPDevice, SignInFact
from mcp_django.sites import HISTORY
from tests.testapp.models import Author
from tests.tls_server import Authority

# A URLconf with an endpoint and nothing else.
urlpatterns = [path("mcp", site.urls)]
BASE_URL = "https://shop.example"
CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1"}}
# A value that the rule must find, for each setting.
UNSAFE: dict[str, Any] = {
    "PKCE_REQUIRED": lambda client_id: True,
    "REFRESH_TOKEN_EXPIRE_SECONDS": None,
    "ALLOW_URI_WILDCARDS": True,
    "DEFAULT_SCOPES": ["__all__"],
    "REQUEST_APPROVAL_PROMPT": "auto",
    "ACCESS_TOKEN_EXPIRE_SECONDS": 10**6,
    "AUTHORIZATION_CODE_EXPIRE_SECONDS": 3600,
    "DCR_ENABLED": True,
    "OIDC_ENABLED": True,
}


@pytest.fixture(autouse=True)
def production(settings: Any) -> None:
    settings.DEBUG = False
    settings.CACHES = CACHES
    settings.ALLOWED_HOSTS = ["shop.example"]
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    configure(settings)


def configure(settings: Any, *, mcp: dict[str, Any] | None = None, **provider: Any) -> None:
    settings.MCP_DJANGO = {"BASE_URL": BASE_URL} | (mcp or {})
    settings.OAUTH2_PROVIDER = provider_settings(base_url=BASE_URL, **provider)


def found() -> list[str]:
    messages = [message for check in CHECKS for message in check(app_configs=None)]
    assert all(message.hint for message in messages)
    return [message.id or "" for message in messages]


def test_the_settings_that_the_app_gives_pass() -> None:
    assert found() == []


@pytest.mark.parametrize(("number", "name"), [(rule[0], rule[1]) for rule in TOOLKIT_RULES])
def test_J189_each_unsafe_setting_of_the_toolkit_is_an_error(settings: Any, number: int, name: str) -> None:
    configure(settings, **{name: UNSAFE.get(name, False)})
    assert found() == [f"mcp_django.E{number}"]
    settings.DEBUG = True
    assert found() == [f"mcp_django.W{number}"]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("DEFAULT_SCOPES", ["mcp:read", "mcp:write"], ["mcp_django.E121"]),
        ("DEFAULT_SCOPES", ["mcp:admin"], ["mcp_django.E121"]),
        ("REFRESH_TOKEN_EXPIRE_SECONDS", 10 * 365 * 86_400, ["mcp_django.E119"]),
        ("REFRESH_TOKEN_EXPIRE_SECONDS", timedelta(days=3650), ["mcp_django.E119"]),
        ("REFRESH_TOKEN_EXPIRE_SECONDS", timedelta(days=90), []),
    ],
)
def test_J189_what_is_too_much_is_an_error_too(settings: Any, name: str, value: Any, expected: list[str]) -> None:
    configure(settings, **{name: value})
    assert found() == expected


def test_J189_the_toolkits_own_defaults_are_not_safe(settings: Any) -> None:
    settings.OAUTH2_PROVIDER = {}
    assert len([one for one in found() if one.startswith("mcp_django.E")]) > 10


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        (None, "mcp_django.E101"),
        ("", "mcp_django.E101"),
        ("shop.example", "mcp_django.E102"),
        ("https://shop.example/app", "mcp_django.E102"),
        ("https://u@shop.example", "mcp_django.E102"),
        ("ftp://shop.example", "mcp_django.E102"),
        ("http://shop.example", "mcp_django.W103"),
    ],
)
def test_J189_the_base_url(settings: Any, base: str | None, expected: str) -> None:
    configure(settings, mcp={"BASE_URL": base}, OIDC_ISS_ENDPOINT="")
    assert found() == [expected]


def test_the_base_url_may_be_missing_while_developing(settings: Any) -> None:
    settings.DEBUG = True
    configure(settings, mcp={"BASE_URL": None})
    assert found() == []


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ({"OAUTH2_VALIDATOR_CLASS": "oauth2_provider.oauth2_validators.OAuth2Validator"}, "mcp_django.E105"),
        ({"OIDC_ISS_ENDPOINT": "https://other.example"}, "mcp_django.E107"),
        ({"CIMD_ENABLED": True}, "mcp_django.E108"),
        ({"ALLOW_LOCALHOST_LOOPBACK": False}, "mcp_django.W109"),
    ],
)
def test_the_toolkit_must_work_by_the_apps_rules(settings: Any, provider: dict[str, Any], expected: str) -> None:
    configure(settings, **provider)
    assert found() == [expected]


def test_an_authorization_server_keeps_its_scopes_and_needs_those_of_mcp(settings: Any) -> None:
    configure(settings, SCOPES={"read": "x"}, DEFAULT_SCOPES=["read"])
    assert found() == []
    assert settings.OAUTH2_PROVIDER["SCOPES"].keys() == {"read", "mcp:read", "mcp:write", "mcp:admin"}
    settings.OAUTH2_PROVIDER = settings.OAUTH2_PROVIDER | {"SCOPES": {"read": "x"}}
    assert found() == ["mcp_django.E106"]
    # Who names some of MCP's leaves out the others.
    configure(settings, SCOPES={"mcp:read": "x"})
    assert settings.OAUTH2_PROVIDER["SCOPES"] == {"mcp:read": "x"}


def test_the_toolkit_must_be_installed(settings: Any) -> None:
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "oauth2_provider"]
    assert found() == ["mcp_django.E104"]


@pytest.mark.parametrize(
    ("mcp", "expected"),
    [
        ({"REGISTRATION": "off", "RATES": {"registrations": None}}, []),
        ({"RATES": {"registrations": None}}, ["mcp_django.E131"]),
    ],
)
def test_registration(settings: Any, mcp: dict[str, Any], expected: list[str]) -> None:
    configure(settings, mcp=mcp)
    assert found() == expected


def test_a_cache_of_one_process_does_not_limit_all(settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    assert found() == ["mcp_django.W133"]


@pytest.mark.parametrize(
    ("engine", "alias", "expected"),
    [
        ("cache", "local", ["mcp_django.W158"]),
        ("cache", "default", []),
        ("cached_db", "local", []),
        ("db", "local", []),
    ],
)
def test_sessions_that_other_workers_do_not_know_are_named(
    settings: Any, engine: str, alias: str, expected: list[str]
) -> None:
    settings.CACHES = {**CACHES, "local": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    settings.SESSION_ENGINE = f"django.contrib.sessions.backends.{engine}"
    settings.SESSION_CACHE_ALIAS = alias
    assert found() == expected
    settings.DEBUG = True
    assert "mcp_django.W158" not in found()


def test_documents_must_be_at_the_root_and_the_login_page_must_exist(settings: Any) -> None:
    settings.ROOT_URLCONF = __name__
    settings.LOGIN_URL = "/accounts/login/"
    assert found() == ["mcp_django.W140", "mcp_django.W141"]
    settings.LOGIN_URL = "https://login.example/"
    assert found() == ["mcp_django.W140"]


@pytest.mark.parametrize(
    ("login", "expected"),
    [
        ("admin:login", []),
        ("/sub/admin/login/", []),
        ("/admin/login/", ["mcp_django.W141"]),
        ("/subway/login/", ["mcp_django.W141"]),
    ],
)
def test_a_project_below_a_path_has_its_login_page_there(settings: Any, login: str, expected: list[str]) -> None:
    settings.LOGIN_URL = login
    set_script_prefix("/sub")
    try:
        assert found() == expected
    finally:
        clear_script_prefix()


@pytest.mark.parametrize(
    ("login", "urlconf", "hint"),
    [
        ("/accounts/login/", "tests.urls", 'Set LOGIN_URL = "admin:login".'),
        ("login", "tests.urls", 'Set LOGIN_URL = "admin:login".'),
        ("admin:login", __name__, "No login page was found."),
        ("/nowhere/", __name__, "No login page was found."),
    ],
)
def test_only_a_login_page_that_is_there_is_proposed(settings: Any, login: str, urlconf: str, hint: str) -> None:
    settings.LOGIN_URL, settings.ROOT_URLCONF = login, urlconf
    [message] = [message for check in CHECKS for message in check() if message.id == "mcp_django.W141"]
    assert message.hint is not None
    assert message.hint.startswith(hint)


def test_a_urlconf_without_an_endpoint_needs_nothing_and_those_that_are_named_do(settings: Any) -> None:
    settings.ROOT_URLCONF = "django.contrib.auth.urls"
    settings.LOGIN_URL = "login"
    assert found() == []
    configure(settings, mcp={"URLCONFS": ["tests.urls"]})
    settings.LOGIN_URL = "admin:login"
    assert found() == []
    configure(settings, mcp={"URLCONFS": [__name__]})
    assert found() == ["mcp_django.W140", "mcp_django.W141"]
    assert get_urlconf() is None


def test_an_endpoint_with_other_authentication_is_left_alone(settings: Any) -> None:
    settings.OAUTH2_PROVIDER = {}
    settings.MCP_DJANGO = {"AUTHENTICATION_CLASSES": [], "BASE_URL": "https://shop.example"}
    assert found() == []


def test_an_endpoint_without_its_url_is_an_error_whatever_signs_clients_in(settings: Any) -> None:
    settings.MCP_DJANGO = {"AUTHENTICATION_CLASSES": []}
    assert found() == ["mcp_django.E101"]


def test_the_cimd_fetcher_of_a_project_is_its_own_business(settings: Any) -> None:
    configure(settings, CIMD_ENABLED=True, CIMD_METADATA_FETCHER="tests.unit.checks.test_oauth.Fetcher")
    assert found() == []


class Fetcher:
    """A fetcher that is not the toolkit's."""


# What is kept of a sign-in


class Nameless(SignInFact):
    """A fact without a name."""


class Reserved(SignInFact):
    name = "credential"


class Unlike(admin.AdminSite):
    """An admin whose permission looks for a session."""

    def has_permission(self, request: Any) -> bool:
        return bool(request.session["door"])


class Counting(admin.AdminSite):
    """An admin whose permission is a query, which no check may make."""

    def has_permission(self, request: Any) -> bool:
        return request.user.groups.filter(name="door").exists()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "value", [["mcp_django.nothing"], [Nameless], [Reserved], [dict], ["mcp_django.decorators.tool"]]
)
def test_a_fact_that_is_none_is_named(settings: Any, value: Any) -> None:
    configure(settings, mcp={"SIGN_IN_FACTS": value})
    assert found() == ["mcp_django.E143"]


@pytest.mark.parametrize(("kind", "expected"), [(Unlike, ["mcp_django.W144"]), (Counting, []), (admin.AdminSite, [])])
def test_an_admin_that_looks_for_a_session_is_named(
    settings: Any, monkeypatch: pytest.MonkeyPatch, kind: Any, expected: list[str]
) -> None:
    monkeypatch.setattr(oauth_checks, "mounted", lambda: [MCPSite("own", admin_site=kind("own"))])
    assert found() == expected


class Badge(SignInFact):
    name = "badge"

    def restore(self, request: Any, value: Any) -> None:
        request.badge = value


@pytest.mark.parametrize(
    ("facts", "expected"), [([OTPDevice], ["mcp_django.W144"]), ([OTPDevice, Badge], ["mcp_django.W145"])]
)
def test_a_fact_of_the_projects_own_is_taken_to_be_what_the_admin_asks_for(
    settings: Any, monkeypatch: pytest.MonkeyPatch, facts: list[Any], expected: list[str]
) -> None:
    configure(settings, mcp={"SIGN_IN_FACTS": facts})
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if name != oauth_checks.OTP_MIDDLEWARE]
    closed = type("Closed", (admin.AdminSite,), {"has_permission": lambda self, request: False})
    monkeypatch.setattr(oauth_checks, "mounted", lambda: [MCPSite("own", admin_site=closed("own"))])
    assert found() == expected


# Refusals


def test_refusals_without_a_rate_are_named(settings: Any) -> None:
    configure(settings, mcp={"RATES": {"refusals": None}, "REGISTRATION": "off"})
    assert found() == ["mcp_django.E147"]


# What was silent


def test_a_cache_of_one_process_is_named_without_registration_too(settings: Any) -> None:
    configure(settings, mcp={"REGISTRATION": "off"})
    for backend in ("locmem.LocMemCache", "dummy.DummyCache"):
        settings.CACHES = {"default": {"BACKEND": f"django.core.cache.backends.{backend}"}}
        assert found() == ["mcp_django.W133"]


@pytest.mark.parametrize("scheme", ["javascript", "JavaScript", "data", "file"])
def test_a_scheme_that_a_browser_runs_is_named(settings: Any, scheme: str) -> None:
    configure(settings, ALLOWED_REDIRECT_URI_SCHEMES=["https", "http", scheme])
    assert found() == ["mcp_django.E148"]


@pytest.mark.parametrize("prefix", ["o/", "accounts/oauth/", "any/where/"])
def test_the_toolkits_introspection_is_found_at_any_path(settings: Any, prefix: str) -> None:
    module = ModuleType("urls_with_introspection")
    own = include(("oauth2_provider.urls", "oauth2_provider"))
    module.urlpatterns = [path("", include("tests.urls")), path(prefix, own)]  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = module
    assert found() == ["mcp_django.W142"]


class Derived(BearerAuthentication):
    """What a project makes of the app's class."""


@pytest.mark.parametrize("named", [Derived, f"{__name__}.Derived", "mcp_django.oauth.bearer.BearerAuthentication"])
def test_a_class_derived_from_the_apps_silences_nothing(settings: Any, named: Any) -> None:
    configure(settings, mcp={"AUTHENTICATION_CLASSES": [named]}, PKCE_REQUIRED=False)
    assert found() == ["mcp_django.E116"]


@pytest.mark.parametrize("named", ["rest_framework.authentication.TokenAuthentication", "nowhere.Nothing"])
def test_other_authentication_has_no_checks_of_oauth(settings: Any, named: str) -> None:
    configure(settings, mcp={"AUTHENTICATION_CLASSES": [named]}, PKCE_REQUIRED=False)
    assert found() == []


# Hosts, proxies, scopes and who can sign in


@pytest.mark.parametrize(
    ("base", "hosts", "expected"),
    [
        ("https://shop.example", ["shop.example"], []),
        ("https://shop.example:8443", [".example"], []),
        ("https://shop.example", ["*"], []),
        ("https://shop.example", ["127.0.0.1"], ["mcp_django.W127"]),
        ("https://shop.example", [], ["mcp_django.W127"]),
        ("http://[::1]:8000", ["[::1]"], []),
        ("http://127.0.0.1:8000", ["localhost"], ["mcp_django.W127"]),
    ],
)
def test_the_host_of_the_base_url_is_one_that_django_answers(
    settings: Any, base: str, hosts: list[str], expected: list[str]
) -> None:
    settings.ALLOWED_HOSTS = hosts
    configure(settings, mcp={"BASE_URL": base}, OIDC_ISS_ENDPOINT="")
    assert found() == expected


@pytest.mark.parametrize("base", ["http://127.0.0.1:8000", "http://localhost:8000", "http://[::1]:8000"])
def test_while_developing_django_answers_its_own_hosts(settings: Any, base: str) -> None:
    settings.DEBUG, settings.ALLOWED_HOSTS = True, []
    configure(settings, mcp={"BASE_URL": base}, OIDC_ISS_ENDPOINT="")
    assert found() == []


def deployment() -> list[str]:
    return [message.id or "" for check in DEPLOYMENT_CHECKS for message in check(app_configs=None)]


def test_https_behind_a_proxy_needs_its_header(settings: Any) -> None:
    assert "mcp_django.W128" not in found()
    settings.SECURE_PROXY_SSL_HEADER = None
    assert "mcp_django.W128" in found()
    settings.DEBUG = True
    assert "mcp_django.W128" not in found()
    settings.SECURE_SSL_REDIRECT = True
    (message,) = check_proxy()
    assert "forever" in message.msg
    configure(settings, mcp={"BASE_URL": "http://shop.example"})
    assert "mcp_django.W128" not in found()


def test_a_page_for_staff_alone_is_named_where_others_are_meant(settings: Any) -> None:
    own = MCPSite("own")
    settings.ROOT_URLCONF = (path("mcp", own.urls), path("admin/", admin.site.urls))
    assert "mcp_django.I135" not in deployment()
    own.register(Author, fields=["name"])
    # As the admin describes it.
    assert "mcp_django.I135" not in deployment()
    own.unregister(Author)
    # What the admin's models bring, the history too, is for its staff.
    shown = MCPSite("shown", admin_site=admin.site)
    assert any(exposure.label == HISTORY for exposure in shown.exposures.values())
    settings.ROOT_URLCONF = (path("mcp", shown.urls), path("own", own.urls), path("admin/", admin.site.urls))
    assert "mcp_django.I135" not in deployment()
    own.register(Author, ModelExposure, fields=["name"])
    assert "mcp_django.I135" in deployment()
    settings.LOGIN_URL = "https://login.example/"
    assert "mcp_django.I135" not in deployment()


def test_a_scope_that_no_client_can_get_is_named(settings: Any, tools: Any) -> None:
    def revenue(request: Any, year: int) -> int:
        """Revenue."""
        return year

    tools(revenue, scopes=["mcp:raed"])
    (message,) = [message for check in CHECKS for message in check() if message.id == "mcp_django.E134"]
    assert "Did you mean 'mcp:read'?" in str(message.hint)


def test_such_a_scope_of_a_prompt_or_a_resource_is_named_too(settings: Any) -> None:
    def report(request: Any) -> str:
        """Report."""
        return ""

    site.add_prompt(report, scopes=["mcp:raed"])
    site.add_resource("shop://report", report, scopes=["mcp:raed"])
    try:
        messages = [message.msg for check in CHECKS for message in check() if message.id == "mcp_django.E134"]
    finally:
        site.remove_prompt("report")
        site.remove_resource("shop://report")
    assert [text.split("'")[0] for text in messages] == ["The prompt ", "The resource "]


def test_a_toolkit_without_settings_is_one_finding(settings: Any) -> None:
    del settings.OAUTH2_PROVIDER
    assert found() == ["mcp_django.E129"]


@pytest.mark.parametrize("first", [re_path("^.*$", lambda request: None), path("", include("oauth2_provider.urls"))])
def test_the_documents_of_somebody_else_are_none(settings: Any, first: Any) -> None:
    settings.ROOT_URLCONF = (path("mcp", site.urls), path("admin/", admin.site.urls), first)
    assert "mcp_django.W140" in found()


def test_documents_of_clients_have_a_limit(settings: Any) -> None:
    configure(settings, mcp={"RATES": {"documents": None}})
    assert found() == ["mcp_django.E152"]
    configure(settings, mcp={"RATES": {"documents": None}, "CLIENT_DOCUMENTS": {"hosts": "off"}})
    assert found() == []


@pytest.mark.parametrize("text", [None, "", "no certificate"])
def test_the_file_of_authorities_has_certificates(settings: Any, tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "authority.pem"
    if text is not None:
        file.write_text(text)
    configure(settings, mcp={"CLIENT_DOCUMENTS": {"ca": str(file)}})
    assert found() == ["mcp_django.E153"]
    configure(settings, mcp={"CLIENT_DOCUMENTS": {"ca": str(Authority(tmp_path).path)}})
    assert found() == []


# Identity providers

PROVIDER = {"issuer": "https://login.example", "jwks_uri": "https://login.example/jwks", "clients": ["claude"]}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([PROVIDER], []),
        ([PROVIDER, {**PROVIDER, "issuer": "https://other.example"}], []),
        ([{**PROVIDER, "link": "email", "create": True}], []),
        ([PROVIDER, {**PROVIDER, "clients": ["cursor"]}], ["mcp_django.E154"]),
    ],
)
def test_an_issuer_is_set_up_once(settings: Any, entries: list[dict[str, Any]], expected: list[str]) -> None:
    configure(settings, mcp={"IDENTITY_PROVIDERS": entries})
    assert found() == expected


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({}, []),
        ({"link": "subject"}, []),
        ({"link": "email"}, ["mcp_django.E155"]),
        ({"create": True}, ["mcp_django.E156"]),
        ({"link": "email_staff", "create": True}, ["mcp_django.E155", "mcp_django.E156"]),
    ],
)
def test_users_can_be_found_and_created_as_an_entry_says(
    settings: Any, monkeypatch: pytest.MonkeyPatch, entry: dict[str, Any], expected: list[str]
) -> None:
    monkeypatch.setattr(get_user_model(), "EMAIL_FIELD", "address")
    monkeypatch.setattr(get_user_model(), "REQUIRED_FIELDS", ["branch"])
    configure(settings, mcp={"IDENTITY_PROVIDERS": [PROVIDER | entry]})
    assert found() == expected


@pytest.mark.parametrize(
    ("path", "is_well"), [("/", True), ("/oauth", True), ("/oauth/", True), ("/admin/", False), ("/oauth/auth", False)]
)
def test_a_session_that_does_not_reach_the_consent_page_is_a_warning(settings: Any, path: str, is_well: bool) -> None:
    settings.SESSION_COOKIE_PATH = path
    found = [message.id for message in check_session_cookie()]
    assert found == ([] if is_well else ["mcp_django.W157"])
