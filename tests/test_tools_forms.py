from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django import forms
from django.contrib.postgres.forms import SimpleArrayField
from django.core.exceptions import ValidationError
from django.utils import translation

from mcp_django.tools.controls import as_query
from mcp_django.tools.forms import error_lines, field_entries, filled, keep, page_entries, refuse, writable_names
from tests.factories import make_author, make_book, make_superuser
from tests.testapp.models import Book, Loan, Tag
from tests.writing import request_of

REQUEST = request_of(None)


def entries(field, value):
    return field_entries(REQUEST, field, "f", value)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (forms.CharField(), "a", [("f", "a")]),
        (forms.CharField(), 5, [("f", "5")]),
        (forms.CharField(), None, [("f", "")]),
        (forms.BooleanField(), True, [("f", "on")]),
        (forms.BooleanField(), "FALSE", []),
        (forms.BooleanField(), 0, []),
        (forms.BooleanField(), None, []),
        (forms.NullBooleanField(), None, [("f", "unknown")]),
        (forms.NullBooleanField(), "true", [("f", "true")]),
        (forms.JSONField(), {"a": None}, [("f", '{"a": null}')]),
        (forms.JSONField(), '{"a": null}', [("f", '{"a": null}')]),
        (forms.JSONField(), "a", [("f", '"a"')]),
        (forms.JSONField(), "5", [("f", '"5"')]),
        (forms.JSONField(), True, [("f", "true")]),
        (forms.MultipleChoiceField(), ["a", "b"], [("f", "a"), ("f", "b")]),
        (forms.MultipleChoiceField(), '["a"]', [("f", "a")]),
        (forms.TypedChoiceField(choices=[(True, "Yes")]), True, [("f", "True")]),
        (forms.DateTimeField(), "2030-01-02T03:04:05Z", [("f", "2030-01-02T03:04:05Z")]),
        (forms.SplitDateTimeField(), "2030-01-02T03:04:05.5", [("f_0", "2030-01-02"), ("f_1", "03:04:05.500000")]),
        (forms.SplitDateTimeField(), "2030-01-02 03:04", [("f_0", "2030-01-02"), ("f_1", "03:04:00")]),
        (forms.SplitDateTimeField(), ["2030-01-02", "03:04"], [("f_0", "2030-01-02"), ("f_1", "03:04")]),
        (forms.SplitDateTimeField(), None, [("f_0", ""), ("f_1", "")]),
        (SimpleArrayField(forms.CharField()), ["a,b", "c"], [("f", ["a,b", "c"])]),
    ],
)
def test_json_becomes_what_a_person_would_enter(field, value, expected):
    assert entries(field, value) == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (forms.CharField(), {}),
        (forms.CharField(), []),
        (forms.CharField(), False),
        (forms.IntegerField(), [1]),
        (forms.BooleanField(), "on"),
        (forms.BooleanField(), 2),
        (forms.BooleanField(), 1.5),
        (forms.BooleanField(), []),
        (forms.MultipleChoiceField(), "a"),
        (forms.SplitDateTimeField(), {"date": 1}),
    ],
)
def test_json_of_another_type_is_refused(field, value):
    with pytest.raises(ValidationError, match="Give "):
        entries(field, value)


def test_numbers_are_read_alike_in_every_language(settings):
    settings.USE_THOUSAND_SEPARATOR = True
    field = forms.DecimalField(localize=True)
    with translation.override("de"):
        for value in (1234.5, "1234.5"):
            (entry,) = entries(field, value)
            assert field.clean(entry[1]) == Decimal("1234.5")
        assert entries(field, "viel") == [("f", "viel")]


def test_disabled_fields_and_those_that_are_not_seen_are_not_writable():
    class Ask(forms.Form):
        a = forms.CharField()
        b = forms.CharField(disabled=True)
        c = forms.FileField()
        d = forms.CharField()

    assert writable_names(Ask(), {"a", "b", "c"}) == ["a", "c"]


