import pytest
from django.contrib import admin
from django.contrib.admin.models import ADDITION, LogEntry
from django.utils.text import slugify

from mcp_django import MCPSite, ModelExposure, site
from mcp_django.emulation.saving import RowPage
from mcp_django.orm.access import access_of
from mcp_django.tools.write_tools import CreateRecord, UpdateRecord
from tests.factories import make_author, make_book, make_superuser
from tests.testapp.models import Book, PublishedBook
from tests.tool_calls import call, refusal, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db, pytest.mark.one_server]

CREATE, UPDATE = CreateRecord(), UpdateRecord()
BOOK = {"model": "testapp.book"}


def test_a_plain_exposure_saves_through_its_own_form_and_hooks():
    saved = []

    class Plain(ModelExposure):
        fields = ["title", "author", "isbn", "price", "tags"]
        readonly_fields = ["isbn"]

        def save_model(self, request, obj, form, change):
            saved.append((request.user, change))
            obj.save()

    own = MCPSite("own", admin_site=admin.site)
    own.register(Book, Plain)
    root = request_of(make_superuser(), own)
    book = make_book("Old")
    assert call(UPDATE, root, **BOOK, pk=book.pk, values={"title": "New"})["changed"] == ["title"]
    assert "'isbn'" in refusal(UPDATE, root, **BOOK, pk=book.pk, values={"isbn": "2"})
    call(CREATE, root, **BOOK, values={"title": "A", "author": book.author_id, "price": 1})
    assert saved == [(root.user, True), (root.user, False)]
    assert LogEntry.objects.filter(action_flag=ADDITION).count() == 1


def test_slugs_are_filled_in_as_by_the_add_page(monkeypatch):
    model_admin = admin.site.get_model_admin(Book)
    monkeypatch.setattr(model_admin, "prepopulated_fields", {"isbn": ["title", "pages"]})
    root = request_of(make_superuser())
    values = {"title": "The Left Hand", "author": make_author().pk, "price": 1}
    call(CREATE, root, **BOOK, values=values)
    assert Book.objects.get().isbn == slugify("The Left Hand")[:13]
    call(CREATE, root, **BOOK, values={**values, "title": "A", "isbn": "own", "pages": 3})
    assert Book.objects.get(title="A").isbn == "own"


def test_a_proxy_is_written_as_itself():
    root = request_of(make_superuser())
    book = make_book(status=Book.Status.PUBLISHED)
    row = PublishedBook.objects.get(pk=book.pk)
    model = access_of(root)[site.exposures[PublishedBook]]
    saved, changed = RowPage(model, row).saving({"title": "New"}, "update_record").save()
    assert (type(saved), changed) == (PublishedBook, ["title"])
    assert LogEntry.objects.get(content_type__model="publishedbook").object_id == str(book.pk)
