"""What a client's user entered into a Django form."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from django import forms
from django.core.exceptions import ValidationError
from django.test import override_settings
from django.utils import translation

from mcp_django.schema.form_answers import read_form
from mcp_django.schema.form_questions import form_schema
from tests.factories import make_author
from tests.testapp.models import Author, Tag

SIZES = [("", "---"), ("s", "Small"), ("More", [("l", "Large"), (3, "Third")])]


def named(value: Any) -> str:
    return type(value).__name__ if isinstance(value, (forms.Field, dict)) or callable(value) else str(value)


def one(field: forms.Field, name: str = "f", **initial: Any) -> Any:
    """Return a new form with this one field."""
    return type("Form", (forms.Form,), {name: field})(initial=initial)


def entered(field: forms.Field, *value: Any) -> Any:
    form = one(field)
    return read_form(form, form_schema(form)["properties"], {"f": value[0]} if value else {})["f"]


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


def test_what_was_not_asked_for_keeps_what_the_form_shows() -> None:
    form = ShippingForm(prefix="p", initial={"secret": "new"})
    content = {"carrier": "dhl", "weight": 2, "secret": "stolen", "fixed": "stolen", "label": "x"}
    cleaned = read_form(form, form_schema(form)["properties"], content)
    expected = {"carrier": "dhl", "weight": Decimal(2), "label": None, "secret": "new", "fixed": "fixed", "note": ""}
    assert cleaned == expected


def test_78_a_form_refuses_in_its_own_words() -> None:
    def refused(**content: Any) -> str:
        form = ShippingForm()
        with pytest.raises(ValueError) as error:  # noqa: PT011
            read_form(form, form_schema(form)["properties"], content)
        return str(error.value)

    assert refused() == "Who carries it: This field is required. Weight: This field is required."
    assert refused(carrier="dhl", weight=13) == "Not today."
    with translation.override("de"):
        assert refused(carrier="dhl", weight=-1) == "Weight: Dieser Wert muss größer oder gleich 0 sein."


class AuthorForm(forms.Form):
    author = forms.ModelChoiceField(Author.objects.order_by("name"))
    tags = forms.ModelMultipleChoiceField(Tag.objects.all(), required=False)


@pytest.mark.django_db
def test_rows_are_chosen_by_their_keys() -> None:
    ada, tag = make_author("Ada"), Tag.objects.create(name="new")
    form = AuthorForm()
    asked = form_schema(form)["properties"]
    cleaned = read_form(form, asked, {"author": str(ada.pk), "tags": [str(tag.pk)]})
    assert (cleaned["author"], list(cleaned["tags"])) == (ada, [tag])
    with pytest.raises(ValueError, match="Author: Select a valid choice"):
        read_form(AuthorForm(), asked, {"author": str(ada.pk + 1)})


@pytest.mark.django_db
def test_a_model_form_builds_its_row() -> None:
    class TagForm(forms.ModelForm):  # type: ignore[type-arg]
        class Meta:
            model = Tag
            fields = ("name",)

    form = TagForm()
    read_form(form, form_schema(form)["properties"], {"name": "fresh"})
    assert form.save().name == "fresh"