class BookForm(forms.ModelForm):
    """Cleans as forms of projects do."""

    sure = forms.BooleanField(required=False, initial=True)

    class Meta:
        model = Book
        fields = ["title", "author", "price", "pages", "data", "tags", "published"]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.posted_title = self.data.get(self.add_prefix("title"))

    def clean(self):
        cleaned: Any = super().clean()
        if cleaned.get("title") == "Long":
            cleaned["pages"] = 999
        if cleaned.get("pages") == 13:
            raise ValidationError("Thirteen.")
        return cleaned


@pytest.fixture
def request_(db):
    return request_of(make_superuser())


def bound(request, obj, prefix=None, **values):
    made = type("Made", (BookForm,), {"prefix": prefix})
    draft = made(instance=obj)
    data, wrong = page_entries(request, draft, values)
    form = filled(draft, obj, values, as_query(data), {})
    refuse(form, wrong)
    return form


@pytest.mark.parametrize("prefix", [None, "p"])
def test_what_is_not_named_is_kept_and_still_reaches_clean(request_, prefix):
    tag = Tag.objects.create(name="t")
    book = make_book(" Old ", data={"b": 1})
    book.tags.add(tag)
    form = bound(request_, book, prefix, price="5")
    assert not form.errors
    assert form.changed_data == ["price"]
    assert form.posted_title == " Old "
    assert form.cleaned_data["author"] == book.author
    assert form.cleaned_data["tags"] == [tag]
    assert form.cleaned_data["sure"] is True
    form.save()
    book.refresh_from_db()
    assert (book.title, book.price, book.data, list(book.tags.all())) == (" Old ", 5, {"b": 1}, [tag])


def test_what_clean_sets_is_saved_though_it_was_not_named(request_):
    book = make_book("Old", pages=1)
    bound(request_, book, title="Long").save()
    book.refresh_from_db()
    assert (book.title, book.pages) == ("Long", 999)


def test_a_value_that_does_not_change_is_not_a_change(request_):
    book = make_book("Old", data={"a": [1]})
    assert bound(request_, book, title="Old", data={"a": [1]}, author=book.author_id, tags=[]).changed_data == []
    assert bound(request_, book, data={"a": [2]}).changed_data == ["data"]


def test_errors_are_told_by_field_and_for_the_row(request_):
    form = bound(request_, make_book(), title="", pages=13, data=5, author="x")
    lines = error_lines(form, ["title", "pages", "author"])
    assert lines == [
        "title: This field is required.",
        "(row): Thirteen.",
        "author: No testapp.author has this primary key.",
    ]


def test_G134_nothing_is_told_of_a_field_that_the_caller_does_not_see(request_):
    form = bound(request_, None, title="New")
    lines = error_lines(form, ["title", "price"])
    hidden = "(another field): its value is missing or not valid, and you cannot set it here"
    assert lines == [hidden, "price: This field is required."]


def test_choices_are_named_where_one_is_wrong_but_not_without_end():
    class Ask(forms.Form):
        some = forms.ChoiceField(choices=[("Group", [(number, "x") for number in range(30)])])

    form = Ask({"some": "x"})
    (line,) = error_lines(form, ["some"])
    assert line.endswith("(valid: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, …)")


def test_times_that_are_kept_lose_nothing(request_):
    moment = datetime(2030, 1, 1, 1, 1, 1, 123456, tzinfo=UTC)
    loan = Loan(book=make_book(), borrower="Ann", due=moment)
    form_class = forms.modelform_factory(Loan, fields=["borrower", "due"])
    form = form_class({"borrower": "Bob"}, instance=loan)
    keep(form, loan, ["borrower"])
    assert form.is_valid()
    assert form.save(commit=False).due == moment


def test_a_foreign_key_to_another_column_is_given_by_the_primary_key(request_):
    author = make_author("Ada")
    field = forms.ModelChoiceField(type(author).objects.all(), to_field_name="name")
    assert field_entries(request_, field, "f", author.pk) == [("f", "Ada")]
    assert field_entries(request_, field, "f", {"pk": author.pk, "label": "x"}) == [("f", "Ada")]
