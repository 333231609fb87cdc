import pytest
from django.test import override_settings
from rest_framework.authentication import TokenAuthentication

from mcp_django.conf import DEFAULTS, settings


def test_a_setting_left_out_has_its_default():
    assert DEFAULTS["PAGE_SIZE"] == settings.PAGE_SIZE


def test_a_setting_follows_the_project_and_changes_with_it():
    with override_settings(MCP_DJANGO={"PAGE_SIZE": 7}):
        assert settings.PAGE_SIZE == 7
    assert DEFAULTS["PAGE_SIZE"] == settings.PAGE_SIZE


def test_dotted_paths_of_classes_are_imported():
    path = "rest_framework.authentication.TokenAuthentication"
    with override_settings(MCP_DJANGO={"AUTHENTICATION_CLASSES": [path]}):
        assert [TokenAuthentication] == settings.AUTHENTICATION_CLASSES


def test_a_name_that_is_no_setting_is_an_attribute_error():
    with pytest.raises(AttributeError, match="NO_SUCH"):
        _ = settings.NO_SUCH


def test_the_defaults_are_the_safe_side():
    assert DEFAULTS["AUTHENTICATION_CLASSES"]
    assert DEFAULTS["ALLOWED_ORIGINS"] == []
    # What rows hold is read anew each time.
    assert DEFAULTS["CACHE_TTL_MS"].keys().isdisjoint({"read", "resources"})
