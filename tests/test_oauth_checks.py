from typing import Any

import pytest

from mcp_django.oauth.checks import CHECKS, RULES
from mcp_django.oauth.settings import provider_settings

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


@pytest.mark.parametrize(("number", "name"), [(rule[0], rule[1]) for rule in RULES])
def test_J189_each_unsafe_setting_of_the_toolkit_is_an_error(settings: Any, number: int, name: str) -> None:
    configure(settings, **{name: UNSAFE.get(name, False)})
    assert found() == [f"mcp_django.E{number}"]
    settings.DEBUG = True
    assert found() == [f"mcp_django.W{number}"]


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
        ({"SCOPES": {"read": "x"}, "DEFAULT_SCOPES": ["read"]}, "mcp_django.E106"),
        ({"OIDC_ISS_ENDPOINT": "https://other.example"}, "mcp_django.E107"),
        ({"CIMD_ENABLED": True}, "mcp_django.E108"),
        ({"ALLOW_LOCALHOST_LOOPBACK": False}, "mcp_django.W109"),
    ],
)
def test_the_toolkit_must_work_by_the_apps_rules(settings: Any, provider: dict[str, Any], expected: str) -> None:
    configure(settings, **provider)
    assert found() == [expected]


def test_the_toolkit_must_be_installed(settings: Any) -> None:
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "oauth2_provider"]
    assert found() == ["mcp_django.E104"]


@pytest.mark.parametrize(
    ("mcp", "expected"),
    [
        ({"REGISTRATION": "yes"}, ["mcp_django.E130"]),
        ({"REGISTRATION": "off", "REGISTRATION_RATE": None}, []),
        ({"REGISTRATION_RATE": None}, ["mcp_django.E131"]),
        ({"REGISTRATION_TOTAL_RATE": "many"}, ["mcp_django.E132"]),
    ],
)
def test_registration(settings: Any, mcp: dict[str, Any], expected: list[str]) -> None:
    configure(settings, mcp=mcp)
    assert found() == expected


def test_a_cache_of_one_process_does_not_limit_all(settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    assert found() == ["mcp_django.W133"]


def test_documents_must_be_at_the_root_and_the_login_page_must_exist(settings: Any) -> None:
    settings.ROOT_URLCONF = "django.contrib.auth.urls"
    settings.LOGIN_URL = "/accounts/login/"
    assert found() == ["mcp_django.W140", "mcp_django.W141"]
    settings.LOGIN_URL = "https://login.example/"
    assert found() == ["mcp_django.W140"]


def test_an_endpoint_with_other_authentication_is_left_alone(settings: Any) -> None:
    settings.OAUTH2_PROVIDER = {}
    settings.MCP_DJANGO = {"AUTHENTICATION_CLASSES": [], "BASE_URL": "https://shop.example"}
    assert found() == []


def test_an_endpoint_without_its_url_is_an_error_whatever_signs_clients_in(settings: Any) -> None:
    settings.MCP_DJANGO = {"AUTHENTICATION_CLASSES": []}
    assert found() == ["mcp_django.E101"]


def test_the_cimd_fetcher_of_a_project_is_its_own_business(settings: Any) -> None:
    configure(settings, CIMD_ENABLED=True, CIMD_METADATA_FETCHER="tests.test_oauth_checks.Fetcher")
    assert found() == []


class Fetcher:
    """A fetcher that is not the toolkit's."""
