"""Django forms as questions."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from django import forms
from django.core.exceptions import ImproperlyConfigured
from mcp_types import ElicitRequestFormParams

from mcp_django.protocol.elicitation import requested_schema
from mcp_django.schema.form_questions import MAX_CHOICES, fields_of, form_schema
from tests.factories import make_author
from tests.testapp.models import Author, Tag

SIZES = [("", "---"), ("s", "Small"), ("More", [("l", "Large"), (3, "Third")])]


def named(value: Any) -> str:
    return type(value).__name__ if isinstance(value, (forms.Field, dict)) or callable(value) else str(value)


def one(field: forms.Field, name: str = "f", **initial: Any) -> Any:
    """Return a new form with this one field."""
    return type("Form", (forms.Form,), {name: field})(initial=initial)


def asked(field: forms.Field, **initial: Any) -> dict[str, Any] | None:
    return fields_of(one(field, **initial))["f"]


@pytest.mark.parametrize(
    ("field", "schema"),
    [
        (forms.CharField(min_length=1, max_length=5), {"type": "string", "minLength": 1, "maxLength": 5}),
        (forms.CharField(widget=forms.Textarea), {"type": "string"}),
        (forms.RegexField(r"[a-z]+"), {"type": "string"}),
        (forms.EmailField(), {"type": "string", "format": "email"}),
        (forms.URLField(assume_scheme="https"), {"type": "string", "format": "uri"}),
        (forms.DateField(), {"type": "string", "format": "date"}),
        (forms.DateTimeField(), {"type": "string", "format": "date-time"}),
        (forms.SplitDateTimeField(), {"type": "string", "format": "date-time"}),
        (forms.TimeField(), {"type": "string", "description": "(time of day, such as 14:30:00)"}),
        (forms.DurationField(), {"type": "string", "description": "(duration, such as 1 12:30:00)"}),
        (forms.JSONField(), {"type": "string", "description": "(JSON)"}),
        (forms.IntegerField(min_value=1, max_value=lambda: 9), {"type": "integer", "minimum": 1, "maximum": 9}),
        (forms.FloatField(min_value=0.5), {"type": "number", "minimum": 0.5}),
        (forms.DecimalField(max_value=Decimal("9.5")), {"type": "number", "maximum": 9.5}),
        (forms.BooleanField(), {"type": "boolean"}),
        (forms.NullBooleanField(), {"type": "boolean"}),
        (forms.ChoiceField(choices=SIZES), {"type": "string", "oneOf": [{"const": "s", "title": "Small"},
            {"const": "l", "title": "Large"}, {"const": "3", "title": "Third"}]}),
        (forms.MultipleChoiceField(choices=[(1, "One")]),
         {"type": "array", "items": {"anyOf": [{"const": "1", "title": "One"}]}, "minItems": 1}),
        (forms.ChoiceField(choices=[(n, n) for n in range(MAX_CHOICES + 1)]), {"type": "string"}),
        (forms.CharField(label="Whose", help_text="Anyone's."), {"type": "string", "description": "Anyone's."}),
        (forms.FileField(required=False), None),
        (forms.CharField(widget=forms.PasswordInput, required=False), None),
        (forms.MultipleChoiceField(choices=[], required=False), None),
        (forms.MultiValueField([forms.CharField(), forms.CharField()], widget=forms.TextInput), None),
    ],
    ids=named,
)  # fmt: skip
def test_fields_are_plain_fields(field: forms.Field, schema: Any) -> None:
    found = asked(field)
    assert found == (schema and {**schema, "title": str(field.label or "F")})
    if found:
        form = requested_schema({"properties": {"f": found}}, "2026-07-28")
        ElicitRequestFormParams.model_validate({"message": "?", "requestedSchema": form})


@pytest.mark.parametrize(
    ("field", "initial", "default"),
    [
        (forms.CharField(), "Ada", "Ada"),
        (forms.CharField(), lambda: "Ada", "Ada"),
        (forms.CharField(), ["x"], None),
        (forms.CharField(), "", None),
        (forms.IntegerField(), 7, 7),
        (forms.IntegerField(), "7", None),
        (forms.IntegerField(), True, None),
        (forms.DecimalField(), Decimal("2.50"), 2.5),
        (forms.BooleanField(), False, False),
        (forms.BooleanField(), "yes", None),
        (forms.DateField(), date(2026, 7, 28), "2026-07-28"),
        (forms.DateTimeField(), datetime(2026, 7, 28, 10), "2026-07-28T10:00:00"),
        (forms.ChoiceField(choices=SIZES), 3, "3"),
        (forms.ChoiceField(choices=SIZES), "x", None),
        (forms.MultipleChoiceField(choices=[(1, "One"), (2, "Two")]), [2, 9], ["2"]),
        (forms.MultipleChoiceField(choices=[(1, "One")]), "1", None),
    ],
    ids=named,
)
def test_what_a_field_shows_is_its_default(field: forms.Field, initial: Any, default: Any) -> None:
    schema = asked(field, f=initial)
    assert schema is not None
    assert schema.get("default") == default


class ShippingForm(forms.Form):
    carrier = forms.ChoiceField(choices=[("dhl", "DHL"), ("ups", "UPS")], initial="ups", label="Who carries it")
    weight = forms.DecimalField(min_value=0)
    label = forms.FileField(required=False)
    secret = forms.CharField(widget=forms.HiddenInput, initial="kept")
    fixed = forms.CharField(disabled=True, initial="fixed")
    note = forms.CharField(required=False)


def test_a_form_is_asked_without_what_a_person_does_not_fill_in() -> None:
    schema = form_schema(ShippingForm(prefix="p"))
    assert list(schema["properties"]) == ["carrier", "weight", "note"]
    assert schema["required"] == ["carrier", "weight"]


@pytest.mark.parametrize(
    "field",
    [forms.FileField(), forms.CharField(widget=forms.PasswordInput), forms.MultipleChoiceField(choices=[])],
    ids=lambda field: type(field).__name__,
)
def test_a_form_that_needs_what_cannot_be_asked_is_a_mistake_of_the_project(field: forms.Field) -> None:
    with pytest.raises(ImproperlyConfigured, match="is no field that a client's user can be asked for"):
        form_schema(one(field))


class AuthorForm(forms.Form):
    author = forms.ModelChoiceField(Author.objects.order_by("name"))
    tags = forms.ModelMultipleChoiceField(Tag.objects.all(), required=False)


@pytest.mark.django_db
def test_rows_are_chosen_by_their_labels() -> None:
    ada, bob = make_author("Ada"), make_author("Bob")
    tag = Tag.objects.create(name="new")
    form = AuthorForm(initial={"author": bob, "tags": [tag]})
    schema = form_schema(form)["properties"]
    assert schema["author"]["oneOf"] == [{"const": str(row.pk), "title": str(row)} for row in (ada, bob)]
    assert (schema["author"]["default"], schema["tags"]["default"]) == (str(bob.pk), [str(tag.pk)])


@pytest.mark.django_db
def test_more_rows_than_a_person_looks_through_are_not_listed(django_assert_num_queries: Any) -> None:
    Author.objects.bulk_create(Author(name=f"A{number:03}") for number in range(MAX_CHOICES + 1))
    form = AuthorForm()
    with django_assert_num_queries(2):
        field = fields_of(form)["author"]
    assert field == {"type": "string", "title": "Author", "description": "(primary key of testapp.author)"}


def test_a_field_that_is_named_like_a_secret_has_no_plain_form():
    class Connect(forms.Form):
        account = forms.CharField()
        api_key = forms.CharField()

    fields = fields_of(Connect())
    assert fields["account"] is not None
    assert fields["api_key"] is None
