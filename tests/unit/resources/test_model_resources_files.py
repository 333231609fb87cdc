"""Files of records: through the storage, bounded, and nothing else of the machine."""

import base64
import mimetypes
import os
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage
from django.test import override_settings
from rest_framework import serializers

from mcp_django.exceptions import NotFound
from mcp_django.orm.access import access_of
from mcp_django.protocol.errors import InvalidParams
from mcp_django.resources.model_resources import Resources, RowFile, file_type
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_book, make_superuser, make_user
from tests.library import reader, site_with
from tests.testapp.models import Book
from tests.tool_calls import call

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]


@pytest.fixture
def media(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of media, with a secret beside it."""
    root = tmp_path / "media"
    root.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    monkeypatch.setattr(Book._meta.get_field("cover"), "storage", FileSystemStorage(location=root))
    return root


def read(book: Book, user: Any = None, **options: Any) -> dict[str, Any]:
    request = reader(user or make_superuser(f"user{book.pk}"), site_with(Book, **options))
    contents = Resources(request).find(f"django://testapp/book/{book.pk}/cover").read()
    assert len(contents) == 1
    return contents[0]


def with_file(name: str, data: bytes) -> Book:
    book = make_book()
    book.cover.save(name, ContentFile(data))
    return book


def test_text_is_text_and_other_bytes_are_a_blob(media: Path) -> None:
    found = read(with_file("a.txt", "ünï".encode()))
    assert (found["mimeType"], found["text"]) == ("text/plain", "ünï")
    found = read(with_file("a.png", b"\x89PNG"))
    assert (found["mimeType"], base64.b64decode(found["blob"])) == ("image/png", b"\x89PNG")
    found = read(with_file("b.txt", b"\xff\xfe\0"))
    assert (found["mimeType"], base64.b64decode(found["blob"])) == ("application/octet-stream", b"\xff\xfe\0")


def test_a_column_holds_files_where_its_field_does() -> None:
    model = access_of(reader(make_superuser(), site_with(Book))).get_model("testapp.book")
    assert model.is_file("cover")
    assert not any(model.is_file(name) for name in ("title", "author", "tags", "nosuch", "author__cover", ""))


def test_a_storage_without_paths_serves_too() -> None:
    assert read(with_file("memory.txt", b"x"))["text"] == "x"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.pdf", "application/pdf"),
        ("a.json", "application/json"),
        ("a.html", "text/plain"),
        ("a.svg", "text/plain"),
        ("a.xhtml", "text/plain"),
        ("a.js", "text/plain"),
        ("a.csv", "text/csv"),
        ("a.png", "image/png"),
        ("a.mp3", "audio/mpeg"),
        ("a.xls", "application/vnd.ms-excel"),
        ("a.zip", "application/zip"),
        ("a.tar.gz", "application/octet-stream"),
        ("a", "application/octet-stream"),
        ("a.p\r\nX-Evil: 1", "application/octet-stream"),
    ],
)
def test_row_160_what_could_be_run_is_plain_text(name: str, kind: str) -> None:
    assert file_type(name) == kind


@pytest.mark.parametrize(
    "ending", "hta mht mhtml eml swf xul xht css py exe bat jar wasm ps chm vbs url xlsm svgz webmanifest".split()
)
def test_what_a_system_would_run_or_open_has_no_type_of_its_own(ending: str) -> None:
    # Which endings are known depends on the system.
    mimetypes.add_type("application/x-unheard-of", ".unheard")
    assert file_type("a.unheard") == "application/octet-stream"
    assert file_type(f"a.{ending}") in ("text/plain", "application/octet-stream")


def test_documents_of_offices_keep_their_types() -> None:
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    mimetypes.add_type(kind, ".docx")
    assert file_type("a.docx") == kind


@pytest.mark.parametrize(
    "name",
    [
        "../secret.txt",
        "covers/../../secret.txt",
        "/etc/passwd",
        "..\\secret.txt",
        "covers\\a.txt",
        "a\0.txt",
        "a\n.txt",
        "link.txt",
        "directory",
        "missing.txt",
        "x" * 90 + "/" + "missing",
        ".",
        "",
        "pipe",
        "linked/secret.txt",
    ],
)
def test_row_157_a_name_that_leads_elsewhere_is_not_found(media: Path, name: str) -> None:
    (media / "link.txt").symlink_to(media.parent / "secret.txt")
    (media / "linked").symlink_to(media.parent)
    (media / "directory").mkdir()
    os.mkfifo(media / "pipe")
    book = make_book()
    book.cover.name = name
    # A NUL is no text for PostgreSQL: such a name can only be made in memory.
    if "\0" in name:
        found = RowFile.__new__(RowFile)
        found.file = book.cover
        with pytest.raises(NotFound):
            found.open()
        return
    Book.objects.filter(pk=book.pk).update(cover=name)
    with pytest.raises(NotFound):
        read(book)


def test_row_159_a_file_beyond_the_bound_is_refused(media: Path) -> None:
    book = with_file("a.bin", b"x" * 11)
    with override_settings(MCP_DJANGO={"MAX_FILE_BYTES": 10}), pytest.raises(InvalidParams, match="at most 10"):
        read(book)
    with override_settings(MCP_DJANGO={"MAX_FILE_BYTES": 11}):
        assert base64.b64decode(read(book, make_superuser())["blob"]) == b"x" * 11


def test_row_159_a_storage_that_misstates_the_size_is_still_bounded(
    media: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = with_file("a.bin", b"x" * 11)
    monkeypatch.setattr(FileSystemStorage, "size", lambda self, name: 1)
    with override_settings(MCP_DJANGO={"MAX_FILE_BYTES": 10}), pytest.raises(InvalidParams, match="at most 10"):
        read(book)


def test_row_158_a_field_that_is_not_shown_is_not_found(media: Path) -> None:
    book = with_file("a.txt", b"x")
    with pytest.raises(NotFound):
        read(book, fields=["title"])
    with pytest.raises(NotFound):
        read(book, make_user("nobody"))
    request = reader(make_superuser(), site_with(Book))
    for name in ("title", "nothing", "pk", "%63over/", "Cover"):
        with pytest.raises(NotFound):
            Resources(request).find(f"django://testapp/book/{book.pk}/{name}").read()


class CoverSerializer(serializers.ModelSerializer):
    """Shows no file of a draft."""

    def to_representation(self, instance: Book) -> Any:
        found = super().to_representation(instance)
        return {**found, "cover": None} if instance.status == "draft" else found

    class Meta:
        model = Book
        fields = ("id", "title", "cover")


class LinkedSerializer(CoverSerializer):
    cover = serializers.FileField(use_url=True)


def test_a_file_that_a_serializer_leaves_as_it_is_is_a_resource(media: Path) -> None:
    book = with_file("a.txt", b"x")
    Book.objects.update(status="published")
    uri = f"django://testapp/book/{book.pk}/cover"
    request = reader(make_superuser(), site_with(Book, serializer_class=CoverSerializer))
    assert call(GetRecord(), request, model="testapp.book", pk=book.pk)["fields"]["cover"] == uri
    assert call(QueryRecords(), request, model="testapp.book", fields=["cover"])["rows"] == [[book.pk, uri]]
    assert Resources(request).find(uri).read()[0]["text"] == "x"
    Book.objects.update(status="draft")
    assert call(GetRecord(), request, model="testapp.book", pk=book.pk)["fields"]["cover"] is None
    with pytest.raises(NotFound):
        Resources(request).find(uri).read()


def test_a_file_that_a_serializer_shows_by_its_url_is_no_resource(media: Path) -> None:
    book = with_file("a.txt", b"x")
    Book.objects.update(status="published")
    request = reader(make_superuser(), site_with(Book, serializer_class=LinkedSerializer))
    assert call(GetRecord(), request, model="testapp.book", pk=book.pk)["fields"]["cover"].endswith(book.cover.url)
    with pytest.raises(NotFound):
        Resources(request).find(f"django://testapp/book/{book.pk}/cover").read()
