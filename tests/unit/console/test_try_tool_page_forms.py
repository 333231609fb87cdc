import pytest
from django.http import QueryDict

from mcp_django.console.try_tool_page import SchemaForm

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Full name", "description": "As it is written"},
        "count": {"type": "integer"},
        "rate": {"type": "number", "default": 0.5},
        "sure": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "colours": {"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}},
        "size": {"enum": [1, 2, "big"]},
        "mood": {"type": "string", "oneOf": [{"const": "g", "title": "Good"}, {"const": "b", "title": "Bad"}]},
        "filters": {"type": "object"},
        "any": {},
        "limited": {"type": ["string", "null"]},
        "odd": True,
    },
    "required": ["name"],
}


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ({"type": "string", "format": "date-time"}, "2026-07-28T14:30:00Z"),
        ({"type": "string", "format": "date"}, "tomorrow"),
        ({"type": "integer"}, "ten"),
        ({"type": "number"}, "1,5"),
    ],
)
def test_a_value_of_a_link_is_shown_whatever_it_is(part, value):
    form = SchemaForm({"properties": {"it": part}}, prefix="arg", initial={"it": value})
    assert f'<input type="text" name="arg-it" value="{value}"' in str(form["it"])


def given(text):
    form = SchemaForm(SCHEMA, QueryDict(text), prefix="arg")
    return form.values_given() if form.is_valid() else form.errors


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("arg-name=", {}),
        ("arg-name=Ada", {"name": "Ada"}),
        ("arg-name= Ada ", {"name": " Ada "}),
        ("arg-count=0&arg-rate=0", {"count": 0, "rate": 0.0}),
        ("arg-sure=false", {"sure": False}),
        ("arg-sure=true", {"sure": True}),
        ("arg-tags=a%0Ab%0A%0A", {"tags": ["a", "b"]}),
        ('arg-tags={"ratio": ["a"]}%0A{no json', {"tags": [{"ratio": ["a"]}, "{no json"]}),
        ("arg-colours=red&arg-colours=blue", {"colours": ["red", "blue"]}),
        ("arg-size=2", {"size": 2}),
        ("arg-size=big", {"size": "big"}),
        ("arg-mood=g", {"mood": "g"}),
        ('arg-filters={"a": 1}', {"filters": {"a": 1}}),
        ("arg-any=7", {"any": 7}),
        ("arg-any=plain", {"any": "plain"}),
        ("arg-limited=null", {"limited": None}),
        ("arg-limited=text", {"limited": "text"}),
        ("arg-odd=[1]", {"odd": [1]}),
        ("name=Ada&other=1", {}),
    ],
)
def test_what_is_entered_becomes_json(text, values):
    values = {name: value for name, value in values.items() if value is not None}
    assert given(text) == values


@pytest.mark.parametrize(
    "text", ["arg-count=x", "arg-rate=x", "arg-filters={", "arg-size=3", "arg-colours=green", "arg-sure=perhaps"]
)
def test_what_no_value_is_made_of_is_an_error(text):
    assert set(given(text)) == {text.partition("=")[0].removeprefix("arg-")}


def test_deeply_nested_json_is_an_error():
    assert "filters" in given("arg-filters=" + "[" * 100_000)


def test_titles_and_descriptions_are_shown_as_text():
    schema = {"properties": {"x": {"type": "string", "title": "<b>x</b>", "description": "<script>alert(1)</script>"}}}
    field = SchemaForm(schema, prefix="arg")["x"]
    assert field.label == "<b>x</b>"
    assert "<script>" not in str(field.help_text.__html__() if hasattr(field.help_text, "__html__") else "")
    assert "<b>" not in str(field.label_tag())


def test_values_that_were_given_stand_in_the_form_again():
    values = {"name": "Ada", "tags": ["a", {"b": 1}], "filters": {"c": 2}, "sure": False, "size": 2, "colours": ["red"]}
    form = SchemaForm(SCHEMA, initial=values, prefix="arg")
    sent = QueryDict(mutable=True)
    for field in form:
        value = field.value()
        if value is not None:
            sent.setlist(field.html_name, value if isinstance(value, list) else [value])
    again = SchemaForm(SCHEMA, sent, prefix="arg")
    assert again.is_valid(), again.errors
    assert again.values_given() == {**values, "rate": 0.5}


def test_what_the_schema_requires_is_marked_and_left_to_the_tool():
    form = SchemaForm(SCHEMA, QueryDict(""), prefix="arg")
    assert form.is_valid()
    assert form.fields["name"].is_asked_for
    assert not form.fields["count"].is_asked_for
