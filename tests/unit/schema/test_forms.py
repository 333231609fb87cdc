"""Form fields to JSON Schema."""

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django import forms
from django.contrib.postgres.forms import DateRangeField, HStoreField, SimpleArrayField, SplitArrayField
from django.core.validators import RegexValidator
from django.forms import modelform_factory
from jsonschema import Draft202012Validator

from mcp_django.schema.forms import field_schema, form_schema
from tests.testapp.models import Author, Book, Shelf

MOMENT = "ISO 8601 date and time, such as 2026-07-28T14:30:00Z"


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (forms.CharField(), {"type": "string"}),
        (
            forms.CharField(label="Name", help_text="In full.", max_length=5, min_length=2),
            {"type": "string", "minLength": 2, "maxLength": 5, "description": "Name. In full. (2 to 5 characters)"},
        ),
        (
            forms.EmailField(max_length=9),
            {"type": "string", "maxLength": 9, "description": "(email address, at most 9 characters)"},
        ),
        (forms.UUIDField(), {"type": "string", "description": "(UUID)"}),
        (forms.BooleanField(), {"type": "boolean", "description": "(must be true)"}),
        (forms.BooleanField(required=False), {"type": "boolean"}),
        (forms.NullBooleanField(), {"anyOf": [{"type": "boolean"}, {"type": "null"}]}),
        (
            forms.IntegerField(min_value=1, max_value=lambda: 9, initial=3),
            {"type": "integer", "minimum": 1, "maximum": 9, "default": 3, "description": "(1 to 9, default 3)"},
        ),
        (forms.FloatField(min_value=0), {"type": "number", "minimum": 0, "description": "(at least 0)"}),
        (
            forms.DecimalField(max_digits=5, decimal_places=2, min_value=Decimal("0.01")),
            {
                "type": "string",
                "description": "(decimal number as text, such as 12.50, at most 5 digits, "
                "at most 2 decimal places, at least 0.01)",
            },
        ),
        (
            forms.DateField(initial=date(2026, 1, 2)),
            {
                "type": "string",
                "default": "2026-01-02",
                "description": "(ISO 8601 date, such as 2026-07-28, default 2026-01-02)",
            },
        ),
        (forms.DateField(initial=date.today), {"type": "string", "description": "(ISO 8601 date, such as 2026-07-28)"}),
        (forms.DateTimeField(), {"type": "string", "description": f"({MOMENT})"}),
        (forms.SplitDateTimeField(), {"type": "string", "description": f"({MOMENT})"}),
        (
            SimpleArrayField(forms.DateField(), max_length=3),
            {
                "type": "array",
                "items": {"type": "string"},
                "maxItems": 3,
                "description": "(at most 3 items, each: ISO 8601 date, such as 2026-07-28)",
            },
        ),
        (
            SplitArrayField(forms.IntegerField(), size=2),
            {"type": "array", "items": {"type": "integer"}, "maxItems": 2, "description": "(at most 2 items)"},
        ),
        (
            DateRangeField(),
            {
                "type": "array",
                "items": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "minItems": 2,
                "maxItems": 2,
                "description": "(the first value of the range and the first after it, null for no bound, "
                "ISO 8601 date, such as 2026-07-28)",
            },
        ),
        (
            HStoreField(),
            {
                "type": "object",
                "additionalProperties": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "description": "(texts by name)",
            },
        ),
        (forms.TimeField(), {"type": "string", "description": "(time of day, such as 14:30:00)"}),
        (forms.JSONField(), {"description": "(any JSON value)"}),
        (
            forms.ChoiceField(choices=[("", "---"), ("a", "A"), ("Group", [("b", "Second")])]),
            {"type": "string", "enum": ["a", "b"], "description": "(b = Second)"},
        ),
        (
            forms.TypedChoiceField(choices=[(1, "One"), (2, "Two")], coerce=int),
            {"type": "integer", "enum": [1, 2], "description": "(1 = One, 2 = Two)"},
        ),
        (forms.ChoiceField(choices=[(None, "?"), (1, "1"), ("b", "b")]), {"type": "string", "enum": ["1", "b"]}),
        (
            forms.MultipleChoiceField(choices=Book.Status.choices),
            {
                "type": "array",
                "items": {"type": "string", "enum": ["draft", "published", "withdrawn"]},
                "description": "(draft = In preparation)",
            },
        ),
        (
            forms.ChoiceField(choices=[(str(n), str(n)) for n in range(201)]),
            {"type": "string", "description": "(one of 201 values)"},
        ),
    ],
)
def test_R18_a_field_is_a_property_with_its_constraints_in_words(field: forms.Field, expected: dict[str, Any]) -> None:
    found = field_schema(field)
    assert found == expected
    Draft202012Validator.check_schema(found)


def test_a_relation_is_a_key_and_no_row_is_read(django_assert_num_queries: Any, db: None) -> None:
    class Form(forms.Form):
        author = forms.ModelChoiceField(Author.objects.all())
        by_name = forms.ModelChoiceField(Author.objects.all(), to_field_name="name")
        shelves = forms.ModelMultipleChoiceField(Shelf.objects.all(), required=False)

    with django_assert_num_queries(0):
        found = form_schema(Form())
    assert found["properties"] == {
        "author": {"type": "integer", "description": "(primary key of testapp.author)"},
        "by_name": {"type": "string", "description": "(name of testapp.author)"},
        "shelves": {"type": "array", "items": {"type": "string"}, "description": "(primary key of testapp.shelf)"},
    }
    assert found["required"] == ["author", "by_name"]


def test_the_schema_of_a_form_leaves_out_what_cannot_be_written() -> None:
    class Form(forms.Form):
        name = forms.CharField()
        secret = forms.CharField()
        fixed = forms.CharField(disabled=True)
        note = forms.CharField(required=False)

    expected = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "note": {"type": "string"}},
        "required": ["name"],
        "additionalProperties": False,
    }
    assert form_schema(Form, exclude=["secret"]) == expected
    bound = form_schema(Form(), exclude=["secret"])
    assert bound == expected


def test_86_no_expression_of_the_project_reaches_clients_or_runs() -> None:
    class Form(forms.Form):
        code = forms.RegexField(r"^(a+)+$", help_text="Letters.")
        other = forms.CharField(validators=[RegexValidator(r"^(b+)+$")])

    assert form_schema(Form)["properties"] == {
        "code": {"type": "string", "description": "Letters."},
        "other": {"type": "string"},
    }


def test_a_model_form_has_the_schema_of_its_model() -> None:
    form = modelform_factory(Book, fields=["title", "author", "price", "status", "tags", "cover"])
    found = form_schema(form)
    Draft202012Validator.check_schema(found)
    assert list(found["properties"]) == ["title", "author", "price", "status", "tags", "cover"]
    assert found["properties"]["cover"]["type"] == "object"
    assert '{"name": "a.pdf", "base64": "..."}' in found["properties"]["cover"]["description"]
    assert found["required"] == ["title", "author", "price", "status"]
    assert found["properties"]["title"] == {
        "type": "string",
        "maxLength": 200,
        "description": "Title. (at most 200 characters)",
    }
    assert found["properties"]["price"]["description"].startswith("Price. In euro, with tax. (decimal number")
