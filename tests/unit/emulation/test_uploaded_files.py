"""Files in values: validated by the form's own field, named safely, and within their bound."""

import base64
import errno
import io
import json
from typing import Any

import pytest
from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ActionForm
from django.core.exceptions import ValidationError
from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage, InMemoryStorage
from django.test import override_settings
from PIL import Image
from rest_framework import serializers

from mcp_django import MCPSite, ModelExposure
from mcp_django.emulation.uploaded_files import file_entries, safe_name
from mcp_django.resources.model_resources import Resources
from mcp_django.testing import MCPClient
from mcp_django.tools.action_tools import ActionTool
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import CreateRecord, UpdateRecord
from tests.factories import make_author, make_superuser
from tests.fileapp.admin import files_admin
from tests.fileapp.models import Manual, Page
from tests.testapp.models import Book
from tests.tool_calls import call, refusal, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]

CREATE, UPDATE = CreateRecord(), UpdateRecord()
MANUAL = {"model": "fileapp.manual"}
SCOPES = frozenset({"mcp:read", "mcp:write"})


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def png(width: int = 2, height: int = 2) -> bytes:
    out = io.BytesIO()
    Image.new("1", (width, height)).save(out, "PNG")
    return out.getvalue()


def given(name: str, data: bytes = b"%PDF") -> dict[str, str]:
    return {"name": name, "base64": b64(data)}


@pytest.fixture
def root() -> Any:
    return request_of(make_superuser(), MCPSite("files", admin_site=files_admin), scopes=SCOPES)


def make_manual(**values: Any) -> Manual:
    manual = Manual(title="M", **values)
    manual.file.save("old.pdf", ContentFile(b"old"))
    return manual


def create(root: Any, **values: Any) -> Manual:
    made = call(CREATE, root, **MANUAL, values={"title": "M", "file": given("a.pdf"), **values})
    return Manual.objects.get(pk=made["pk"])


def refused(root: Any, **values: Any) -> str:
    text = refusal(CREATE, root, **MANUAL, values={"title": "M", "file": given("a.pdf"), **values})
    assert not Manual.objects.exists()
    return text


# Writing


def test_a_client_writes_a_file_and_reads_the_same_bytes() -> None:
    client, author = MCPClient(make_superuser()), make_author()
    data = bytes(range(256)) * 40
    values = {"title": "T", "isbn": "1", "price": "1", "author": author.pk, "cover": given("front.bin", data)}
    made = client.call("create_record", model="testapp.book", values=values)
    assert not made.is_error, made.text
    uri = f"django://testapp/book/{made.structured['pk']}/cover"
    assert base64.b64decode(client.read(uri)[0]["blob"]) == data
    changed = client.call(
        "update_record",
        model="testapp.book",
        pk=made.structured["pk"],
        values={"cover": {"name": "n.txt", "text": "ü"}},
    )
    assert changed.structured["changed"] == ["cover"]
    assert client.read(uri)[0]["text"] == "ü"


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (given("a.pdf", b"\0\xff"), b"\0\xff"),
        ({"name": "a.pdf", "base64": f"data:application/pdf;base64,{b64(b'x')}"}, b"x"),
        ({"name": "a.pdf", "base64": " eA\n== "}, b"x"),
        ({"name": "a.txt", "text": "ünï"}, "ünï".encode()),
        (json.dumps({"name": "a.txt", "text": "x"}), b"x"),
    ],
    ids=["base64", "data-url", "white-space", "text", "object-as-text"],
)
def test_the_ways_to_give_a_file(root: Any, value: Any, data: bytes) -> None:
    manual = create(root, file=value)
    assert manual.file.read() == data
    assert manual.file.name.startswith("manuals/20")


@pytest.mark.parametrize(
    "value",
    [
        "manuals/old.pdf",
        "",
        1,
        True,
        [],
        ["x"],
        {},
        {"name": "a.pdf"},
        {"base64": "eA=="},
        {"name": "a.pdf", "base64": "eA==", "text": "x"},
        {"name": "a.pdf", "path": "/etc/passwd"},
        {"name": "a.pdf", "url": "http://localhost/"},
        {"url": "http://localhost/", "base64": "eA=="},
    ],
    ids=json.dumps,
)
def test_what_is_no_file_is_refused_with_how_to_give_one(root: Any, value: Any) -> None:
    assert 'file: Give {"name": "manual.pdf", "base64": "..."}' in refused(root, file=value)


