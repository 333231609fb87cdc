import pytest
from django.test import override_settings
from rest_framework.authentication import TokenAuthentication

from mcp_django.conf import (
    DEFAULTS,
    FLAG,
    HOST_NAME,
    SETTINGS,
    SO_MANY,
    TEXT,
    choice,
    either,
    items,
    nearest,
    number,
    own_host,
    settings,
    times,
    whole,
)
from mcp_django.server.methods.lifecycle import CACHEABLE


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
        (FLAG, "no", "False"),
        (FLAG, " Off ", "False"),
        (FLAG, 1, "True"),
        (whole(1), "1_000", "1000"),
        (whole(1), 20.0, "20"),
        (number(), "0.5", "0.5"),
        (SO_MANY.or_none(), "600/minute", "'600/m'"),
        (SO_MANY.or_none(), "30 per hour", "'30/h'"),
        (choice("open", "off"), "Off", "'off'"),
        (items("names", TEXT), "one", "['one']"),
        (times("tools"), "60", "60"),
    ],
)
def test_a_near_miss_says_what_was_meant(kind, value, meant):
    assert not kind.admits(value)
    assert kind.hint(value).endswith(f"Did you mean {meant}?")


@pytest.mark.parametrize(
    ("kind", "value"),
    [(FLAG, "perhaps"), (whole(1), "0"), (whole(1), "x"), (number(), "nan"), (number(), "inf"), (SO_MANY, "600/w")],
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


@pytest.mark.parametrize("name", ["claude.ai", ".example.com", "localhost", "xn--80ak6aa92e.com", "a-b.c9"])
def test_a_host_is_a_name_in_lower_case(name):
    assert HOST_NAME.admits(name)


@pytest.mark.parametrize(
    "name", ["", ".", "*", "*.example.com", "Claude.ai", "https://a.example", "a.example/", "a.example:443", "a..b", 7]
)
def test_what_is_more_or_less_than_a_host_is_none(name):
    assert not HOST_NAME.admits(name)


@pytest.mark.parametrize("name", ["localhost:8443", "login.intranet", "a.b:1"])
def test_a_host_of_ones_own_may_have_a_port(name):
    assert own_host().admits(name)


@pytest.mark.parametrize(
    "name", ["", ":1", "a:", "a:x", "a:0", "a:65536", ".intranet", "a:1:2", "http://a", None, "a:-1"]
)
def test_a_port_is_a_number(name):
    assert not own_host().admits(name)


def test_a_setting_can_be_of_one_of_two_kinds():
    kind = either(choice("all", "off"), items("hosts", HOST_NAME))
    assert [kind.admits(value) for value in ("all", ["claude.ai"], [])] == [True] * 3
    assert [kind.admits(value) for value in ("claude.ai", ["all.example/"], None)] == [False] * 3
    assert "Did you mean ['claude.ai']?" in kind.hint("claude.ai")
    assert "Did you mean 'all'?" in kind.hint("All")


PROVIDER = {"issuer": "https://login.example", "jwks_uri": "https://login.example/jwks", "clients": ["claude"]}
MORE = {"link": "email_staff", "create": True, "groups": {"engineering": "Editors"}}


@pytest.mark.parametrize("value", [(), [], [PROVIDER], (PROVIDER | MORE,), [PROVIDER, PROVIDER | MORE]])
def test_identity_providers_are_dicts_with_what_each_needs(value):
    kind = SETTINGS["IDENTITY_PROVIDERS"][1]
    assert kind.admits(value)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (PROVIDER, "a list of dicts"),
        ("https://login.example", "a list of dicts"),
        (None, "a list of dicts"),
        ([PROVIDER, "x"], "Number 2: it has to be a dict with issuer, jwks_uri"),
        ([{}], "Number 1: it lacks clients, issuer, jwks_uri."),
        ([{**PROVIDER, "jwks_url": "https://a.example/"}], "there is no member 'jwks_url'. Did you mean 'jwks_uri'?"),
        (
            [{**PROVIDER, "issuer": "http://login.example"}],
            "issuer is 'http://login.example'. It has to be an https URL",
        ),
        ([{**PROVIDER, "issuer": "https://user@login.example"}], "issuer is"),
        ([{**PROVIDER, "issuer": f"https://login.example/{'x' * 300}"}], "issuer is"),
        ([{**PROVIDER, "jwks_uri": "file:///etc/passwd"}], "jwks_uri is"),
        ([{**PROVIDER, "jwks_uri": "https://a.example/#keys"}], "jwks_uri is"),
        ([{**PROVIDER, "clients": "claude"}], "clients is 'claude'. It has to be a list of client ids. Did you mean"),
        ([{**PROVIDER, "clients": [1]}], "clients is"),
        ([{**PROVIDER, "link": "mail"}], "link is 'mail'. It has to be 'subject', 'email' or 'email_staff'."),
        ([{**PROVIDER, "create": "yes"}], "create is 'yes'. It has to be True or False. Did you mean True?"),
        ([{**PROVIDER, "groups": ["engineering"]}], "groups is ['engineering']. It has to be a dict of names by name."),
        ([{**PROVIDER, "groups": {"engineering": 1}}], "groups is"),
        ([{**PROVIDER, "groups": {"": "Editors"}}], "groups is"),
    ],
)
def test_what_is_wrong_with_an_identity_provider_is_said(value, hint):
    kind = SETTINGS["IDENTITY_PROVIDERS"][1]
    assert not kind.admits(value)
    assert hint in kind.hint(value)
