"""Functions that were declared: looked at at once, read when somebody asks, and refused with their place."""

import inspect
import re
from functools import partial
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

import mcp_django as mcp
from mcp_django import MCPSite
from mcp_django.checks.declarations import after_declarations, check_declarations
from mcp_django.exceptions import AlreadyRegistered
from mcp_django.functions.declared_functions import (
    OPTIONS,
    Declared,
    Unread,
    check_tool_name,
    look,
    look_at,
)
from mcp_django.resources.function_resources import FunctionResource
from mcp_django.resources.prompts import Prompt
from mcp_django.tools.function_tools import FunctionTool


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> MCPSite:
    made = MCPSite("declared")
    monkeypatch.setattr("mcp_django.checks.declarations.all_sites", lambda: [made])
    return made


def here(function):
    return f"({Path(__file__)}, line {function.__code__.co_firstlineno})"


@pytest.mark.parametrize(
    ("kind", "made", "own"),
    [
        ("tool", FunctionTool, ("self", "function")),
        ("prompt", Prompt, ("self", "function")),
        ("resource", FunctionResource, ("self", "uri", "function")),
    ],
)
def test_the_options_are_those_of_what_is_made(kind, made, own):
    assert sorted(OPTIONS[kind]) == sorted(set(inspect.signature(made.__init__).parameters) - set(own))


def test_an_option_that_there_is_not_is_refused_with_the_nearest(site):
    with pytest.raises(
        TypeError, match=r"tool\(\) got an unexpected keyword argument 'readonly'. Did you mean 'read_o"
    ):
        mcp.tool(lambda request: "", site=site, readonly=True)
    with pytest.raises(TypeError, match="names of Django's permissions go to permissions"):
        mcp.tool(lambda request: "", name="own", site=site, permission=["shop.view_order"])
    with pytest.raises(TypeError, match=r"prompt\(\) takes a function, not 'triage'"):
        look("prompt", "triage", {})


def wrong_tool(request, rows: complex) -> str:
    """Its annotation has no JSON form."""


def wrong_prompt(request, order: "NoSuchModel") -> str:  # noqa: F821
    """Its annotation names nothing."""


def wrong_resource(request) -> str:
    """It has no parameter for what the URI gives."""


@pytest.fixture
def broken(site):
    mcp.tool(wrong_tool, site=site)
    mcp.prompt(wrong_prompt, site=site)
    mcp.resource("note://{number}", site=site)(wrong_resource)
    return site


def test_what_cannot_be_read_is_an_error_that_names_its_place(broken):
    for ask, function in [
        (broken.function_tools, wrong_tool),
        (lambda: broken.prompts["wrong_prompt"], wrong_prompt),
        (lambda: list(broken.resources.values()), wrong_resource),
        (broken.prepare, wrong_tool),
    ]:
        with pytest.raises(ImproperlyConfigured) as error:
            ask()
        assert function.__name__ in str(error.value)
        assert here(function) in str(error.value)


def test_a_check_tells_of_all_of_them_and_others_wait(broken):
    found = check_declarations()
    assert [message.id for message in found] == ["mcp_django.E036"] * 3
    for message, function in zip(found, (wrong_tool, wrong_prompt, wrong_resource), strict=True):
        assert "of the site 'declared' cannot be read: " in message.msg
        assert here(function) in message.msg
    assert after_declarations(lambda **kwargs: ["found"])() == []
    broken.remove_tool("wrong_tool")
    broken.remove_prompt("wrong_prompt")
    broken.remove_resource("note://{number}")
    assert check_declarations() == []
    assert after_declarations(lambda **kwargs: ["found"])() == ["found"]


def test_names_are_taken_before_anything_is_read(broken):
    with pytest.raises(AlreadyRegistered):
        mcp.tool(wrong_tool, site=broken)
    with pytest.raises(AlreadyRegistered):
        mcp.prompt(wrong_prompt, site=broken)
    with pytest.raises(AlreadyRegistered):
        mcp.resource("note://{number}", site=broken)(wrong_resource)
    assert len(broken.prompts) == 1
    assert "wrong_prompt" in broken.prompts


MADE: list[str] = []


def make(function, *, name):
    MADE.append(name)
    return function(name)


def fail(function):
    raise KeyError("x")


HERE = "tests.unit.functions.test_declared_functions_declarations"


def test_each_is_read_once():
    MADE.clear()
    declared = Declared({"a": Unread(f"{HERE}.make", str.upper, {"name": "first"}), "b": 7})
    assert (list(declared), len(declared), MADE) == (["a", "b"], 2, [])
    assert (declared["a"], declared["a"], list(declared.values()), dict(declared.items())) == (
        *("FIRST", "FIRST", ["FIRST", 7]),
        {"a": "FIRST", "b": 7},
    )
    more = Declared(declared, {"c": Unread(f"{HERE}.make", str.title, {"name": "second"})})
    assert (list(more.values()), list(declared), list(more.without("a"))) == (
        *(["FIRST", 7, "Second"], ["a", "b"]),
        ["b", "c"],
    )
    assert MADE == ["first", "second"]


def test_any_error_of_reading_has_its_place():
    with pytest.raises(ImproperlyConfigured, match=rf"fail: 'x' \(.*{Path(__file__).name}, line \d+\)"):
        Unread(f"{HERE}.fail", fail, {}).read()
    with pytest.raises(ImproperlyConfigured, match=r"functools\.partial"):
        Unread(f"{HERE}.fail", partial(len, []), {}).read()


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
        (lambda request, year: "", {}, "year needs a type annotation, which tells clients what it takes"),
        (lambda request, year=None: "", {}, "year needs a type annotation"),
        (lambda request, *years: "", {}, "years: arguments are passed by name"),
        (lambda request, *years: "", {"untyped": True}, "years: arguments are passed by name"),
        (lambda request, **more: "", {}, "more: arguments are passed by name"),
        (fine, {"permissions": "shop.view_order"}, 'fine: permissions must be a list such as ["shop.view_order"]'),
        (fine, {"permissions": ["view_order"]}, "fine: permissions must be a list"),
    ],
)
def test_what_no_client_could_call_is_refused(function, options, text):
    with pytest.raises(ImproperlyConfigured, match=re.escape(text)):
        look_at(function, **options)


def test_a_schema_of_ones_own_or_text_for_all_needs_no_annotation():
    assert look_at(lambda request, **more: "", takes_any=True) == "<lambda>"
    assert look_at(lambda request, year: "", untyped=True) == "<lambda>"


@pytest.mark.parametrize("name", ["Not A Name", "", "a" * 65, "ä", "a-b"])
def test_a_name_that_a_client_would_mangle_is_refused(name):
    with pytest.raises(ImproperlyConfigured, match="cannot name a tool"):
        check_tool_name(name)
    check_tool_name("a" * 64)