@pytest.mark.parametrize("text", ["eA", "e A = x", "eA==!", "ünï", "eA==eA==", "=", 5, None, ["eA=="]], ids=json.dumps)
def test_row_159_base64_that_is_none_is_refused(root: Any, text: Any) -> None:
    assert "file: base64" in refused(root, file={"name": "a.pdf", "base64": text})


@pytest.mark.parametrize("text", ["\ud800", 5, None, ["x"]], ids=["half", "number", "null", "list"])
def test_row_159_text_that_is_none_is_refused(root: Any, text: Any) -> None:
    assert "file: text" in refused(root, file={"name": "a.txt", "text": text})


def test_row_159_a_file_beyond_the_bound_is_refused(root: Any) -> None:
    with override_settings(MCP_DJANGO={"MAX_FILE_BYTES": 10}):
        assert "file: The file has 11 bytes; the limit is 10." in refused(root, file=given("a.pdf", b"x" * 11))
        assert "file: The file has 11 bytes; the limit is 10." in refused(
            root, file={"name": "a.txt", "text": "x" * 11}
        )
        assert "the limit is 10." in refused(root, file={"name": "a.pdf", "base64": "A" * 400})
        assert create(root, file=given("a.pdf", b"x" * 10)).file.size == 10


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("../x.pdf", "x.pdf"),
        ("..\\..\\x.pdf", "x.pdf"),
        ("/etc/x.pdf", "x.pdf"),
        ("C:\\x.pdf", "x.pdf"),
        ("a\0b\r\n\x7f.pdf", "ab.pdf"),
        (".htaccess", "htaccess"),
        ("...x.pdf. .", "x.pdf"),
        ("CON", "_CON"),
        ("con.pdf", "_con.pdf"),
        ("lpt1.tar.gz", "_lpt1.tar.gz"),
        ("console.pdf", "console.pdf"),
        ("\ud800x\u202e.pdf", "x.pdf"),
        ("Bøøk 1.pdf", "Bøøk 1.pdf"),
    ],
    ids=lambda text: text.encode("unicode-escape").decode(),
)
def test_row_159_a_name_is_never_a_path(name: str, safe: str) -> None:
    assert safe_name(name) == safe


@pytest.mark.parametrize("name", ["", "..", "../", "a/", "a\\", "\0", " . ", None, 5, ["a"], {}], ids=repr)
def test_row_159_a_name_of_nothing_is_refused(root: Any, name: Any) -> None:
    assert "file: Give the name of the file" in refused(root, file={"name": name, "base64": "eA=="})


@pytest.mark.parametrize("name", ["../../up.pdf", "..\\up.pdf", "/up.pdf", "a/../../up.pdf"])
def test_row_159_a_file_is_stored_where_the_field_says(
    root: Any, name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "media").mkdir()
    monkeypatch.setattr(Manual._meta.get_field("file"), "storage", FileSystemStorage(location=tmp_path / "media"))
    manual = create(root, file=given(name))
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.pdf")] == [f"media/{manual.file.name}"]


def test_row_159_a_long_name_is_refused_by_the_form_and_an_existing_one_is_replaced_by_another(root: Any) -> None:
    assert "file: Ensure this filename has at most 100 characters" in refused(root, file=given("x" * 300 + ".pdf"))
    first, second = create(root), create(root)
    assert first.file.name != second.file.name
    long = create(root, note={"name": "y" * 24 + ".txt", "text": "x"})
    assert len(long.note.name) <= 30


def test_the_validators_of_the_field_run(root: Any) -> None:
    assert "file: File extension “exe” is not allowed." in refused(root, file=given("a.exe"))
    assert "file: The submitted file is empty." in refused(root, file=given("a.pdf", b""))
    assert "picture: Upload a valid image." in refused(root, picture=given("a.png", b"no image"))
    assert "picture: File extension “svg” is not allowed." in refused(root, picture=given("a.svg", png()))
    assert create(root, picture=given("a.png", png())).picture.width == 2


