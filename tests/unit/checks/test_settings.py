import re

import django
import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, connections
from django.http import HttpResponse
from django.test import override_settings
from django.urls import path, re_path
from django.utils.translation import gettext_lazy

from mcp_django import MCPSite, site
from mcp_django.asgi import get_asgi_application
from mcp_django.checks.settings import (
    check_admin_sites,
    check_authentication,
    check_django,
    check_extras,
    check_mounts,
    check_news,
    check_persons,
    check_settings,
    check_shadows,
    check_tenants,
    check_urlconfs,
    check_users,
    check_values,
    check_writers,
)
from mcp_django.conf import settings as app_settings
from mcp_django.routing import ENDPOINTS
from tests.configured import configured
from tests.sitesapp.admin import front_admin
from tests.sqlite_file import ALIAS, sqlite_file
from tests.testapp.models import Author

# Django's checks of JSON fields ask the database, once in a process.
pytestmark = pytest.mark.django_db

MCP = {"BASE_URL": "http://testserver"}
own = MCPSite("own")
urlpatterns = [path("mcp/", own.urls)]


def view(request, **parameters):
    return HttpResponse()


def ids(messages):
    return [message.id for message in messages]


@pytest.fixture
def own_sites(monkeypatch):
    """Admin sites that other tests have made are not those of the project."""
    monkeypatch.setattr("django.contrib.admin.sites.all_sites", {admin.site, front_admin})


@pytest.mark.usefixtures("own_sites")
def test_a_project_that_follows_the_readme_has_no_faults():
    found = {message.id for message in checks.run_checks() if message.level >= checks.WARNING}
    # Of the tests' own settings: no TLS, and a cache that is not shared.
    assert found <= {"mcp_django.W103", "mcp_django.W133"}


@override_settings(MCP_DJANGO=MCP | {"PAGE_SIZ": 5})
def test_a_setting_that_does_not_exist_is_an_error():
    assert ids(check_settings()) == ["mcp_django.E001"]


@override_settings(MCP_DJANGO=MCP | {"AUTHENTICATION_CLASSES": []})
def test_an_open_endpoint_is_warned_about():
    assert ids(check_authentication()) == ["mcp_django.W002"]


@override_settings(MCP_DJANGO=MCP | {"AUTHENTICATION_CLASSES": ["rest_framework.authentication.SessionAuthentication"]})
def test_J170_a_cookie_cannot_be_made_authority():
    assert ids(check_authentication()) == ["mcp_django.E003"]


@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        ({}, []),
        ({"SERVER": {"icon": "https://shop.example/icon.png"}}, []),
        ({"SERVER": {"icon": "data:image/png;base64,AAAA"}}, []),
        ({"SERVER": {"icon": "/static/icon.png"}}, []),
        ({"SERVER": {"icon": "/static/icon.png"}, "BASE_URL": None}, ["mcp_django.E065"]),
        *[
            ({"SERVER": {"icon": icon}}, ["mcp_django.E065"])
            for icon in ("icon.png", "//else.example/i.png", "javascript:x")
        ],
    ],
)
def test_an_icon_that_no_client_can_fetch_is_an_error(configured, expected):
    with override_settings(MCP_DJANGO=MCP | configured):
        assert ids(check_values()) == expected


def test_a_setting_whose_extra_is_missing_is_an_error(monkeypatch):
    with override_settings(MCP_DJANGO=MCP | {"TELEMETRY": {"opentelemetry": True}}):
        monkeypatch.setattr("mcp_django.checks.settings.find_spec", lambda name: "found")
        assert check_extras() == []
        monkeypatch.setattr("mcp_django.checks.settings.find_spec", lambda name: None)
        assert ids(check_extras()) == ["mcp_django.E068"]
    assert check_extras() == []


@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        ({}, []),
        ({"SERVER": {"description": "Orders.", "website": "https://shop.example/"}}, []),
        ({"SERVER": {"description": "x" * 101}}, ["mcp_django.E066"]),
        ({"SERVER": {"website": "shop.example"}}, ["mcp_django.E067"]),
    ],
)
def test_what_registries_refuse_is_an_error(configured, expected):
    with override_settings(MCP_DJANGO=MCP | configured):
        assert ids(check_values()) == expected


