"""Pages of actions: what they ask for, and what answering them posts."""

from typing import Any

import pytest
from django import forms

from mcp_django import MCPSite, ModelExposure
from mcp_django.actions.pages import page_entries, page_schema
from mcp_django.actions.responses import Page
from mcp_django.forms.html import read_forms
from tests.factories import make_author, make_superuser
from tests.testapp.models import Author, Tag
from tests.writing import request_of

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


def page(form: forms.Form | None = None, html: str = "") -> Page:
    fields = form.as_p() if form is not None else ""
    return Page(read_forms(f'<form method="post">{fields}{html}</form>')[1], form)


def test_what_was_chosen_is_what_a_browser_posts(site: MCPSite) -> None:
    ada, tag = make_author("Ada"), Tag.objects.create(name="new")
    answer = {"author": str(ada.pk), "tags": [str(tag.pk)]}
    entries, wrong = page_entries(request_of(make_superuser(), site), page(MoveForm()), answer)
    assert (sorted(entries), wrong) == ([("author", str(ada.pk)), ("tags", str(tag.pk))], [])


def test_80_a_hidden_row_cannot_be_chosen(site: MCPSite) -> None:
    hidden = make_author("hidden")
    _, wrong = page_entries(request_of(make_superuser(), site), page(MoveForm()), {"author": str(hidden.pk)})
    assert wrong == ["author: No testapp.author has this primary key."]


def test_a_page_asks_for_its_fields_its_controls_and_its_button(site: MCPSite) -> None:
    html = '<input name="note" required><button name="go" value="1">Go</button><button name="stay">Stay</button>'
    schema = page_schema(page(MoveForm(), html))
    assert list(schema["properties"]) == ["author", "tags", "note", "_button"]
    assert schema["required"] == ["author", "note", "_button"]
    request = request_of(make_superuser(), site)
    _, wrong = page_entries(request, page(MoveForm(), html), {"note": "x", "other": 1})
    assert wrong[0].startswith("Unknown field 'other'.")
    assert wrong[1:] == ["author: This field is required.", "_button: choose one of go, stay."]
    author = make_author("Ada").pk
    entries, wrong = page_entries(request, page(MoveForm(), html), {"author": author, "note": "x", "_button": "go"})
    assert (("note", "x") in entries, ("go", "1") in entries, wrong) == (True, True, [])
