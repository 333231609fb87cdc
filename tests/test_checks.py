import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.core import checks
from django.db import connection
from django.test import override_settings
from django.urls import path

from mcp_django import MCPSite, ModelExposure, site
from mcp_django.checks import (
    check_admin_sites,
    check_bulk,
    check_caching,
    check_channel_layer,
    check_completions,
    check_exposures,
    check_icon,
    check_limits,
    check_mounts,
    check_news,
    check_orders,
    check_rates,
    check_settings,
    check_tenants,
    check_threads,
    check_tools,
    check_uploads,
    check_urlconfs,
)
from tests.sitesapp.admin import front_admin
from tests.testapp.models import Author

MCP = {"BASE_URL": "http://testserver"}
own = MCPSite("own")
urlpatterns = [path("mcp/", own.urls)]


@pytest.fixture
def exposed():
    """Register an exposure on a mounted site while a test runs."""
    with override_settings(ROOT_URLCONF=__name__):
        yield lambda exposure, **options: own.register(Author, exposure, **options)
    own._registry.clear()
    own._forget()
    own.prompts = {}


def ids(messages):
    return [message.id for message in messages]


def test_a_project_that_follows_the_readme_has_no_faults():
    found = {message.id for message in checks.run_checks() if message.level >= checks.WARNING}
    # Of the tests' own settings: no TLS, and a cache that is not shared.
    assert found <= {"mcp_django.W103", "mcp_django.W133"}


@override_settings(MCP_DJANGO=MCP | {"PAGE_SIZ": 5})
def test_a_setting_that_does_not_exist_is_an_error():
    assert ids(check_settings()) == ["mcp_django.E001"]


@override_settings(MCP_DJANGO=MCP | {"AUTHENTICATION_CLASSES": []})
def test_an_open_endpoint_is_warned_about():
    assert ids(check_settings()) == ["mcp_django.W002"]


@override_settings(MCP_DJANGO=MCP | {"AUTHENTICATION_CLASSES": ["rest_framework.authentication.SessionAuthentication"]})
def test_J170_a_cookie_cannot_be_made_authority():
    assert ids(check_settings()) == ["mcp_django.E003"]


@pytest.mark.parametrize("rate", ["600", "600/w", "", 600, ["600/m"]])
def test_135_a_rate_that_is_none_is_an_error(rate):
    names = ("CALL_RATE", "COMPLETION_RATE", "UPLOAD_RATE")
    with override_settings(MCP_DJANGO=MCP | dict.fromkeys(names, rate)):
        assert ids(check_rates()) == ["mcp_django.E017"] * 3


@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        ({}, []),
        ({"SERVER_ICON": "https://shop.example/icon.png"}, []),
        ({"SERVER_ICON": "data:image/png;base64,AAAA"}, []),
        ({"SERVER_ICON": "/static/icon.png"}, []),
        ({"SERVER_ICON": "/static/icon.png", "BASE_URL": None}, ["mcp_django.E065"]),
        *[
            ({"SERVER_ICON": icon}, ["mcp_django.E065"])
            for icon in ("icon.png", "//else.example/i.png", "javascript:x", 1)
        ],
    ],
)
def test_an_icon_that_no_client_can_fetch_is_an_error(configured, expected):
    with override_settings(MCP_DJANGO=MCP | configured):
        assert ids(check_icon()) == expected


@pytest.mark.parametrize("rate", ["600/m", None])
def test_a_rate_may_be_left_out(rate):
    names = ("CALL_RATE", "COMPLETION_RATE", "UPLOAD_RATE")
    with override_settings(MCP_DJANGO=MCP | dict.fromkeys(names, rate)):
        assert check_rates() == []


@pytest.mark.parametrize(
    ("ttl", "expected"),
    [
        (0, []),
        (3_600_000, []),
        ({}, []),
        ({"tools": 60_000, "read": 0}, []),
        (-1, ["mcp_django.E018"]),
        (True, ["mcp_django.E018"]),
        (1.5, ["mcp_django.E018"]),
        (None, ["mcp_django.E018"]),
        ({"tools": "1"}, ["mcp_django.E018"]),
        ({"tool": 1, 5: 1}, ["mcp_django.E018"]),
        (3_600_001, ["mcp_django.W018"]),
        ({"prompts": 10**9}, ["mcp_django.W018"]),
    ],
)
def test_194_a_time_to_keep_a_list_is_checked(ttl, expected):
    with override_settings(MCP_DJANGO=MCP | {"CACHE_TTL_MS": ttl}):
        assert ids(check_caching()) == expected


@pytest.mark.parametrize(("ttl", "expected"), [(60_000, []), (-1, ["mcp_django.E018"]), (10**9, ["mcp_django.W018"])])
def test_194_a_time_to_keep_what_is_read_is_checked(exposed, ttl, expected):
    exposed(ModelExposure, fields=["name"], cache_ttl_ms=ttl)
    assert ids(check_caching()) == expected


