"""What is refused of a function when it is declared."""

import re

import pytest
from django.core.exceptions import ImproperlyConfigured

from mcp_django.functions.signatures import check_tool_name, given_by_name, look_at


def fine(request, year: int, *, month=1, name: "Unknown" = None) -> "Nothing":  # noqa: F821
    """What annotations name is not looked for."""


def test_a_function_is_known_by_its_name_or_the_one_that_it_is_given():
    assert look_at(fine) == "fine"
    assert look_at(fine, name="other", permissions=["shop.view_order"]) == "other"


@pytest.mark.parametrize(
    ("function", "options", "text"),
    [
        (lambda: "", {"name": "f"}, "f must take the request as its first parameter, named request"),
        (lambda year: "", {"name": "f"}, "f must take the request"),
        (lambda *, request: "", {"name": "f"}, "f must take the request"),
        (lambda request, year: "", {}, "year needs a type annotation, from which clients learn what it takes"),
        (lambda request, year=None: "", {}, "year needs a type annotation"),
        (lambda request, *years: "", {}, "years: arguments are given by name"),
        (lambda request, *years: "", {"untyped": True}, "years: arguments are given by name"),
        (lambda request, **more: "", {}, "more: arguments are given by name"),
        (fine, {"permissions": "shop.view_order"}, 'fine: permissions are a list such as ["shop.view_order"]'),
        (fine, {"permissions": ["view_order"]}, "fine: permissions are a list"),
    ],
)
def test_what_no_client_could_call_is_refused(function, options, text):
    with pytest.raises(ImproperlyConfigured, match=re.escape(text)):
        look_at(function, **options)


def test_a_schema_of_ones_own_or_text_for_all_needs_no_annotation():
    assert look_at(lambda request, **more: "", takes_any=True) == "<lambda>"
    assert look_at(lambda request, year: "", untyped=True) == "<lambda>"


def test_what_the_app_fills_in_is_skipped():
    assert [item.name for item in given_by_name(fine, ("request", "year"))] == ["month", "name"]


@pytest.mark.parametrize("name", ["Not A Name", "", "a" * 65, "ä", "a-b"])
def test_a_name_that_a_client_would_mangle_is_refused(name):
    with pytest.raises(ImproperlyConfigured, match="cannot name a tool"):
        check_tool_name(name)
    check_tool_name("a" * 64)
