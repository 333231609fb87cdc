"""URI templates: what matches, what does not, and how long it takes."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_django.protocol import uri_templates
from mcp_django.protocol.uri_templates import UriTemplate
from tests.cases import drawn
from tests.line_counts import is_linear

pytestmark = pytest.mark.one_django

ROW = UriTemplate("django://{app}/{model}/{pk}")
PAGE = UriTemplate("django://{app}/{model}{?cursor,search}")


@pytest.mark.parametrize(
    ("template", "uri", "expected"),
    [
        ("shop://policy", "shop://policy", {}),
        ("shop://policy", "shop://policy/", None),
        ("shop://policy", "shop://polic", None),
        ("django://{app}/{model}/{pk}", "django://shop/order/5", {"app": "shop", "model": "order", "pk": "5"}),
        (
            "django://{app}/{model}/{pk}",
            "django://shop/order/A%2F1%20%C3%A9",
            {"app": "shop", "model": "order", "pk": "A/1 é"},
        ),
        ("django://{app}/{model}/{pk}", "django://shop/order/5/name", None),
        ("django://{app}/{model}/{pk}", "django://shop/order/", None),
        ("django://{app}/{model}/{pk}", "django://shop//5", None),
        ("django://{app}/{model}/{pk}", "django://shop/order/5?x=1", None),
        ("django://{app}/{model}/{pk}", "django://shop/order/5#top", None),
        ("x://{name}.json", "x://a.b.json", {"name": "a.b"}),
        ("x://{name}.json", "x://.json", None),
        ("x://{a}-{b}", "x://1-2-3", {"a": "1", "b": "2-3"}),
        ("x://{a}-{b}", "x://--1", {"a": "-", "b": "1"}),
        ("x://{a}--{b}--z", "x://1--2--z", {"a": "1", "b": "2"}),
        ("x://{a}--{b}--z", "x://1--z", None),
        ("x://aa{a}aa", "x://aaa", None),
        ("x://{+path}/end", "x://a/b?c#d/end", {"path": "a/b?c#d"}),
        ("x://{+path}", "x://", None),
    ],
)
def test_a_uri_matches_its_template_and_no_other(template: str, uri: str, expected: dict[str, str] | None) -> None:
    assert UriTemplate(template).match(uri) == expected


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("django://shop/order", {}),
        ("django://shop/order?search=a%20b&cursor=c%3D", {"search": "a b", "cursor": "c="}),
        ("django://shop/order?search=a+b", {"search": "a b"}),
        ("django://shop/order?search=a%2Bb", {"search": "a+b"}),
        ("django://shop/order?search=", {"search": ""}),
        ("django://shop/order?search=x?y", {"search": "x?y"}),
        ("django://shop/order?", None),
        ("django://shop/order?search", None),
        ("django://shop/order?other=1", None),
        ("django://shop/order?search=1&search=2", None),
        ("django://shop/order?search=1&cursor=2&other=3", None),
        ("django://shop/order?search=%FF", None),
    ],
)
def test_members_of_the_query_are_optional_but_never_unknown_or_repeated(
    uri: str, expected: dict[str, str] | None
) -> None:
    found = PAGE.match(uri)
    assert found == (None if expected is None else {"app": "shop", "model": "order", **expected})


@pytest.mark.parametrize("text", ["%", "%4", "%zz", "%FF", "%C3", "a%00b", "%ED%A0%80", "%+1"])
def test_broken_percent_encoding_is_no_match(text: str) -> None:
    assert ROW.match(f"django://shop/order/{text}") is None
    with pytest.raises(ValueError, match=r"."):
        UriTemplate.decode(text)


@pytest.mark.parametrize(
    "template",
    [
        "",
        "shop",
        "{scheme}://x",
        "{+uri}",
        "x://{a}{b}",
        "x://{a,b}",
        "x://{a}/{a}",
        "x://{a}{?a}",
        "x://{?a}/b",
        "x://{a",
        "x://a}",
        "x://{}",
        "x://{a*}",
        "x://{/a}",
        "x://{#a}",
        "x://{a:3}",
        "x://{a b}",
    ],
)
def test_a_template_outside_the_subset_is_refused_when_it_is_compiled(template: str) -> None:
    with pytest.raises(ValueError, match=r"scheme|supported|twice|between|end|clos"):
        UriTemplate(template)


def test_expand_encodes_what_a_value_must_not_say() -> None:
    assert ROW.expand({"app": "shop", "model": "order", "pk": "A/1 ?é"}) == "django://shop/order/A%2F1%20%3F%C3%A9"
    assert UriTemplate("x://{+path}").expand({"path": "a/b c"}) == "x://a/b%20c"
    assert PAGE.expand({"app": "a", "model": "m", "search": "x&y=z", "cursor": None}) == "django://a/m?search=x%26y%3Dz"
    assert PAGE.expand({"app": "a", "model": "m"}) == "django://a/m"
    assert UriTemplate("x://static").expand({}) == "x://static"


def test_expand_needs_a_value_for_each_variable_of_the_path() -> None:
    with pytest.raises(ValueError, match="'pk'"):
        ROW.expand({"app": "shop", "model": "order", "pk": ""})


def test_a_template_says_what_it_binds() -> None:
    assert (PAGE.variables, PAGE.query, PAGE.is_template) == (("app", "model"), ("cursor", "search"), True)
    assert not UriTemplate("x://static").is_template


@settings(max_examples=drawn(100))
@given(st.text(min_size=1).filter(lambda text: "\0" not in text and text.isprintable()), st.text())
def test_what_was_expanded_matches_back(pk: str, search: str) -> None:
    assert ROW.match(ROW.expand({"app": "a", "model": "m", "pk": pk})) == {"app": "a", "model": "m", "pk": pk}
    if "\0" not in search:
        uri = PAGE.expand({"app": "a", "model": "m", "search": search})
        assert PAGE.match(uri) == {"app": "a", "model": "m", "search": search}
    assert UriTemplate.decode(UriTemplate.encode(pk)) == pk


@pytest.mark.parametrize(
    "unit", ["/", "a/", "{", "%", "%41", "%zz", "-", "--", "?", "&", "search=1&", "a-", "\ud800", "é", "=", "+"]
)
def test_row_161_hostile_uris_of_64_kib_take_linear_time(unit: str) -> None:
    templates = [ROW, PAGE, UriTemplate("django://{a}-{b}-{c}-{d}!"), UriTemplate("django://{+a}--{+b}/{c}{?d}")]
    for template in templates:
        for start in ("django://", "django://a/b?", ""):
            assert is_linear(lambda size, match=template.match, start=start: match(start + (unit * size)[:size]))


def test_row_161_no_regular_expression_can_go_back_far() -> None:
    patterns = [value for value in vars(uri_templates).values() if isinstance(value, re.Pattern)]
    assert len(patterns) == 4
    assert not any(set(re.sub(r"\[.*?\]", "", pattern.pattern)) & {"*", "+"} for pattern in patterns)


@pytest.mark.parametrize("uri", ["file:///etc/passwd", "http://a/b/c", "data:text/plain,x", "gopher://a/b/c", ""])
def test_row_162_a_uri_of_another_scheme_matches_nothing(uri: str) -> None:
    assert ROW.match(uri) is None
