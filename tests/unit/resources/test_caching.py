"""How long clients may keep lists and contents."""

import pytest
from django.test import override_settings
from mcp_types.methods import CACHEABLE_METHODS

from mcp_django.resources.caching import CACHEABLE, cache_ttl


@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        (0, [0, 0, 0, 0, 0, 0]),
        (5000, [5000] * 6),
        ({}, [0, 0, 0, 0, 0, 0]),
        ({"tools": 1, "prompts": 2, "resources": 3, "templates": 4, "read": 5, "discover": 6}, [1, 2, 3, 4, 5, 6]),
    ],
    ids=str,
)
def test_194_each_list_may_be_kept_as_long_as_the_setting_says(configured, expected):
    methods = (
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "server/discover",
    )
    assert set(methods) == set(CACHEABLE) == CACHEABLE_METHODS
    with override_settings(MCP_DJANGO={"CACHE_TTL_MS": configured}):
        assert [cache_ttl(method) for method in methods] == expected


def test_lists_that_are_told_of_when_they_change_may_be_kept_for_a_minute_by_default():
    kept = {method for method in CACHEABLE if cache_ttl(method) == 60_000}
    assert kept == {"tools/list", "prompts/list", "resources/templates/list", "server/discover"}
    assert {cache_ttl(method) for method in CACHEABLE.keys() - kept} == {0}


def test_194_what_no_client_may_keep_has_no_time():
    with override_settings(MCP_DJANGO={"CACHE_TTL_MS": {"tools": 5}}):
        assert cache_ttl("tools/call") == 0