def test_row_159_an_image_of_too_many_pixels_is_refused_by_its_header(
    root: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = png(1000, 1000)
    assert len(bomb) < 1000
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100_000)
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("it was decoded"))
    assert "picture: The image has too many pixels." in refused(root, picture=given("a.png", bomb))


def test_a_required_file_stays_required(root: Any) -> None:
    text = refusal(CREATE, root, **MANUAL, values={"title": "M"})
    assert "file: This field is required." in text
    manual = make_manual()
    assert "file: This field is required." in refusal(UPDATE, root, **MANUAL, pk=manual.pk, values={"file": None})
    manual.refresh_from_db()
    assert manual.file.read() == b"old"


def test_null_takes_an_optional_file_away_and_what_is_not_named_stays(root: Any) -> None:
    manual = make_manual()
    manual.note.save("n.txt", ContentFile(b"note"))
    done = call(UPDATE, root, **MANUAL, pk=manual.pk, values={"title": "N"})
    assert done["changed"] == ["title"]
    manual.refresh_from_db()
    assert (manual.file.read(), manual.note.read()) == (b"old", b"note")
    assert call(UPDATE, root, **MANUAL, pk=manual.pk, values={"note": None})["changed"] == ["note"]
    manual.refresh_from_db()
    assert (bool(manual.note), manual.file.name[:8]) == (False, "manuals/")


def test_a_page_without_the_box_takes_no_file_away(root: Any) -> None:
    field = forms.FileField(required=False, widget=forms.FileInput)
    with pytest.raises(ValidationError, match="but not removed"):
        file_entries(root, field, "file", None)


def test_files_in_the_rows_of_an_inline(root: Any) -> None:
    pages = [{"number": 1, "scan": given("1.png", b"one")}, {"number": 2}]
    manual = create(root, pages=pages)
    first, second = Page.objects.order_by("number")
    assert (first.scan.read(), bool(second.scan)) == (b"one", False)
    changes = [{"pk": second.pk, "scan": given("2.png", b"two")}, {"pk": first.pk, "scan": None}]
    done = call(UPDATE, root, **MANUAL, pk=manual.pk, values={"pages": changes})
    assert done["changed"] == ["pages"]
    first, second = Page.objects.order_by("number")
    assert (bool(first.scan), second.scan.read()) == (False, b"two")
    wrong = [{"pk": second.pk, "scan": {"name": "x", "base64": "!"}}]
    assert "pages[0].scan: base64" in refusal(UPDATE, root, **MANUAL, pk=manual.pk, values={"pages": wrong})


def test_many_rows_get_the_file_after_a_preview_that_stores_nothing(root: Any) -> None:
    pks = [make_manual().pk for _ in range(2)]
    storage = Manual._meta.get_field("note").storage
    arguments = {**MANUAL, "pks": pks, "values": {"note": {"name": "for-all.txt", "text": "all"}}}
    preview = call(UPDATE, root, **arguments)
    assert not storage.exists("notes/for-all.txt")
    call(UPDATE, root, **arguments, confirm_token=preview["confirm_token"])
    assert [manual.note.read() for manual in Manual.objects.all()] == [b"all", b"all"]


def test_an_exposures_serializer_gets_the_file() -> None:
    class ManualSerializer(serializers.ModelSerializer):
        class Meta:
            model = Manual
            fields = ["id", "title", "file", "note"]

    site = MCPSite("files")
    site.register(Manual, ModelExposure, fields=["id", "title", "file", "note"], serializer_class=ManualSerializer)
    root = request_of(make_superuser(), site, scopes=SCOPES)
    assert create(root).file.read() == b"%PDF"
    Manual.objects.all().delete()
    assert "file: base64" in refused(root, file={"name": "a.pdf", "base64": "!"})
    assert "file: File extension" in refused(root, file=given("a.exe"))
    assert "file: " in refused(root, file="manuals/a.pdf")


