"""Django forms: what tools take that fill them in, what people are asked, and what they entered."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from django import forms
from django.contrib.postgres.forms import DateRangeField, HStoreField, SimpleArrayField, SplitArrayField
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.core.validators import RegexValidator
from django.forms import modelform_factory
from django.test import override_settings
from django.utils import translation
from jsonschema import Draft202012Validator
from mcp_types import ElicitRequestFormParams
from rest_framework import serializers

from mcp_django.protocol.client_requests import ClientRequest
from mcp_django.schema.form_schemas import (
    NOTATIONS,
    FormField,
    FormSchema,
    SerializerField,
    choice,
    notation,
    with_default,
)
from tests.factories import make_author
from tests.restapp.models import Client, Order
from tests.testapp.models import Author, Book, Shelf, Tag

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
    found = FormField(field).schema()
    assert found == expected
    Draft202012Validator.check_schema(found)


def test_a_relation_is_a_key_and_no_row_is_read(django_assert_num_queries: Any, db: None) -> None:
    class Form(forms.Form):
        author = forms.ModelChoiceField(Author.objects.all())
        by_name = forms.ModelChoiceField(Author.objects.all(), to_field_name="name")
        shelves = forms.ModelMultipleChoiceField(Shelf.objects.all(), required=False)

    with django_assert_num_queries(0):
        found = FormSchema(Form()).for_tool()
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
    assert FormSchema(Form).for_tool(exclude=["secret"]) == expected
    bound = FormSchema(Form()).for_tool(exclude=["secret"])
    assert bound == expected


def test_86_no_expression_of_the_project_reaches_clients_or_runs() -> None:
    class Form(forms.Form):
        code = forms.RegexField(r"^(a+)+$", help_text="Letters.")
        other = forms.CharField(validators=[RegexValidator(r"^(b+)+$")])

    assert FormSchema(Form).for_tool()["properties"] == {
        "code": {"type": "string", "description": "Letters."},
        "other": {"type": "string"},
    }


def test_a_model_form_has_the_schema_of_its_model() -> None:
    form = modelform_factory(Book, fields=["title", "author", "price", "status", "tags", "cover"])
    found = FormSchema(form).for_tool()
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


# What a person is asked

SIZES = [("", "---"), ("s", "Small"), ("More", [("l", "Large"), (3, "Third")])]


def named(value: Any) -> str:
    return type(value).__name__ if isinstance(value, (forms.Field, dict)) or callable(value) else str(value)


def one(field: forms.Field, name: str = "f", **initial: Any) -> Any:
    """Return a new form with this one field."""
    return type("Form", (forms.Form,), {name: field})(initial=initial)


def asked(field: forms.Field, **initial: Any) -> dict[str, Any] | None:
    return FormSchema(one(field, **initial)).plain_fields()["f"]


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
        (forms.ChoiceField(choices=[(n, n) for n in range(FormField.MAX_CHOICES + 1)]), {"type": "string"}),
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
        form = ClientRequest.requested_schema({"properties": {"f": found}}, "2026-07-28")
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

    def clean(self) -> None:
        if self.cleaned_data.get("weight") == 13:
            raise ValidationError("Not today.")


def test_a_form_is_asked_without_what_a_person_does_not_fill_in() -> None:
    schema = FormSchema(ShippingForm(prefix="p")).for_person()
    assert list(schema["properties"]) == ["carrier", "weight", "note"]
    assert schema["required"] == ["carrier", "weight"]


@pytest.mark.parametrize(
    "field",
    [forms.FileField(), forms.CharField(widget=forms.PasswordInput), forms.MultipleChoiceField(choices=[])],
    ids=lambda field: type(field).__name__,
)
def test_a_form_that_needs_what_cannot_be_asked_is_a_mistake_of_the_project(field: forms.Field) -> None:
    with pytest.raises(ImproperlyConfigured, match="is not a field that a user can be asked for"):
        FormSchema(one(field)).for_person()


class AuthorForm(forms.Form):
    author = forms.ModelChoiceField(Author.objects.order_by("name"))
    tags = forms.ModelMultipleChoiceField(Tag.objects.all(), required=False)


@pytest.mark.django_db
def test_rows_are_chosen_by_their_labels() -> None:
    ada, bob = make_author("Ada"), make_author("Bob")
    tag = Tag.objects.create(name="new")
    form = AuthorForm(initial={"author": bob, "tags": [tag]})
    schema = FormSchema(form).for_person()["properties"]
    assert schema["author"]["oneOf"] == [{"const": str(row.pk), "title": str(row)} for row in (ada, bob)]
    assert (schema["author"]["default"], schema["tags"]["default"]) == (str(bob.pk), [str(tag.pk)])


@pytest.mark.django_db
def test_more_rows_than_a_person_looks_through_are_not_listed(django_assert_num_queries: Any) -> None:
    Author.objects.bulk_create(Author(name=f"A{number:03}") for number in range(FormField.MAX_CHOICES + 1))
    form = AuthorForm()
    with django_assert_num_queries(2):
        field = FormSchema(form).plain_fields()["author"]
    assert field == {"type": "string", "title": "Author", "description": "(primary key of testapp.author)"}


def test_a_field_that_is_named_like_a_secret_has_no_plain_form():
    class Connect(forms.Form):
        account = forms.CharField()
        api_key = forms.CharField()

    fields = FormSchema(Connect()).plain_fields()
    assert fields["account"] is not None
    assert fields["api_key"] is None


# What a person entered


def entered(field: forms.Field, *value: Any) -> Any:
    form = one(field)
    return FormSchema(form).read(FormSchema(form).for_person()["properties"], {"f": value[0]} if value else {})["f"]


def refusal(field: forms.Field, *value: Any) -> str:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        entered(field, *value)
    return str(error.value)


@pytest.mark.parametrize(
    ("field", "value", "cleaned"),
    [
        (forms.CharField(), " Ada ", "Ada"),
        (forms.CharField(), 5, "5"),
        (forms.CharField(required=False), None, ""),
        (forms.IntegerField(), 7, 7),
        (forms.IntegerField(), "7", 7),
        (forms.DecimalField(), 0.1, Decimal("0.1")),
        (forms.DecimalField(localize=True), 0.5, Decimal("0.5")),
        (forms.BooleanField(required=False), True, True),
        (forms.BooleanField(required=False), None, False),
        (forms.NullBooleanField(), None, None),
        (forms.NullBooleanField(), False, False),
        (forms.DateField(), "2026-07-28", date(2026, 7, 28)),
        (forms.DateField(input_formats=["%d/%m/%Y"]), "2026-07-28", date(2026, 7, 28)),
        (forms.DateField(required=False), "", None),
        (forms.ChoiceField(choices=SIZES), "3", "3"),
        (forms.TypedChoiceField(choices=[(1, "One")], coerce=int), "1", 1),
        (forms.MultipleChoiceField(choices=[(1, "One")]), ["1"], ["1"]),
        (forms.JSONField(), '{"a": 1}', {"a": 1}),
    ],
    ids=named,
)
def test_a_form_cleans_what_was_entered(field: forms.Field, value: Any, cleaned: Any) -> None:
    assert entered(field, value) == cleaned


def test_moments_are_read_in_whatever_way_they_are_written() -> None:
    for field in (forms.DateTimeField(), forms.SplitDateTimeField(), forms.DateTimeField(input_formats=["%d"])):
        found = entered(field, "2026-07-28T10:30:00+02:00")
        assert (found.hour, found.minute, found.utcoffset().total_seconds()) in ((8, 30, 0), (10, 30, 7200))
    assert refusal(forms.DateTimeField(), "soon") == "F: Enter a valid date/time."
    assert refusal(forms.SplitDateTimeField(), "soon")
    assert refusal(forms.DateField(), "2026-02-30") == "F: Enter a valid date."
    with override_settings(USE_TZ=False):
        assert entered(forms.DateTimeField(), "2026-07-28T10:30:00") == datetime(2026, 7, 28, 10, 30)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (forms.BooleanField(required=False), "no"),
        (forms.BooleanField(), False),
        (forms.BooleanField(), None),
        (forms.CharField(), True),
        (forms.CharField(), ["a"]),
        (forms.CharField(), {}),
        (forms.CharField(max_length=2), "abc"),
        (forms.IntegerField(), True),
        (forms.IntegerField(), 1.5),
        (forms.IntegerField(), "many"),
        (forms.ChoiceField(choices=SIZES), "x"),
        (forms.ChoiceField(choices=SIZES), ["s"]),
        (forms.MultipleChoiceField(choices=[(1, "One")]), "1"),
        (forms.MultipleChoiceField(choices=[(1, "One")]), []),
        (forms.MultipleChoiceField(choices=[(1, "One")]), ["2"]),
        (forms.DateField(), 2026),
    ],
    ids=named,
)
def test_78_what_does_not_fit_is_refused(field: forms.Field, value: Any) -> None:
    assert refusal(field, value).startswith("F: ")


@pytest.mark.parametrize(
    ("field", "found"),
    [
        (forms.BooleanField(required=False), False),
        (forms.MultipleChoiceField(choices=[("a", "A")], required=False), []),
        (forms.IntegerField(required=False), None),
        (forms.DateField(required=False), None),
    ],
    ids=named,
)
def test_an_empty_text_leaves_a_field_of_any_kind_blank(field: forms.Field, found: Any) -> None:
    assert entered(field, "") == found
    field.required = True
    assert refusal(field, "") == "F: This field is required."


def test_what_was_not_asked_for_keeps_what_the_form_shows() -> None:
    form = ShippingForm(prefix="p", initial={"secret": "new"})
    content = {"carrier": "dhl", "weight": 2, "secret": "stolen", "fixed": "stolen", "label": "x"}
    cleaned = FormSchema(form).read(FormSchema(form).for_person()["properties"], content)
    expected = {"carrier": "dhl", "weight": Decimal(2), "label": None, "secret": "new", "fixed": "fixed", "note": ""}
    assert cleaned == expected


def test_78_a_form_refuses_in_its_own_words() -> None:
    def refused(**content: Any) -> str:
        form = ShippingForm()
        with pytest.raises(ValueError) as error:  # noqa: PT011
            FormSchema(form).read(FormSchema(form).for_person()["properties"], content)
        return str(error.value)

    assert refused() == "Who carries it: This field is required. Weight: This field is required."
    assert refused(carrier="dhl", weight=13) == "Not today."
    with translation.override("de"):
        assert refused(carrier="dhl", weight=-1) == "Weight: Dieser Wert muss größer oder gleich 0 sein."


@pytest.mark.django_db
def test_rows_are_chosen_by_their_keys() -> None:
    ada, tag = make_author("Ada"), Tag.objects.create(name="new")
    form = AuthorForm()
    asked = FormSchema(form).for_person()["properties"]
    cleaned = FormSchema(form).read(asked, {"author": str(ada.pk), "tags": [str(tag.pk)]})
    assert (cleaned["author"], list(cleaned["tags"])) == (ada, [tag])
    with pytest.raises(ValueError, match="Author: Select a valid choice"):
        FormSchema(AuthorForm()).read(asked, {"author": str(ada.pk + 1)})


@pytest.mark.django_db
def test_a_model_form_builds_its_row() -> None:
    class TagForm(forms.ModelForm):  # type: ignore[type-arg]
        class Meta:
            model = Tag
            fields = ("name",)

    form = TagForm()
    FormSchema(form).read(FormSchema(form).for_person()["properties"], {"name": "fresh"})
    assert form.save().name == "fresh"


@pytest.mark.parametrize("name", NOTATIONS)
def test_a_field_of_a_form_and_one_of_a_serializer_are_written_alike(name: str) -> None:
    modules = [module for module in (forms, serializers) if hasattr(module, name)]
    assert modules
    for module in modules:
        field = getattr(module, name)(**({"assume_scheme": "https"} if module is forms and name == "URLField" else {}))
        assert notation(field) == NOTATIONS[name]


def test_a_field_of_no_such_kind_has_no_notation() -> None:
    assert notation(forms.CharField()) == ("", "")


@pytest.mark.parametrize(
    ("options", "more", "shape"),
    [
        ([], [], ({"type": "string"}, ["one of 0 values"])),
        ([(1, "One"), (2, "2")], [""], ({"type": "integer", "enum": [1, 2]}, ["1 = One"])),
        ([(1, "One"), ("b", "B")], [""], ({"type": "string", "enum": ["1", "b", ""]}, ["1 = One"])),
        ([(n, f"No {n}") for n in range(51)], [], ({"type": "integer", "enum": list(range(51))}, [""])),
    ],
)
def test_values_stay_numbers_where_all_are(options, more, shape) -> None:
    assert choice(options, *more) == shape


def test_a_default_that_is_worked_out_is_not_shown() -> None:
    shape = {"type": "string"}, ["UUID"]
    assert with_default(({"type": "string"}, ["UUID"]), lambda: 5, [""]) == {**shape[0], "description": "(UUID)"}
    assert with_default(shape, 5, ["Whose"]) == {
        "type": "string",
        "default": 5,
        "description": "Whose (UUID, default 5)",
    }


class Line(serializers.Serializer):
    name = serializers.CharField(max_length=5)
    count = serializers.IntegerField(min_value=1, max_value=9, default=2)


class Deep(serializers.Serializer):
    def get_fields(self):
        return {"inner": Deep()}


class Everything(serializers.Serializer):
    text = serializers.CharField(help_text="Some words", label="The text")
    label_only = serializers.CharField(label="What it is")
    number = serializers.FloatField(allow_null=True, required=False)
    price = serializers.DecimalField(max_digits=6, decimal_places=2, min_value=0)
    yes = serializers.BooleanField(default=True)
    day = serializers.DateField()
    moment = serializers.DateTimeField()
    uuid = serializers.UUIDField()
    mail = serializers.EmailField()
    choice = serializers.ChoiceField(choices=[("a", "A"), ("b", "The other")], allow_null=True)
    numbered = serializers.ChoiceField(choices=[(1, "One"), (2, "2")])
    grouped = serializers.ChoiceField(choices=[("G", [("x", "X")]), ("y", "Y")])
    several = serializers.MultipleChoiceField(choices=["a", "b"])
    tags = serializers.ListField(child=serializers.CharField(max_length=3), max_length=2)
    map = serializers.DictField()
    anything = serializers.JSONField()
    line = Line()
    lines = Line(many=True)
    client = serializers.PrimaryKeyRelatedField(queryset=Client.objects.all())
    clients = serializers.PrimaryKeyRelatedField(queryset=Client.objects.all(), many=True)
    by_name = serializers.SlugRelatedField("name", queryset=Client.objects.all())
    shown = serializers.CharField(read_only=True)
    hidden = serializers.HiddenField(default=1)
    file = serializers.FileField()
    method = serializers.SerializerMethodField()
    deep = Deep()


FIELDS = SerializerField(Everything()).writable()


def test_what_cannot_be_sent_is_left_out():
    assert not {"shown", "hidden", "file", "method"} & FIELDS.keys()
    assert FIELDS.keys() < Everything().fields.keys()


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("text", {"type": "string", "description": "Some words"}),
        ("label_only", {"type": "string", "description": "What it is."}),
        ("number", {"anyOf": [{"type": "number"}, {"type": "null"}]}),
        ("yes", {"type": "boolean", "default": True, "description": "(default True)"}),
        ("uuid", {"type": "string", "description": "(UUID)"}),
        ("mail", {"type": "string", "description": "(email address)"}),
        (
            "choice",
            {
                "anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}],
                "description": "(b = The other)",
            },
        ),
        ("numbered", {"type": "integer", "enum": [1, 2], "description": "(1 = One)"}),
        ("grouped", {"type": "string", "enum": ["x", "y"]}),
        ("several", {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}),
        ("map", {"type": "object", "additionalProperties": True}),
        ("anything", {}),
        ("client", {"type": "integer", "description": "(primary key of restapp.client)"}),
        ("by_name", {"type": "string", "description": "(name of restapp.client)"}),
    ],
)
def test_each_kind_of_field_has_its_schema(name, schema):
    assert SerializerField(FIELDS[name]).schema() == schema


def test_limits_stand_in_the_words_too():
    price = SerializerField(FIELDS["price"]).schema()
    assert price["type"] == "string"
    assert price["description"].endswith("such as 12.50, at most 6 digits, at most 2 decimal places, at least 0)")
    tags = SerializerField(FIELDS["tags"]).schema()
    assert tags["items"] == {"type": "string", "maxLength": 3}
    assert tags["description"] == "(each: at most 3 characters, at most 2 items)"


def test_serializers_within_serializers_are_objects_down_to_a_bound():
    line = SerializerField(FIELDS["line"]).schema()
    assert line["required"] == ["name"]
    assert line["properties"]["count"]["default"] == 2
    lines = SerializerField(FIELDS["lines"]).schema()
    assert lines["items"]["properties"].keys() == {"name", "count"}
    assert str(SerializerField(FIELDS["deep"]).schema()).count("properties") == 4


def test_the_widest_integers_of_a_database_are_no_limits():
    class Serializer(serializers.ModelSerializer):
        class Meta:
            model = Order
            fields = ["total", "client"]

    wide = serializers.IntegerField(min_value=-(2**63), max_value=2**63 - 1)
    wide.bind("wide", Serializer())
    assert SerializerField(wide).schema() == {"type": "integer"}


def test_no_row_is_read_for_a_schema(django_assert_num_queries):
    # There is no database at all in this test.
    assert [SerializerField(field).schema() for field in SerializerField(Everything()).writable().values()]


def test_files_of_the_server_are_not_listed(tmp_path):
    (tmp_path / "private.txt").touch()
    field = serializers.FilePathField(path=str(tmp_path))
    field.bind("path", Everything())
    assert SerializerField(field).schema() == {"type": "string"}


def test_many_choices_are_left_to_the_serializer():
    field = serializers.ChoiceField(choices=[str(number) for number in range(201)])
    field.bind("many", Everything())
    assert SerializerField(field).schema() == {"type": "string", "description": "(one of 201 values)"}
