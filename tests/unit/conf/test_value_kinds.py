import pytest

from mcp_django.conf.value_kinds import (
    FLAG,
    HOST_NAME,
    SO_MANY,
    TEXT,
    choice,
    either,
    items,
    number,
    own_host,
    times,
    whole,
)


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
