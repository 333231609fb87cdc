"""What a page posts when a caller fills in its form, and what reaches the form beside that."""

from typing import Any

import pytest
from django import forms
from django.core.exceptions import ValidationError

from mcp_django.emulation.form_filling import FilledForm
from mcp_django.emulation.inline_formsets import deeper_formsets
from mcp_django.emulation.page_requests import as_query
from mcp_django.emulation.validation_errors import error_lines
from tests.factories import make_book, make_superuser
from tests.oddapp.admin import DetailFormSet
from tests.oddapp.models import Detail, Part
from tests.testapp.models import Book, Tag
from tests.tool_calls import request_of


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
    filled = FilledForm(request, draft, values)
    form = filled.bind(obj, as_query(filled.data), {})
    filled.refuse(form)
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
        "(row): “Thirteen.”",
        "author: No testapp.author has this primary key.",
    ]


def test_G134_nothing_is_told_of_a_field_that_the_caller_does_not_see(request_):
    form = bound(request_, None, title="New")
    lines = error_lines(form, ["title", "price"])
    hidden = "(another field): its value is missing or not valid, and you cannot set it here"
    assert lines == [hidden, "price: This field is required."]


class Drawing(forms.Field):
    """Has a control only when a script has made it; it posts a text under the name of the field."""

    class widget(forms.Widget):
        def render(self, name, value, attrs=None, renderer=None):
            return "<canvas></canvas>"

        def value_from_datadict(self, data, files, name):
            return data.get(name)

    def to_python(self, value):
        if value == "crash":
            raise KeyError(value)
        return value


class DrawingForm(forms.Form):
    lines = Drawing(required=False)
    name = forms.CharField(initial="x")


def test_what_a_script_would_post_is_posted(request_):
    assert FilledForm(request_, DrawingForm(), {"lines": "M 0 0"}).data == [("lines", "M 0 0"), ("name", "x")]
    assert FilledForm(request_, DrawingForm(), {}).data == [("name", "x")]


def test_formsets_of_a_form_are_those_of_its_own_row():
    form = forms.modelform_factory(Part, fields=["name"])(instance=Part(name="p"))
    form.own = DetailFormSet(instance=form.instance)
    form.several = [DetailFormSet(instance=form.instance), "other"]
    form.parent_formset = DetailFormSet(instance=Part())
    form.unrelated = forms.modelformset_factory(Detail, fields=["text"])
    assert deeper_formsets(form) == [form.own, form.several[0]]
    assert deeper_formsets(DrawingForm()) == []