def test_an_action_gets_the_file_of_its_form() -> None:
    class ImportForm(ActionForm):
        file = forms.FileField()

    class ManualAdmin(admin.ModelAdmin):
        action_form = ImportForm
        actions = ["retitle"]

        def retitle(self, request: Any, queryset: Any) -> None:
            queryset.update(title=request.FILES["file"].read().decode())

        retitle.mcp_destructive = False  # type: ignore[attr-defined]

    own = admin.AdminSite("own")
    own.register(Manual, ManualAdmin)
    root = request_of(make_superuser(), MCPSite("own", admin_site=own), scopes=SCOPES)
    tool = ActionTool(root.mcp.site.exposures[Manual].get_actions(root)["retitle"])
    manual = make_manual()
    assert tool.input_schema["properties"]["file"]["type"] == "object"
    for wrong in ({}, {"file": "a.txt"}):
        assert "file" in refusal(tool, root, pks=[manual.pk], **wrong)
    call(tool, root, pks=[manual.pk], file={"name": "a.txt", "text": "New"})
    assert Manual.objects.get().title == "New"


# Descriptions


def test_descriptions_say_how_to_write_a_file(root: Any) -> None:
    brief = call(DescribeModel(), root, model="fileapp.manual")
    assert "file* file, picture image, note file" in brief["fields"]
    full = call(DescribeModel(), root, model="fileapp.manual", detail=True)
    assert 'file: file, required, write {"name", "base64"} or {"name", "text"}' in full["fields"]
    assert full["input_schema"]["required"] == ["title", "file"]
    assert full["input_schema"]["properties"]["note"]["type"] == "object"


# Reading


class Presigned(InMemoryStorage):
    """As those of clouds: the URL carries the credentials of the server."""

    def url(self, name: str | None) -> str:
        return f"https://bucket.example/{name}?X-Amz-Signature=secret"


@pytest.mark.parametrize("serialized", [False, True], ids=["plain", "serializer"])
def test_row_158_no_url_of_the_storage_is_shown(monkeypatch: pytest.MonkeyPatch, serialized: bool) -> None:
    class CoverSerializer(serializers.ModelSerializer):
        class Meta:
            model = Book
            fields = ["cover"]

    class BookSerializer(serializers.ModelSerializer):
        covers = CoverSerializer(many=True, source="related_books")

        class Meta:
            model = Book
            fields = ["id", "title", "cover", "covers"]

    monkeypatch.setattr(Book._meta.get_field("cover"), "storage", Presigned())
    site = MCPSite("files")
    options = {"serializer_class": BookSerializer} if serialized else {}
    names = ["id", "title", "cover", *(["covers"] if serialized else [])]
    site.register(Book, ModelExposure, fields=names, list_display=["id", "cover"], **options)
    monkeypatch.setattr(Book, "related_books", property(lambda book: [book]), raising=False)
    book = Book.objects.create(title="T", isbn="1", price=1, author=make_author())
    book.cover.save("a.txt", ContentFile(b"x"))
    root = request_of(make_superuser(), site, scopes=SCOPES, resource="http://testserver/mcp")
    shown = [
        call(GetRecord(), root, model="testapp.book", pk=book.pk),
        call(QueryRecords(), root, model="testapp.book"),
        call(UPDATE, root, model="testapp.book", pk=book.pk, values={"title": "U"}),
        Resources(root).find(f"django://testapp/book/{book.pk}").read(),
        Resources(root).find("django://testapp/book").read(),
    ]
    text = json.dumps(shown, default=str)
    assert "cover" in text
    assert "bucket" not in text


def test_a_full_disk_leaves_no_half_file_and_is_named(root, monkeypatch, tmp_path):
    storage = FileSystemStorage(tmp_path)
    monkeypatch.setattr(Manual._meta.get_field("file"), "storage", storage)
    # From now on the files of writes that are tried are caught.
    call(CREATE, root, **MANUAL, values={"title": "x", "file": given("a.pdf")}, dry_run=True)

    def chunks(file: Any, chunk_size: Any = None) -> Any:
        yield b"half"
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("django.core.files.uploadedfile.InMemoryUploadedFile.chunks", chunks)
    text = refusal(CREATE, root, **MANUAL, values={"title": "x", "file": given("a.pdf")})
    assert text == "Nothing was changed: the disk for files is full. Tell the operator."
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert not Manual.objects.exists()