REDIS = {"BACKEND": "channels_redis.core.RedisChannelLayer"}
MEMORY = {"BACKEND": "channels.layers.InMemoryChannelLayer"}


@pytest.mark.parametrize(
    ("own_settings", "layers", "expected"),
    [
        ({}, {}, ["mcp_django.W016"]),
        ({}, {"default": MEMORY}, ["mcp_django.W016"]),
        ({}, {"default": REDIS}, []),
        ({}, {"other": REDIS}, ["mcp_django.W016"]),
        ({"CHANNEL_LAYER": None}, {"default": REDIS}, ["mcp_django.W016"]),
        ({"CHANNEL_LAYER": "other"}, {"default": MEMORY, "other": REDIS}, []),
        ({"CHANNEL_LAYER": "other"}, {"default": REDIS}, ["mcp_django.E015", "mcp_django.W016"]),
        ({"CHANNEL_LAYER": "other", "EVENTS": False}, {}, []),
        ({"EVENTS": False}, {}, []),
    ],
)
def test_the_channel_layer_reaches_all_workers(own_settings, layers, expected):
    with override_settings(MCP_DJANGO=MCP | own_settings, CHANNEL_LAYERS=layers):
        assert ids([*check_channel_layer(), *check_news()]) == expected


def test_how_news_travel_is_checked_for_a_deployment_alone():
    def found(**options):
        return "mcp_django.W016" in ids(checks.run_checks(**options))

    assert found(include_deployment_checks=True)
    assert not found()


@pytest.mark.parametrize("field", ["testapp.author.nosuch", "testapp.nosuch.name", "testapp.book.title"])
def test_a_field_that_completes_an_argument_must_be_exposed(exposed, field):
    exposed(ModelExposure, fields=["name"])
    own.add_prompt(lambda request, word: "", name="prompt", complete={"word": field})
    assert ids(check_completions()) == ["mcp_django.E019"]


def test_a_field_that_is_exposed_completes_an_argument(exposed):
    exposed(ModelExposure, fields=["name"])
    own.add_prompt(lambda request, word: "", name="prompt", complete={"word": "testapp.Author.name"})
    assert check_completions() == []


@override_settings(ROOT_URLCONF=__name__)
def test_a_mount_with_a_trailing_slash_is_warned_about():
    assert ids(check_mounts()) == ["mcp_django.W004"]


def test_a_project_that_mounts_no_endpoint_is_told():
    assert check_urlconfs() == []
    with override_settings(ROOT_URLCONF="django.contrib.auth.urls"):
        assert ids(check_urlconfs()) == ["mcp_django.I045"]
        with override_settings(MCP_DJANGO=MCP | {"URLCONFS": [__name__]}):
            assert check_urlconfs() == []


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


@pytest.mark.parametrize("method", ["set_schema", "set_tenant"])
def test_a_schema_for_each_tenant_needs_the_middleware_that_chooses_it(monkeypatch, method):
    assert check_tenants() == []
    monkeypatch.setattr(connection, method, lambda name: None, raising=False)
    (warning,) = check_tenants()
    assert (warning.id, "'mcp_django'" in warning.msg) == ("mcp_django.W047", True)
    monkeypatch.setattr(site, "needs_middleware", True)
    assert check_tenants() == []


def test_D82_an_action_whose_tool_has_the_name_of_another_is_an_error():
    def clash(request) -> str:
        """Clash."""
        return ""

    site.add_tool(clash, name="publish_testapp_book")
    try:
        assert ids(check_tools()) == ["mcp_django.E005"]
    finally:
        del site._tools["publish_testapp_book"]


def test_a_field_that_does_not_exist_is_an_error(exposed):
    exposed(ModelExposure, fields=["name", "nam"])
    assert ids(check_exposures()) == ["mcp_django.E010"]


def test_G130_an_exposure_without_fields_or_with_all_of_them_is_warned_about(exposed):
    exposed(ModelExposure)
    assert ids(check_exposures()) == ["mcp_django.W011"]
    own.unregister(Author)
    exposed(ModelExposure, fields="__all__")
    assert ids(check_exposures()) == ["mcp_django.W012"]


def test_G129_a_secret_that_is_exposed_on_purpose_is_warned_about(exposed):
    exposed(ModelExposure, fields=["name", "secret_token"])
    assert ids(check_exposures()) == ["mcp_django.W013"]


