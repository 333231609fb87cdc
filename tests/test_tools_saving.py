import pytest
from django.contrib import admin
from django.contrib.admin.models import ADDITION, LogEntry
from django.core.exceptions import ValidationError
from django.utils.text import slugify
from rest_framework import serializers

from mcp_django import MCPSite, ModelExposure, ToolError, site
from mcp_django.tools.saving import save_row
from mcp_django.tools.writes import CreateRecord, UpdateRecord
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Book, Loan, PublishedBook, Tag
from tests.writing import call, refusal, request_of

pytestmark = pytest.mark.django_db

CREATE, UPDATE = CreateRecord(), UpdateRecord()
BOOK = {"model": "testapp.book"}


class BookSerializer(serializers.ModelSerializer):
    shout = serializers.SerializerMethodField()

    class Meta:
        model = Book
        fields = ["id", "title", "author", "isbn", "price", "tags", "status", "shout", "owner"]
        read_only_fields = ["status"]

    def get_shout(self, book):
        return book.title.upper()

    def validate_title(self, title):
        if self.context["request"].user.username not in title and title == "Mine":
            raise serializers.ValidationError("Not yours.")
        return title

    def validate(self, attrs):
        if attrs.get("price") == 13:
            raise serializers.ValidationError("Thirteen.")
        return attrs


class BookExposure(ModelExposure):
    fields = ["id", "title", "author", "isbn", "price", "tags", "status", "shout"]
    serializer_class = BookSerializer


@pytest.fixture
def own():
    own = MCPSite("own", admin_site=admin.site)
    own.register(Book, BookExposure)
    return own


@pytest.fixture
def root(own):
    return request_of(make_superuser(), own)


# Serializers


def test_an_exposures_serializer_creates_and_updates(root):
    tag, author = Tag.objects.create(name="t"), make_author()
    values = {"title": "Dune", "author": author.pk, "isbn": "1", "price": "9", "tags": [tag.pk]}
    created = call(CREATE, root, **BOOK, values=values)
    book = Book.objects.get()
    assert (book.title, book.author, list(book.tags.all())) == ("Dune", author, [tag])
    assert created["fields"]["shout"] == "DUNE"
    assert set(created["changed"]) == {*values}
    assert call(UPDATE, root, **BOOK, pk=book.pk, values={"price": 5, "title": "Dune"})["changed"] == ["price"]
    book.refresh_from_db()
    assert (book.title, book.price, list(book.tags.all())) == ("Dune", 5, [tag])
    messages = [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")]
    assert messages == [
        "Added. Added via MCP “Claude (client-1), create_record”.",
        "Changed price. Changed via MCP: Claude (client-1), update_record.",
    ]


def test_H147_only_visible_and_writable_fields_of_the_serializer_are_taken(root):
    book = make_book()
    texts = set()
    for name in ("id", "status", "shout", "owner", "pages", "uuid", "nothing"):
        text = refusal(UPDATE, root, **BOOK, pk=book.pk, values={"price": 1, name: 1})
        texts.add(text.replace(repr(name), "NAME").partition("Did you mean")[0].partition("Valid")[0])
    assert texts == {"You cannot write NAME of testapp.book. "}
    book.refresh_from_db()
    assert str(book.price) == "9.90"


def test_H149_the_serializers_validation_is_told(root):
    values = {"title": "Mine", "author": make_author().pk, "isbn": "1", "price": "x"}
    text = refusal(CREATE, root, **BOOK, values=values)
    assert text == "Nothing was saved:\ntitle: Not yours.\nprice: A valid number is required."
    text = refusal(CREATE, root, **BOOK, values={**values, "title": "x", "price": 13})
    assert text == "Nothing was saved:\n(row): Thirteen."
    assert not Book.objects.exists()


def test_H149_the_models_validation_runs_too_and_undoes_the_write(root, monkeypatch):
    def clean(self):
        raise ValidationError({"title": "Never."})

    monkeypatch.setattr(Book, "clean", clean)
    book = make_book("Old")
    assert refusal(UPDATE, root, **BOOK, pk=book.pk, values={"title": "New"}) == "Nothing was saved:\ntitle: Never."
    book.refresh_from_db()
    assert book.title == "Old"
    assert not LogEntry.objects.exists()


def test_G124_a_serializer_takes_no_row_that_the_caller_does_not_see(own):
    user = make_user("seller", "testapp.view_book", "testapp.change_book")
    book = make_book()
    hidden = make_author("Hidden")
    text = refusal(UPDATE, request_of(user, own), **BOOK, pk=book.pk, values={"author": hidden.pk})
    assert text == "Nothing was saved:\nauthor: No testapp.author has this primary key."
    tag = Tag.objects.create(name="t")
    text = refusal(UPDATE, request_of(user, own), **BOOK, pk=book.pk, values={"tags": [tag.pk]})
    assert text == "Nothing was saved:\ntags: No testapp.tag has this primary key."


# Forms


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
    saved, changed = save_row(root, site.exposures[PublishedBook], row, {"title": "New"}, "update_record")
    assert (type(saved), changed) == (PublishedBook, ["title"])
    assert LogEntry.objects.get(content_type__model="publishedbook").object_id == str(book.pk)


def test_several_wrong_names_are_told_at_once():
    root = request_of(make_superuser())
    with pytest.raises(ToolError, match=r"You cannot write 'nothing', 'deleted' of testapp.loan\. Valid: book"):
        save_row(root, site.exposures[Loan], None, {"nothing": 1, "deleted": 2}, "create_record")