REDIS = {"BACKEND": "channels_redis.core.RedisChannelLayer"}
MEMORY = {"BACKEND": "channels.layers.InMemoryChannelLayer"}


@pytest.mark.parametrize(
    ("own_settings", "layers", "expected"),
    [
        ({}, {}, ["mcp_django.W016"]),
        ({}, {"default": MEMORY}, ["mcp_django.W016"]),
        ({}, {"default": REDIS}, []),
        ({}, {"other": REDIS}, ["mcp_django.W016"]),
        ({"EVENTS": "other"}, {"default": MEMORY, "other": REDIS}, []),
        ({"EVENTS": "other"}, {"default": REDIS}, ["mcp_django.E015", "mcp_django.W016"]),
        ({"EVENTS": False}, {}, []),
    ],
)
def test_the_channel_layer_reaches_all_workers(own_settings, layers, expected):
    with override_settings(MCP_DJANGO=MCP | own_settings, CHANNEL_LAYERS=layers):
        assert ids([*check_values(), *check_news()]) == expected


def test_how_news_travel_is_checked_for_a_deployment_alone():
    def found(**options):
        return "mcp_django.W016" in ids(checks.run_checks(**options))

    assert found(include_deployment_checks=True)
    assert not found()


@override_settings(ROOT_URLCONF=__name__)
def test_a_mount_with_a_trailing_slash_is_warned_about():
    assert ids(check_mounts()) == ["mcp_django.W004"]


def test_a_project_that_mounts_no_endpoint_is_told():
    assert check_urlconfs() == []
    with override_settings(ROOT_URLCONF="django.contrib.auth.urls"):
        assert ids(check_urlconfs()) == ["mcp_django.I045"]
        with override_settings(MCP_DJANGO=MCP | {"URLCONFS": [__name__]}):
            assert check_urlconfs() == []


@pytest.mark.usefixtures("own_sites")
def test_an_admin_that_no_endpoint_speaks_for_is_warned_about(settings):
    settings.ROOT_URLCONF = "tests.sitesapp.urls"
    assert check_admin_sites() == []
    settings.ROOT_URLCONF = (path("front-admin/", front_admin.urls), path("mcp", site.urls))
    (warning,) = check_admin_sites()
    assert (warning.id, front_admin.name in warning.msg) == ("mcp_django.W046", True)
    # One without a page is nobody's.
    settings.ROOT_URLCONF = (path("mcp", site.urls),)
    assert check_admin_sites() == []


def test_an_admin_is_not_missed_that_is_left_out_on_purpose(settings, monkeypatch):
    monkeypatch.setattr("django.contrib.admin.sites.all_sites", {front_admin})
    closed = admin.AdminSite("closed")
    closed.register(User)
    settings.ROOT_URLCONF = (
        path("closed/", closed.urls),
        path("front-admin/", front_admin.urls),
        path("mcp", own.urls),
    )
    settings.MCP_DJANGO = MCP | {"AUTO_REGISTER": False}
    assert check_admin_sites() == []
    settings.MCP_DJANGO = MCP
    assert [front_admin.name in warning.msg for warning in check_admin_sites()] == [True]


def test_a_second_admin_site_with_classes_of_its_own_is_named(settings, monkeypatch):
    """Its people would get the classes of the first."""
    first, second, same = (admin.AdminSite(name) for name in ("first", "second", "same"))
    shared = type("Shared", (admin.ModelAdmin,), {})
    for admin_site, its in ((first, shared), (same, shared), (second, type("Narrow", (admin.ModelAdmin,), {}))):
        admin_site.register(Author, its)
    monkeypatch.setattr("django.contrib.admin.sites.all_sites", {first, second, same})
    endpoint = MCPSite("first_only", admin_site=first)
    pages = tuple(path(f"{admin_site.name}/", admin_site.urls) for admin_site in (first, second, same))
    settings.ROOT_URLCONF = (*pages, path("mcp", endpoint.urls))
    (message,) = check_admin_sites()
    assert message.id == "mcp_django.I165"
    assert all(name in message.msg for name in ("'second'", "testapp.author", "'first'"))
    # With an endpoint for its people, or without a page, it is nobody's surprise.
    settings.ROOT_URLCONF = (*pages, path("mcp", endpoint.urls), path("b", MCPSite("b", admin_site=second).urls))
    assert check_admin_sites() == []
    settings.ROOT_URLCONF = (pages[0], path("mcp", endpoint.urls))
    assert check_admin_sites() == []