def test_an_action_that_is_not_marked_is_an_error(exposed):
    exposed(ModelExposure, fields=["name"], actions=["get_queryset"])
    assert ids(check_exposures()) == ["mcp_django.E014"]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, []),
        ({"STATEMENT_TIMEOUT": None, "MAX_QUERY_COST": 1e6}, []),
        ({"STATEMENT_TIMEOUT": "5"}, ["mcp_django.E020"]),
        ({"STATEMENT_TIMEOUT": 0, "MAX_QUERY_COST": True}, ["mcp_django.E020"] * 2),
        ({"LOCK_TIMEOUT": "5s"}, ["mcp_django.E020"]),
    ],
)
def test_row_118_a_limit_that_is_none_is_an_error(limits, expected):
    with override_settings(MCP_DJANGO=MCP | limits):
        assert ids(check_limits()) == expected


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({}, 0),
        ({"THREADS": 1, "SLOW_THREADS": 1, "QUEUE_TIMEOUT": 0.5}, 0),
        ({"THREADS": 0, "SLOW_THREADS": "8"}, 2),
        ({"QUEUE_TIMEOUT": None, "CALL_TIMEOUT": 0, "BODY_TIMEOUT": True}, 3),
        ({"MAX_BODY_BYTES": 1000, "MAX_WORKER_BODY_BYTES": 999}, 1),
        ({"USER_STREAM_BYTES": 1}, 0),
        ({"USER_STREAM_BYTES": 0}, 1),
        ({"USER_STREAM_BYTES": None}, 1),
    ],
)
def test_a_bound_of_a_worker_that_answers_no_call_is_an_error(bounds, expected):
    with override_settings(MCP_DJANGO=MCP | bounds):
        assert ids(check_threads()) == ["mcp_django.E040"] * expected


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({}, 0),
        ({"MAX_BULK_ROWS": 10_000, "IDEMPOTENCY_MAX_AGE": 1}, 0),
        ({"MAX_BULK_ROWS": 10_001}, 1),
        ({"MAX_BULK_ROWS": None, "IDEMPOTENCY_MAX_AGE": 0}, 2),
        ({"MAX_UPLOAD_BYTES": 2**31}, 1),
        ({"MAX_BULK_ROWS": True}, 1),
    ],
)
def test_a_bound_of_writes_that_is_none_is_an_error(bounds, expected):
    with override_settings(MCP_DJANGO=MCP | bounds):
        assert ids(check_bulk()) == ["mcp_django.E025"] * expected


@pytest.mark.parametrize(("where", "expected"), [("media/up", 1), ("media", 1), ("private", 0), ("media-up", 0)])
def test_uploads_that_may_be_served_are_an_error(settings, tmp_path, where, expected):
    backend = "django.core.files.storage.FileSystemStorage"
    assert check_uploads() == []
    places = {"default": "media", "mcp_uploads": where}
    stores = {name: {"BACKEND": backend, "OPTIONS": {"location": tmp_path / at}} for name, at in places.items()}
    settings.STORAGES = {**settings.STORAGES, **stores}
    assert ids(check_uploads()) == ["mcp_django.E029"] * expected


class ByName(ModelExposure):
    fields = ("name",)
    ordering = ("-name",)


class ByKey(ModelExposure):
    fields = ("name",)
    ordering = ("-pk",)


def test_an_order_that_no_index_serves_is_named_with_the_index(exposed):
    exposed(ByName)
    (message,) = [message for message in check_orders() if "testapp.author, -name, -id" in message.msg]
    assert (message.id, message.level, message.obj) == ("mcp_django.I021", checks.INFO, Author)
    assert "Add models.Index(fields=['-name', '-id'], name=...)" in message.hint


def test_an_order_that_an_index_serves_is_no_matter(exposed):
    exposed(ByKey)
    assert not [message for message in check_orders() if "testapp.author, -id" in message.msg]


def test_an_order_through_a_relation_has_no_index_to_add(exposed):
    class ByProfile(ModelExposure):
        fields = ("name",)
        ordering = ("profile__website",)

    exposed(ByProfile)
    (message,) = [message for message in check_orders() if "profile__website" in message.msg]
    assert message.hint == "No index serves an order through a relation: set another ordering on the exposure."


def test_orders_are_checked_for_a_deployment_alone():
    assert "mcp_django.I021" not in ids(checks.run_checks())
    assert "mcp_django.I021" in ids(checks.run_checks(include_deployment_checks=True))


def test_hosts_and_the_rate_of_calls_are_checked_for_a_deployment_alone(settings):
    def found(**options):
        return {one.id for one in checks.run_checks(**options)} & {"mcp_django.W150", "mcp_django.W151"}

    settings.ALLOWED_HOSTS = ["shop.example", ".shop.example"]
    assert found(include_deployment_checks=True) == set()
    settings.ALLOWED_HOSTS = ["shop.example", "*"]
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CALL_RATE": None}
    assert found() == set()
    assert found(include_deployment_checks=True) == {"mcp_django.W150", "mcp_django.W151"}


@pytest.mark.parametrize("origin", ["null", "*", "https://*.example", "https://a.example/", "a.example", "", None])
def test_an_origin_that_is_not_one_site_is_an_error(settings, origin):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "ALLOWED_ORIGINS": ["https://a.example:8443", origin]}
    assert "mcp_django.E149" in {one.id for one in checks.run_checks()}


def test_origins_of_sites_pass(settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "ALLOWED_ORIGINS": ["https://a.example", "vscode-webview://x1y2"]}
    assert "mcp_django.E149" not in {one.id for one in checks.run_checks()}
