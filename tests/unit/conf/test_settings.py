import pytest
from django.test import override_settings
from rest_framework.authentication import TokenAuthentication

from mcp_django.conf import Settings, settings
from mcp_django.conf.defaults import DEFAULTS, SETTINGS
from mcp_django.server.methods.lifecycle_and_subscriptions import CACHEABLE


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
    assert SETTINGS[name].kind.admits(DEFAULTS[name])


@pytest.mark.parametrize("name", SETTINGS)
def test_no_setting_takes_anything(name):
    kind = SETTINGS[name].kind
    assert not kind.admits(object())
    assert kind.hint(object()).startswith("It has to be ")
    assert "Did you mean" not in kind.hint(object())


def test_the_lists_that_clients_may_keep_are_those_of_the_protocol():
    kind = SETTINGS["CACHE_TTL_MS"].kind
    assert kind.admits(dict.fromkeys(CACHEABLE.values(), 1))
    assert not kind.admits({"tool": 1})


PROVIDER = {"issuer": "https://login.example", "jwks_uri": "https://login.example/jwks", "clients": ["claude"]}
MORE = {"link": "email_staff", "create": True, "groups": {"engineering": "Editors"}}


@pytest.mark.parametrize("value", [(), [], [PROVIDER], (PROVIDER | MORE,), [PROVIDER, PROVIDER | MORE]])
def test_identity_providers_are_dicts_with_what_each_needs(value):
    kind = SETTINGS["IDENTITY_PROVIDERS"].kind
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
    kind = SETTINGS["IDENTITY_PROVIDERS"].kind
    assert not kind.admits(value)
    assert hint in kind.hint(value)


# Groups, and keys that are none


def test_a_group_keeps_the_defaults_of_what_the_project_does_not_write():
    with override_settings(MCP_DJANGO={"RATES": {"calls": None}, "SERVER": {}}):
        assert {**DEFAULTS["RATES"], "calls": None} == settings.RATES
        assert settings.SERVER["name"] == "django"


def test_the_log_of_calls_can_be_off():
    for given, found in [
        (False, False),
        (True, DEFAULTS["CALL_LOG"]),
        ({"days": 3}, DEFAULTS["CALL_LOG"] | {"days": 3}),
    ]:
        with override_settings(MCP_DJANGO={"CALL_LOG": given}):
            assert found == settings.CALL_LOG


def test_the_size_of_a_body_is_djangos():
    assert settings.MAX_BODY_BYTES == 2_621_440
    with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=100):
        assert settings.MAX_BODY_BYTES == 100
    with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=None):
        assert settings.MAX_BODY_BYTES == settings.MAX_WORKER_BODY_BYTES // 4
    # One body fits into a worker.
    with override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=10**9):
        assert settings.MAX_WORKER_BODY_BYTES == 10**9


def test_there_are_few_settings_and_no_name_is_both_one_and_none():
    # COMPILED_QUERIES is a way back for the one thing that rests on Django's internals, and nothing to set up.
    # For how long values of the project's rows are kept beside them, each project has to decide (UNDO_DAYS).
    # Whether a yes has to be a person's is a decision too (CONFIRM).
    # So is whether mails go out to people (APPROVAL_MAILS).
    # Long work has an engine, and limits that are not those of calls (TASK_BACKEND, TASK_ROWS, TASK_TIMEOUT).
    assert len(SETTINGS) <= 37
    assert not SETTINGS.keys() & vars(Settings).keys()