def test_a_django_that_is_newer_than_the_tested_ones_is_told(monkeypatch):
    assert check_django() == []
    monkeypatch.setattr(django, "VERSION", (6, 2, 1, "final", 0))
    (message,) = check_django()
    assert message.id == "mcp_django.I071"
    assert "Django 6.2.1 is newer than 6.1" in message.msg
    with configured(COMPILED_QUERIES=False):
        assert check_django() == []


@pytest.mark.parametrize("method", ["set_schema", "set_tenant"])
def test_a_schema_for_each_tenant_needs_the_middleware_that_chooses_it(monkeypatch, method):
    assert check_tenants() == []
    monkeypatch.setattr(connection, method, lambda name: None, raising=False)
    (warning,) = check_tenants()
    assert (warning.id, "'mcp_django'" in warning.msg) == ("mcp_django.W047", True)
    monkeypatch.setattr(site, "needs_middleware", True)
    assert check_tenants() == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, 1), ({"transaction_mode": "deferred"}, 1), ({"transaction_mode": "Immediate"}, 0), ({"timeout": 20}, 1)],
)
def test_transactions_that_do_not_wait_for_their_turn_to_write_are_warned_of(
    tmp_path, django_db_blocker, options, expected
):
    assert check_writers() == []
    with sqlite_file(tmp_path):
        connections[ALIAS].settings_dict["OPTIONS"] = options
        found = check_writers()
    assert ids(found) == ["mcp_django.W070"] * expected
    assert all(ALIAS in message.msg and f'DATABASES["{ALIAS}"]' in message.hint for message in found)


def test_hosts_origins_and_limits_are_checked_for_a_deployment_alone(settings):
    unsafe = {f"mcp_django.W{number}" for number in (150, 151, 160, 161)}

    def found(**options):
        return {one.id for one in checks.run_checks(**options)} & unsafe

    settings.ALLOWED_HOSTS = ["shop.example", ".shop.example"]
    assert found(include_deployment_checks=True) == set()
    settings.ALLOWED_HOSTS = ["shop.example", "*"]
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "ALLOWED_ORIGINS": ["http://localhost:6274", "https://a.example"]}
    assert found(include_deployment_checks=True) == {"mcp_django.W150"}
    more = {"RATES": {"calls": None}, "STATEMENT_TIMEOUT": None, "ALLOWED_ORIGINS": ["http://a.example"]}
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, **more}
    assert found() == set()
    assert found(include_deployment_checks=True) == unsafe


# Settings


@pytest.mark.parametrize(
    ("ttl", "expected"),
    [
        (0, []),
        (3_600_000, []),
        ({}, []),
        ({"tools": 60_000, "read": 0}, []),
        (-1, ["mcp_django.E008"]),
        (True, ["mcp_django.E008"]),
        (1.5, ["mcp_django.E008"]),
        (None, ["mcp_django.E008"]),
        ({"tools": "1"}, ["mcp_django.E008"]),
        ({"tool": 1, 5: 1}, ["mcp_django.E008"]),
        (3_600_001, ["mcp_django.W018"]),
        ({"prompts": 10**9}, ["mcp_django.W018"]),
    ],
)
def test_194_a_time_to_keep_a_list_is_checked(ttl, expected):
    with override_settings(MCP_DJANGO=MCP | {"CACHE_TTL_MS": ttl}):
        assert ids(check_settings()) == expected


