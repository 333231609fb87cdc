"""Pages of actions: what they ask for, and what answering them posts."""

from typing import Any

import pytest
from django import forms

from mcp_django import MCPSite, ModelExposure
from mcp_django.emulation.action_responses import ActionPage
from mcp_django.emulation.html_forms import read_forms
from mcp_django.schema.form_schemas import FormField
from tests.factories import make_author, make_superuser, make_user
from tests.testapp.models import Author, Tag
from tests.tool_calls import request_of

pytestmark = pytest.mark.django_db


class MoveForm(forms.Form):
    author = forms.ModelChoiceField(Author.objects.order_by("name"))
    tags = forms.ModelMultipleChoiceField(Tag.objects.order_by("name"), required=False)


class AuthorExposure(ModelExposure):
    fields = ["name"]

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).exclude(name="hidden")


@pytest.fixture
def site() -> MCPSite:
    site = MCPSite("own")
    site.register(Author, AuthorExposure)
    site.register(Tag, ModelExposure, fields=["name"])
    return site


def page(form: forms.Form | None = None, html: str = "") -> ActionPage:
    fields = form.as_p() if form is not None else ""
    return ActionPage(read_forms(f'<form method="post">{fields}{html}</form>')[1], form)


def properties(request: Any, *args: Any) -> Any:
    question = page(*args).question(request)
    return question and question["properties"]


def test_what_was_chosen_is_what_a_browser_posts(site: MCPSite) -> None:
    ada, tag = make_author("Ada"), Tag.objects.create(name="new")
    answer = {"author": str(ada.pk), "tags": [str(tag.pk)]}
    entries, wrong = page(MoveForm()).entries(request_of(make_superuser(), site), answer)
    assert (sorted(entries), wrong) == ([("author", str(ada.pk)), ("tags", str(tag.pk))], [])


def test_80_a_hidden_row_cannot_be_chosen(site: MCPSite) -> None:
    hidden = make_author("hidden")
    _, wrong = page(MoveForm()).entries(request_of(make_superuser(), site), {"author": str(hidden.pk)})
    assert wrong == ["author: No testapp.author has this primary key."]


def test_a_page_asks_for_its_fields_its_controls_and_its_button(site: MCPSite) -> None:
    html = '<input name="note" required><button name="go" value="1">Go</button><button name="stay">Stay</button>'
    schema = page(MoveForm(), html).schema()
    assert list(schema["properties"]) == ["author", "tags", "note", "_button"]
    assert schema["required"] == ["author", "note", "_button"]
    request = request_of(make_superuser(), site)
    _, wrong = page(MoveForm(), html).entries(request, {"note": "x", "other": 1})
    assert wrong[0].startswith("Unknown field 'other'.")
    assert wrong[1:] == ["author: This field is required.", "_button: choose one of go, stay."]
    author = make_author("Ada").pk
    entries, wrong = page(MoveForm(), html).entries(request, {"author": author, "note": "x", "_button": "go"})
    assert (("note", "x") in entries, ("go", "1") in entries, wrong) == (True, True, [])


# As questions of plain fields


def test_rows_are_offered_as_far_as_the_caller_may_see_them(site: MCPSite) -> None:
    ada, hidden, tag = make_author("Ada"), make_author("hidden"), Tag.objects.create(name="new")
    form = MoveForm(initial={"author": hidden, "tags": [tag]})
    found = properties(request_of(make_superuser(), site), form)
    assert found["author"] == {
        "type": "string", "title": "Author", "oneOf": [{"const": str(ada.pk), "title": str(ada)}]
    }  # fmt: skip
    assert found["tags"]["items"]["anyOf"] == [{"const": str(tag.pk), "title": "new"}]
    assert found["tags"]["default"] == [str(tag.pk)]


def test_80_rows_of_models_that_the_caller_may_not_see_are_not_named(site: MCPSite) -> None:
    make_author("Ada")
    viewer = request_of(make_user("viewer", "testapp.view_tag"), site)
    field = {"type": "string", "title": "Author", "description": "(primary key of testapp.author)"}
    form = type("OneForm", (forms.Form,), {"author": forms.ModelChoiceField(Author.objects.all())})
    assert properties(viewer, form()) == {"author": field}
    assert properties(request_of(make_superuser("b"), MCPSite("empty")), form()) == {"author": field}
    assert properties(request_of(make_superuser("c"), site), form())["author"]["oneOf"]


def test_more_rows_than_a_person_looks_through_are_not_offered(site: MCPSite) -> None:
    Author.objects.bulk_create(Author(name=f"A{number}") for number in range(FormField.MAX_CHOICES + 1))
    form = type("OneForm", (forms.Form,), {"author": forms.ModelChoiceField(Author.objects.all())})
    assert "oneOf" not in properties(request_of(make_superuser(), site), form())["author"]


@pytest.mark.parametrize(
    ("form", "html"),
    [
        (MoveForm, ""),
        (type("Pin", (forms.Form,), {"pin": forms.CharField(widget=forms.PasswordInput, required=False)}), ""),
        (None, '<input type="text" name="x"><input type="checkbox" name="x">'),
    ],
    ids=["choices without rows", "password", "free list"],
)
def test_what_a_client_cannot_show_makes_no_question(form: Any, html: str) -> None:
    request = request_of(make_superuser(), MCPSite("empty"))
    made = page(form() if form else None, html)
    if form is None:
        made.html.controls["x"].many, made.html.controls["x"].choices = True, []
    assert made.question(request) is None
    assert made.schema()["properties"]


def test_files_are_left_out(site: MCPSite) -> None:
    form = type("FileForm", (forms.Form,), {"file": forms.FileField(required=False), "note": forms.CharField()})
    assert list(properties(request_of(make_superuser(), site), form())) == ["note"]


def test_controls_and_buttons_are_fields(site: MCPSite) -> None:
    html = """<select name="size" required><option>s<option>l</select>
        <select multiple name="tags"><option>a<option>b</select>
        <button name="go" value="1">Go</button><button name="stay" value="1">Stay</button>
        <button name="cancel">x</button>
    """
    question = page(None, html).question(request_of(make_superuser(), site))
    assert question is not None
    assert question["required"] == ["size", "_button"]
    assert question["properties"] == {
        "size": {"type": "string", "enum": ["s", "l"], "title": "Size"},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "title": "Tags"},
        "_button": {"type": "string", "title": "Go on with", "oneOf": [
            {"const": "go", "title": "Go"}, {"const": "stay", "title": "Stay"}]},
    }  # fmt: skip
