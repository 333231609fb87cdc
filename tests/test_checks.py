import pytest
from django.core import checks
from django.test import override_settings
from django.urls import path

from mcp_django import MCPSite, ModelExposure, site
from mcp_django.checks import check_exposures, check_mounts, check_settings, check_tools
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


@override_settings(ROOT_URLCONF=__name__)
def test_a_mount_with_a_trailing_slash_is_warned_about():
    assert ids(check_mounts()) == ["mcp_django.W004"]


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