@pytest.mark.parametrize(
    ("name", "values"),
    {
        "AUTO_REGISTER": (1, "true", None),
        "READ_ONLY": ("no", "False", 0, "yes", None),
        "SCHEMAS": ("plane", None, "Full"),
        "REGISTRATION": ("yes", True, None),
        "RATES": (
            *({"calls": wrong} for wrong in ("600", "600/w", "", 600, ["600/m"], "600/min")),
            {"reads": "600/m"},
            "600/m",
            None,
        ),
        "SERVER": ({"icon": 1}, {"name": None}, {"name": 1}, {"nome": "shop"}, "shop"),
        "CLIENT_DOCUMENTS": ("off", ["claude.ai"], {"hosts": "none"}, {"ca": 1}),
        "TELEMETRY": (True, {"prometheus": "yes"}, {"metrics_token": 1}),
        "STATEMENT_TIMEOUT": ("5", 0, True, float("nan"), float("inf")),
        "THREADS": (0, None, 1.5, "4"),
        "CALL_TIMEOUT": (0, None, "60"),
        "MAX_BULK_ROWS": (10_001, None, True, 0),
        "MAX_FILE_BYTES": (2**31, 0),
        "PAGE_SIZE": (0, "20", None),
        "BASE_URL": (1, ["https://shop.example"]),
        "EVENTS": (["default"], True, None),
        "URLCONFS": ("tests.urls",),
        "CALL_MIDDLEWARE": ("a.b.C", [1]),
        "AUTHENTICATION_CLASSES": ("mcp_django.oauth.bearer.BearerAuthentication", None),
        "SIGN_IN_FACTS": (5, "mcp_django.signin.OTPDevice"),
        "ALLOWED_ORIGINS": (
            "https://a.example",
            ["null"],
            ["*"],
            ["https://*.example"],
            ["https://a.example/"],
            [None],
        ),
    }.items(),
)
def test_a_value_that_a_setting_cannot_have_is_an_error_and_nothing_is_served_by_it(name, values):
    for value in values:
        with override_settings(MCP_DJANGO=MCP | {name: value}):
            assert ids(check_settings()) == ["mcp_django.E008"], value
            # No other setting is read either: what the project meant is not known.
            with pytest.raises(ImproperlyConfigured, match=name):
                _ = app_settings.PAGE_SIZE
            # And no other check fails of it.
            assert {one for one in ids(checks.run_checks()) if one.startswith("mcp_django")} == {"mcp_django.E008"}


@pytest.mark.parametrize(
    "right",
    [
        {"THREADS": 1, "STATEMENT_TIMEOUT": None, "MAX_BULK_ROWS": 10_000},
        {"RATES": {"calls": "600/m", "completions": None, "uploads": None}, "EVENTS": "other"},
        {"SERVER": {"title": gettext_lazy("Shop")}, "CALL_LOG": False, "TELEMETRY": {}},
        {"ALLOWED_ORIGINS": ("https://a.example:8443", "vscode-webview://x1y2"), "CALL_LOG": True},
        {"CALL_MIDDLEWARE": [], "URLCONFS": ["tests.urls"], "SIGN_IN_FACTS": []},
    ],
)
def test_a_value_that_a_setting_can_have_passes(right):
    with override_settings(MCP_DJANGO=MCP | right):
        assert check_settings() == []


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"PAGE_SIZ": 5}, "Did you mean 'PAGE_SIZE'?"),
        ({"READONLY": True}, "Did you mean 'READ_ONLY'?"),
        ({"read_only": True}, "Did you mean 'READ_ONLY'?"),
        ({"READ_ONLY": "no"}, "It has to be True or False. Did you mean False?"),
        ({"PAGE_SIZE": "20"}, "It has to be a whole number from 1. Did you mean 20?"),
        ({"REGISTRATION": "opn"}, "It has to be 'open', 'authenticated' or 'off'. Did you mean 'open'?"),
        ({"ALLOWED_ORIGINS": "https://a.example"}, "Did you mean ['https://a.example']?"),
        ({5: 5}, "The settings are listed in docs/settings.md."),
        ({"QUEUE_TIMEOUT": 1}, "QUEUE_TIMEOUT is fixed: leave it out."),
        ({"SLOW_THREADS": 1}, "SLOW_THREADS is fixed: leave it out."),
        ({"RATES": {"call": "6/m"}}, "There is no member 'call'. Did you mean 'calls'?"),
        ({"RATES": {"calls": "600/minute"}}, "such as \"600/m\", or None for no limit. Did you mean '600/m'?"),
    ],
)
def test_what_was_meant_is_said(given, hint):
    with override_settings(MCP_DJANGO=MCP | given):
        (message,) = check_settings()
        assert message.hint.endswith(hint)
        with pytest.raises(ImproperlyConfigured, match=re.escape(hint)):
            _ = app_settings.PAGE_SIZE


