from typing import Any

import pytest
from django import forms
from django.contrib.admin import site as admin_site
from django.contrib.admin import widgets

from mcp_django.emulation.html_forms import Button, posted, read_forms
from mcp_django.emulation.page_requests import as_query
from tests.testapp.models import Book


def form(html):
    return read_forms(f"<form>{html}</form>")[1]


@pytest.mark.parametrize(
    ("html", "entries"),
    [
        ('<input name="a" value="1 &amp; 2">', [("a", "1 & 2")]),
        ("<input name=a><input name='b' value=x>", [("a", ""), ("b", "x")]),
        ('<input type="HIDDEN" name="a" value="1">', [("a", "1")]),
        ('<input type="checkbox" name="a" checked><input type="checkbox" name="b">', [("a", "on")]),
        ('<input type="radio" name="a" value="1"><input type="radio" name="a" value="2" checked>', [("a", "2")]),
        ('<input name="a" disabled><input value="x"><input type="file" name="f"><input type="reset" name="r">', []),
        ('<select name="a"><option value="1">One<option>Two</select>', [("a", "1")]),
        ('<select name="a"><option value="1">One</option><option selected> Two </option></select>', [("a", "Two")]),
        ('<select name="a" multiple><option selected>1<option>2<option selected>3</select>', [("a", "1"), ("a", "3")]),
        ('<select name="a" multiple><option>1</select><select disabled name="b"><option>1</select>', []),
        ("<select name='a'></select>", []),
        ("<textarea name='a'>\n\n x &lt;b&gt;\n</textarea>", [("a", "\n x <b>\n")]),
        ("<textarea>x</textarea><textarea disabled name='b'>x</textarea>", []),
    ],
)
def test_entries_are_those_that_a_browser_posts(html, entries):
    assert form(html).entries == entries


def test_named_buttons_are_found_and_not_posted_by_themselves():
    found = form(
        '<input type="submit" name="apply" value="Go"><input type="submit" value="x">'
        '<button name="b" value="1"> Do\n it </button><button type="button" name="c">No</button><button>X</button>'
    )
    assert found.buttons == [Button("apply", "Go", "Go"), Button("b", "1", "Do it")]
    assert found.entries == []


def test_controls_tell_what_may_be_entered():
    found = form(
        '<input type="hidden" name="h"><input name="a" required><select name="b" multiple><option>1<option>2</select>'
        '<input type="radio" name="c" value="x"><input type="radio" name="c" value="y">'
        '<input type="checkbox" name="d" value="1"><input type="checkbox" name="d" value="2">'
    ).controls
    assert list(found) == ["a", "b", "c", "d"]
    assert [control.required for control in found.values()] == [True, False, False, False]
    assert [control.many for control in found.values()] == [False, True, False, True]
    assert [control.choices for control in found.values()] == [[], ["1", "2"], ["x", "y"], ["1", "2"]]


def test_forms_are_kept_apart_with_their_text():
    outside, first, second = read_forms(
        "<title>T</title><p>Out</p><input name='o'><form action='/a' method=POST><p>Sure\n  now?</p><label>L</label>"
        "<script>s<b>s</b></script><style>c</style></form><form><input name=x></form> after"
    )
    assert (outside.text, outside.entries) == (["Out", "after"], [("o", "")])
    assert (first.action, first.method, first.text) == ("/a", "post", ["Sure now?"])
    assert (second.method, second.entries) == ("get", [("x", "")])


@pytest.mark.parametrize(
    "html", ["", "<", "<form", "</form></select>", "<select name=a><option", "<!--", "<![CDATA[", "&#x;"]
)
def test_broken_html_is_read_as_far_as_it_goes(html):
    assert read_forms(html)[0].method == "get"


def test_a_large_page_is_read_in_one_go():
    assert len(form("<input name='a' value='1'>" * 20_000).entries) == 20_000


@pytest.mark.parametrize(
    ("widget", "value", "entries"),
    [
        (forms.TextInput(), "a <b>", [("f", "a <b>")]),
        (forms.TextInput(), None, [("f", "")]),
        (forms.NumberInput(), 1.5, [("f", "1.5")]),
        (forms.Textarea(), "\nx", [("f", "\nx")]),
        (forms.CheckboxInput(), True, [("f", "on")]),
        (forms.CheckboxInput(), False, []),
        (forms.NullBooleanSelect(), None, [("f", "unknown")]),
        (forms.NullBooleanSelect(), False, [("f", "false")]),
        (forms.Select(choices=[("a", "A")]), "a", [("f", "a")]),
        (forms.Select(), None, [("f", "")]),
        (forms.SelectMultiple(), [1, 2], [("f", "1"), ("f", "2")]),
        (forms.SelectMultiple(), None, []),
        (forms.CheckboxSelectMultiple(), ["x"], [("f", "x")]),
        (forms.RadioSelect(), "x", [("f", "x")]),
        (forms.FileInput(), "x", []),
        (widgets.AdminFileWidget(), "x", []),
        (widgets.AdminSplitDateTime(), None, [("f_0", ""), ("f_1", "")]),
        (widgets.AdminSplitDateTime(), ["2030-01-02", "03:04:05.6"], [("f_0", "2030-01-02"), ("f_1", "03:04:05.6")]),
        (forms.SelectDateWidget(years=[2030]), "2030-01-02", [("f_month", "1"), ("f_day", "2"), ("f_year", "2030")]),
        (forms.MultipleHiddenInput(), [1, 2], [("f", "1"), ("f", "2")]),
    ],
)
def test_a_widget_posts_what_it_shows(widget, value, entries):
    assert posted(widget, "f", value) == entries
    names = {name for name, _ in entries}
    if entries and value is not None and not isinstance(widget, forms.MultiWidget):
        assert widget.value_from_datadict(as_query(entries), {}, "f") not in (None, "", [])
    assert all(name.startswith("f") for name in names)


def test_a_widget_in_the_admins_wrapper_and_a_list_of_raw_keys():
    wrapped = widgets.RelatedFieldWidgetWrapper(forms.Select(), Book._meta.get_field("author").remote_field, admin_site)
    assert posted(wrapped, "f", 5) == [("f", "5")]
    raw = widgets.ManyToManyRawIdWidget(Book._meta.get_field("tags").remote_field, admin_site)
    assert posted(raw, "f", [1, 2]) == [("f", "1,2")]


def test_options_of_a_select_are_never_read():
    all_rows: Any = lambda: pytest.fail("a table was read")  # noqa: E731
    assert posted(forms.Select(choices=all_rows), "f", 5) == [("f", "5")]
