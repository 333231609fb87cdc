import pytest
from django.test import override_settings
from rest_framework.authentication import TokenAuthentication

from mcp_django.conf import (
    DEFAULTS,
    SETTINGS,
    choice,
    flag,
    items,
    nearest,
    number,
    rate,
    settings,
    text,
    times,
    whole,
)
from mcp_django.resources.caching import CACHEABLE


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


@pytest.mark.parametrize("name", SETTINGS)
def test_each_default_is_what_its_setting_can_be(name):
    assert SETTINGS[name][1].admits(DEFAULTS[name])


@pytest.mark.parametrize("name", SETTINGS)
def test_no_setting_takes_anything(name):
    _, kind = SETTINGS[name]
    assert not kind.admits(object())
    assert kind.hint(object()).startswith("It has to be ")
    assert "Did you mean" not in kind.hint(object())


@pytest.mark.parametrize(
    ("kind", "value", "meant"),
    [
        (flag(), "no", "False"),
        (flag(), " Off ", "False"),
        (flag(), 1, "True"),
        (whole(1), "1_000", "1000"),
        (whole(1), 20.0, "20"),
        (number(), "0.5", "0.5"),
        (rate().or_none(), "600/minute", "'600/m'"),
        (rate().or_none(), "30 per hour", "'30/h'"),
        (choice("open", "off"), "Off", "'off'"),
        (items("names", text()), "one", "['one']"),
        (times("tools"), "60", "60"),
    ],
)
def test_a_near_miss_says_what_was_meant(kind, value, meant):
    assert not kind.admits(value)
    assert kind.hint(value).endswith(f"Did you mean {meant}?")


@pytest.mark.parametrize(
    ("kind", "value"),
    [(flag(), "perhaps"), (whole(1), "0"), (whole(1), "x"), (number(), "nan"), (number(), "inf"), (rate(), "600/w")],
)
def test_nothing_is_guessed_that_would_be_refused_again(kind, value):
    assert "Did you mean" not in kind.hint(value)


def test_names_are_near_whatever_their_case():
    assert nearest("pagesize", ["PAGE_SIZE", "SESSIONS"]) == " Did you mean 'PAGE_SIZE'?"
    assert nearest("colour", ["PAGE_SIZE", "SESSIONS"]) == ""


def test_the_lists_that_clients_may_keep_are_those_of_the_protocol():
    _, kind = SETTINGS["CACHE_TTL_MS"]
    assert kind.admits(dict.fromkeys(CACHEABLE.values(), 1))
    assert not kind.admits({"tool": 1})
