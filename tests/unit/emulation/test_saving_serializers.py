import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.core.exceptions import ValidationError
from rest_framework import serializers

from mcp_django import MCPSite, ModelExposure
from mcp_django.tools.write_tools import CreateRecord, UpdateRecord
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Book, Tag
from tests.tool_calls import call, refusal, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db, pytest.mark.one_server]

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
    assert text == "Nothing was saved:\n(row): “Thirteen.”"
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


def test_an_update_that_changes_nothing_leaves_no_history(root):
    book = make_book("Dune", price="9.00")
    assert call(UPDATE, root, **BOOK, pk=book.pk, values={"title": "Dune", "price": "9"})["changed"] == []
    assert not LogEntry.objects.exists()