def test_the_setting_itself_is_a_dict():
    with override_settings(MCP_DJANGO="https://shop.example"):
        assert ids(check_settings()) == ["mcp_django.E008"]
        assert ids(one for one in checks.run_checks() if "mcp_django" in one.id) == ["mcp_django.E008"]


def test_the_fast_road_does_not_start_with_a_wrong_setting():
    with (
        override_settings(MCP_DJANGO=MCP | {"READ_ONLY": "no"}),
        pytest.raises(ImproperlyConfigured, match="READ_ONLY"),
    ):
        get_asgi_application(lambda scope, receive, send: None)


@override_settings(MCP_DJANGO=MCP | {"READ_ONLY": "no"})
def test_the_plain_road_answers_nobody_with_a_wrong_setting(client, caplog):
    answer = client.post("/mcp", "{}", content_type="application/json")
    assert (answer.status_code, "READ_ONLY" in answer.text) == (500, False)
    assert "READ_ONLY is 'no'" in caplog.text


# The URLconf, the server and the users


@pytest.mark.parametrize("first", [re_path("^.*$", view), path("<path:rest>", view), path("mcp", view)])
def test_a_pattern_before_the_endpoint_is_an_error_and_the_fast_road_leaves_the_path_to_it(settings, first):
    settings.ROOT_URLCONF = (first, path("mcp", site.urls))
    (message,) = check_shadows()
    assert (message.id, f"{first.pattern}" in message.msg) == ("mcp_django.E009", True)
    assert ENDPOINTS.match("/mcp") is None


def test_a_pattern_behind_the_endpoint_is_no_matter(settings):
    settings.ROOT_URLCONF = (path("mcp", site.urls), re_path("^.*$", view))
    assert check_shadows() == []
    assert ENDPOINTS.match("/mcp") is not None


@pytest.mark.parametrize(
    ("command", "app", "expected"),
    [
        ("runserver", "django.core", ["mcp_django.I034"]),
        ("runserver", "django.contrib.staticfiles", ["mcp_django.I034"]),
        ("runserver", "daphne", []),
        ("check", "django.core", []),
    ],
)
def test_who_runs_a_server_without_streams_is_told(monkeypatch, command, app, expected):
    monkeypatch.setattr("sys.argv", ["manage.py", command])
    monkeypatch.setattr("mcp_django.checks.settings.get_commands", lambda: {"runserver": app})
    assert ids(check_values()) == expected


def test_users_without_permissions_are_an_error(monkeypatch):
    assert check_users() == []
    # A model of users that is AbstractBaseUser alone.
    monkeypatch.setattr("mcp_django.checks.settings.get_user_model", lambda: Session)
    assert ids(check_users()) == ["mcp_django.E035"]


def test_a_class_that_cannot_be_imported_is_an_error():
    path = "mcp_django.oauth.bearer.BearerAuth"
    with override_settings(MCP_DJANGO=MCP | {"AUTHENTICATION_CLASSES": [path]}):
        (message,) = check_authentication()
    assert (message.id, path in message.msg) == ("mcp_django.E008", True)


SIGN_IN = ("SessionMiddleware", "AuthenticationMiddleware")


@pytest.mark.parametrize("confirm", ["person", {"delete": "person"}, {"rows": 5}])
def test_a_page_to_which_nobody_can_sign_in_is_an_error(settings, confirm):
    settings.MCP_DJANGO = {**MCP, "CONFIRM": confirm}
    assert check_persons() == []
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if not name.endswith(SIGN_IN)]
    assert ids(check_persons()) == ["mcp_django.E072"]
    settings.MCP_DJANGO = MCP
    assert check_persons() == []


def test_an_exposure_whose_calls_a_person_confirms_needs_the_page_too(settings, monkeypatch):
    settings.MIDDLEWARE = [*filter(lambda name: not name.endswith(SIGN_IN), settings.MIDDLEWARE), "no.such.Middleware"]
    monkeypatch.setattr(next(iter(site.exposures.values())), "confirm", "person")
    assert ids(check_persons()) == ["mcp_django.E072"]


@pytest.mark.parametrize("confirm", ["people", True, {"delet": "person"}, {"rows": -1}, {"delete": True}, None])
def test_nobody_else_confirms(confirm):
    with override_settings(MCP_DJANGO=MCP | {"CONFIRM": confirm}):
        assert ids(check_settings()) == ["mcp_django.E008"]
