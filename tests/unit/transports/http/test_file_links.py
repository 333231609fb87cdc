"""Files by URL: sent once, by whoever may write, and given to whoever may read at that time."""

import asyncio
import errno
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage, storages
from django.db import connections
from django.http import HttpRequest, UnreadablePostError
from django.test import Client, override_settings
from django.urls import Resolver404, resolve
from oauth2_provider.models import get_access_token_model

from mcp_django import MCPSite
from mcp_django.asgi import get_asgi_application
from mcp_django.context.tickets import Ticket
from mcp_django.emulation.uploads import FOLDER
from mcp_django.operating.switches import end_switch, find_switches, set_switch
from mcp_django.testing import MCPClient
from tests.asgi_client import Exchange, http_scope
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Book
from tests.tool_calls import request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]

MEMORY = {"BACKEND": "django.core.files.storage.InMemoryStorage"}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


@pytest.fixture(autouse=True)
def uploads(settings: Any) -> Any:
    """A private storage for what is sent, and a public one that the records have."""
    settings.STORAGES = {**settings.STORAGES, "mcp_uploads": MEMORY}
    return storages["mcp_uploads"]


def path_of(url: str) -> str:
    assert url.startswith("http://testserver/mcp/")
    return url.removeprefix("http://testserver")


def put(url: str, data: bytes = PNG, **extra: Any) -> Any:
    # Whoever sends it has no token and no cookie.
    return Client(enforce_csrf_checks=True).put(path_of(url), data, content_type="application/octet-stream", **extra)


def kept(storage: Any) -> list[str]:
    return storage.listdir(FOLDER)[1] if storage.exists(FOLDER) else []


def get(url: str, **extra: Any) -> Any:
    return Client().get(path_of(url), **extra)


def content(answer: Any) -> bytes:
    return b"".join(answer.streaming_content)


def writer(name: str = "writer") -> User:
    return make_user(name, "testapp.view_book", "testapp.add_book", "testapp.change_book")


def upload_url(user: User) -> str:
    made = MCPClient(user).call("create_upload")
    assert not made.is_error, made.text
    url: str = made.structured["url"]
    return url


def download_url(user: User, book: Book) -> str:
    shown = MCPClient(user).call("get_record", model="testapp.book", pk=book.pk).structured
    assert shown["downloads"]["expires_in"] == 600
    url: str = shown["downloads"]["cover"]
    return url


def book_with(name: str = "a.pdf", data: bytes = PNG) -> Book:
    book = make_book()
    book.cover.save(name, ContentFile(data))
    return book


def forget_permissions(user: User) -> None:
    user.user_permissions.clear()


def deactivate(user: User) -> None:
    User.objects.filter(pk=user.pk).update(is_active=False)


def revoke(user: User) -> None:
    get_access_token_model().objects.filter(user=user).delete()


def delete(user: User) -> None:
    user.delete()


ENDS = [forget_permissions, deactivate, revoke, delete]


# Sending


def test_what_was_sent_becomes_the_file_of_a_record(uploads: Any, django_capture_on_commit_callbacks: Any) -> None:
    client, author = MCPClient(make_superuser()), make_author()
    made = client.call("create_upload").structured
    assert (made["method"], made["expires_in"], made["max_bytes"]) == ("PUT", 600, 5 * 1024 * 1024)
    answer = put(made["url"])
    assert (answer.status_code, answer.content) == (201, b"Received 264 bytes.\n")
    values = {"title": "T", "isbn": "1", "price": "1", "author": author.pk}
    cover = {"name": "../covers/front.png", "upload": made["upload"]}
    refused = client.call("create_record", model="testapp.book", values={**values, "price": "x", "cover": cover})
    assert refused.is_error
    with django_capture_on_commit_callbacks(execute=True):
        done = client.call("create_record", model="testapp.book", values={**values, "cover": cover})
    assert not done.is_error, done.text
    book = Book.objects.get(title="T")
    assert book.cover.name.startswith("covers/front")
    assert book.cover.read() == PNG
    assert kept(uploads) == []
    again = client.call("update_record", model="testapp.book", pk=book.pk, values={"cover": cover})
    assert "There is no such upload" in again.text


def test_a_url_takes_one_file(uploads: Any) -> None:
    url = upload_url(writer())
    assert put(url, b"first").status_code == 201
    assert put(url, b"second").status_code == 409
    (name,) = kept(uploads)
    assert uploads.open(f"{FOLDER}/{name}").read() == b"first"


def test_a_url_takes_no_second_file_when_a_record_has_taken_the_first(
    uploads: Any, django_capture_on_commit_callbacks: Any
) -> None:
    client, book = MCPClient(make_superuser()), make_book()
    made = client.call("create_upload").structured
    assert put(made["url"]).status_code == 201
    with django_capture_on_commit_callbacks(execute=True):
        values = {"cover": {"name": "front.png", "upload": made["upload"]}}
        assert not client.call("update_record", model="testapp.book", pk=book.pk, values=values).is_error
    assert kept(uploads) == []
    assert put(made["url"], b"second").status_code == 409
    assert kept(uploads) == []


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("bucket s3://secret")]
)
def test_a_storage_that_fails_is_told_in_a_line_and_spends_no_url(
    uploads: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    url = upload_url(writer())

    def fill_up(self: Any, name: str, content: Any) -> str:
        keep(self, name, ContentFile(b"half of it"))
        raise error

    keep = type(uploads)._save
    with monkeypatch.context() as patch:
        patch.setattr(type(uploads), "_save", fill_up)
        refused = put(url)
    assert (refused.status_code, refused["Content-Type"]) == (507, "text/plain; charset=utf-8")
    text = refused.content.decode()
    assert text.startswith("The server could not keep the file. You can send it again to the same URL. (error ")
    assert text.partition("error ")[2].rstrip(")\n") in caplog.text
    assert kept(uploads) == []
    assert put(url).status_code == 201


def test_without_the_cache_a_file_is_refused_in_a_line(uploads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    url = upload_url(writer())

    def down(*args: Any) -> None:
        raise ConnectionError("redis://secret@cache")

    monkeypatch.setattr("mcp_django.runtime.cache_and_rate_limits.cache", SimpleNamespace(incr=down))
    monkeypatch.setattr("mcp_django.transports.http.file_links.Caller.count_call", lambda caller: None)
    refused = put(url)
    assert (refused.status_code, refused["Content-Type"]) == (503, "text/plain; charset=utf-8")
    assert b"Send it again" in refused.content
    monkeypatch.undo()
    assert put(url).status_code == 201


def test_of_two_at_the_same_time_one_is_kept(uploads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    url = upload_url(writer())
    assert put(url, b"first").status_code == 201
    monkeypatch.setattr(type(uploads), "exists", lambda self, name: False)
    monkeypatch.setattr(type(uploads), "get_available_name", lambda self, name, max_length=None: f"{name}_1")
    assert put(url, b"second").status_code == 409
    monkeypatch.undo()
    (name,) = kept(uploads)
    assert uploads.open(f"{FOLDER}/{name}").read() == b"first"


def test_row_159_a_body_beyond_the_bound_leaves_nothing_and_the_url_good(uploads: Any) -> None:
    url = upload_url(writer())
    with override_settings(MCP_DJANGO={"BASE_URL": "http://testserver", "MAX_FILE_BYTES": 10}):
        assert put(url, b"x" * 11).status_code == 413
        assert kept(uploads) == []
        assert put(url, b"x" * 10).status_code == 201


@pytest.mark.parametrize(
    ("length", "status"), [("9", 201), ("", 411), ("x", 400), ("-1", 400), ("9" * 9, 413), ("9" * 30, 400)]
)
def test_a_length_that_is_none_or_too_much_is_refused(uploads: Any, length: str, status: int) -> None:
    answer = put(upload_url(writer()), b"123456789", CONTENT_LENGTH=length)
    assert (answer.status_code, len(kept(uploads))) == (status, int(status == 201))


def test_a_body_whose_sender_goes_is_not_kept(uploads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(self: Any, size: int) -> bytes:
        raise UnreadablePostError

    url = upload_url(writer())
    with monkeypatch.context() as patch:
        patch.setattr(HttpRequest, "read", read)
        assert put(url).status_code == 400
    assert kept(uploads) == []
    assert put(url).status_code == 201


@pytest.mark.parametrize("end", ENDS)
def test_a_url_ends_with_what_its_user_may(uploads: Any, end: Any) -> None:
    user = writer()
    url = upload_url(user)
    end(user)
    assert put(url).status_code == 404
    assert kept(uploads) == []


def test_uploads_are_counted(uploads: Any) -> None:
    user = writer()
    with override_settings(MCP_DJANGO={"BASE_URL": "http://testserver", "RATES": {"uploads": "1/h"}}):
        assert put(upload_url(user)).status_code == 201
        answer = put(upload_url(user))
    assert (answer.status_code, len(kept(uploads))) == (429, 1)
    assert 0 < int(answer["Retry-After"]) <= 3600


def test_what_was_sent_cannot_be_read_by_its_url(uploads: Any) -> None:
    url = upload_url(writer())
    put(url, b"<script>")
    assert get(url).status_code == 405
    assert get(url.replace("/uploads/", "/files/")).status_code == 404


@pytest.mark.parametrize("switched", [("everything", ""), ("writes", ""), ("user", "writer")], ids=lambda pair: pair[0])
def test_what_is_switched_off_takes_no_file_until_it_is_on_again(uploads: Any, switched: tuple[str, str]) -> None:
    url = upload_url(writer())
    set_switch(*switched, reason="Audit")
    answer = put(url)
    assert (answer.status_code, kept(uploads)) == (403, [])
    assert b"switched off. Reason given: Audit" in answer.content
    end_switch(find_switches(*switched)[0])
    assert put(url).status_code == 201


def test_a_link_to_a_row_of_a_model_that_is_switched_off_gives_no_file() -> None:
    url = download_url(writer(), book_with())
    set_switch("writes")
    assert get(url).status_code == 200
    set_switch("model", "testapp.book", reason="Audit")
    answer = get(url)
    assert (answer.status_code, b"Audit" in answer.content) == (403, True)


def test_read_only_and_a_storage_that_is_gone_end_a_url(uploads: Any, settings: Any) -> None:
    url = upload_url(writer())
    with override_settings(MCP_DJANGO={"BASE_URL": "http://testserver", "READ_ONLY": True}):
        assert put(url).status_code == 404
    settings.STORAGES = {name: value for name, value in settings.STORAGES.items() if name != "mcp_uploads"}
    assert put(url).status_code == 404


# Giving


@pytest.mark.parametrize(
    ("name", "kind"), [("a.pdf", "application/pdf"), ("a.html", "text/plain"), ("a.svg", "text/plain")]
)
def test_row_160_a_file_is_given_to_be_saved_and_never_run(name: str, kind: str) -> None:
    answer = get(download_url(writer(), book_with(name)))
    assert (answer.status_code, content(answer)) == (200, PNG)
    assert answer["Content-Type"] == kind
    assert answer["Content-Disposition"].startswith("attachment; filename=")
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer["Content-Security-Policy"]
    assert answer["Cache-Control"] == "private, no-store"
    assert answer["Content-Length"] == str(len(PNG))


def test_row_160_a_name_cannot_write_headers(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Book._meta.get_field("cover"), "storage", FileSystemStorage(location=tmp_path))
    user, book = writer(), make_book()
    (tmp_path / 'a"; x="ü.txt').write_bytes(b"x")
    Book.objects.filter(pk=book.pk).update(cover='a"; x="ü.txt')
    answer = get(download_url(user, book))
    assert answer["Content-Disposition"] == "attachment; filename*=utf-8''a%22%3B%20x%3D%22%C3%BC.txt"
    assert content(answer) == b"x"
    Book.objects.filter(pk=book.pk).update(cover="a\r\nX-Evil: 1")
    assert get(download_url(user, book)).status_code == 404


@pytest.mark.parametrize(
    "name",
    ["../secret.txt", "covers/../../secret.txt", "/etc/passwd", "..\\secret.txt", "link.txt", "linked/secret.txt", "."],
)
def test_row_157_a_name_that_leads_elsewhere_is_not_given(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    media = tmp_path / "media"
    media.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (media / "link.txt").symlink_to(tmp_path / "secret.txt")
    (media / "linked").symlink_to(tmp_path)
    monkeypatch.setattr(Book._meta.get_field("cover"), "storage", FileSystemStorage(location=media))
    book = make_book()
    Book.objects.filter(pk=book.pk).update(cover=name)
    answer = get(download_url(writer(), book))
    assert (answer.status_code, answer.content) == (404, b"There is nothing here, or no longer.\n")


@pytest.mark.parametrize("end", ENDS)
def test_row_158_a_link_ends_with_what_its_user_may(end: Any) -> None:
    user, book = writer(), book_with()
    url = download_url(user, book)
    assert get(url).status_code == 200
    end(user)
    assert get(url).status_code == 404


def test_a_link_ends_with_the_row() -> None:
    user, book = writer(), book_with()
    url = download_url(user, book)
    book.delete()
    assert get(url).status_code == 404


def test_a_file_that_is_too_long_to_read_is_told_with_its_link() -> None:
    user, book = writer(), book_with(data=b"x" * 11)
    with override_settings(MCP_DJANGO={"BASE_URL": "http://testserver", "MAX_FILE_BYTES": 10}):
        answer = MCPClient(user).send("resources/read", {"uri": f"django://testapp/book/{book.pk}/cover"}).json()
        message = answer["error"]["message"]
        assert "at most 10 can be read. It can be downloaded for 10 minutes from http" in message
        assert content(get(message.rpartition(" ")[2])) == b"x" * 11


# Tickets


def test_a_ticket_of_another_site_use_or_time_is_good_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    user, book = writer(), book_with()
    url = download_url(user, book)
    about = ("testapp.book", str(book.pk), "cover")
    other = request_of(user, MCPSite("other"), resource="http://testserver/mcp")
    assert get(Ticket.url(other, "files", *about)).status_code == 404
    assert get(url[:-1] + ("A" if url[-1] != "A" else "B")).status_code == 404
    assert get(url + "/").status_code == 404
    assert put(url.replace("/files/", "/uploads/")).status_code == 404
    assert put(url).status_code == 405
    now = __import__("time").time()
    monkeypatch.setattr("django.core.signing.time.time", lambda: now + 601)
    assert get(url).status_code == 404


def test_a_host_that_is_not_the_sites_is_refused() -> None:
    url = download_url(writer(), book_with())
    assert get(url, headers={"Host": "evil.example"}).status_code == 400


def test_a_call_that_is_too_large_is_told_of_the_other_way(uploads: Any, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    answer = MCPClient(writer()).post(b"x" * 1001)
    assert answer.status_code == 413
    assert "1000 bytes; create_upload gives a URL for a file" in answer.content.decode()


@pytest.mark.parametrize(("urlconf", "mount"), [("tests.urls", "/mcp"), ("tests.sse_urls", "/sse")])
def test_every_mount_has_them_below_it(urlconf: str, mount: str) -> None:
    ticket = "a:b:c"
    for use, name in (("files", "file"), ("uploads", "upload")):
        assert resolve(f"{mount}/{use}/{ticket}", urlconf).url_name == name
        for other in (f"{mount}/{use}/", f"{mount}/{use}/a", f"{mount}/{use}/{ticket}/x", f"{mount}/x/{use}/{ticket}"):
            with pytest.raises(Resolver404):
                resolve(other, urlconf)


# The fast road


async def ask(url: str, method: str, *parts: bytes, **headers: str) -> tuple[int, dict[str, str], bytes]:
    exchange = Exchange(get_asgi_application(), http_scope(path_of(url), method, **headers))
    for part in parts:
        await exchange.send(part, more=True)
    await exchange.send(b"")
    return await exchange.answer()


def run(*asked: Any) -> list[Any]:
    async def one_by_one() -> list[Any]:
        return [await item for item in asked]

    try:
        return asyncio.run(one_by_one())
    finally:
        connections.close_all()


@pytest.mark.django_db(transaction=True)
def test_the_fast_road_leaves_them_to_django(uploads: Any) -> None:
    user, data = writer(), bytes(range(256)) * 1000
    urls = upload_url(user), download_url(user, book_with(data=data))
    sent, given = run(ask(urls[0], "PUT", b"abc", b"def"), ask(urls[1], "GET"))
    assert (sent[0], sent[2]) == (201, b"Received 6 bytes.\n")
    assert (given[0], given[2]) == (200, data)
    assert given[1]["Content-Disposition"].startswith("attachment")
    assert given[1]["Content-Length"] == str(len(data))
    (name,) = kept(uploads)
    assert uploads.open(f"{FOLDER}/{name}").read() == b"abcdef"


@pytest.mark.django_db(transaction=True)
def test_row_159_a_body_that_nobody_announced_or_that_is_cut_is_not_kept(uploads: Any) -> None:
    user = writer()
    with override_settings(MCP_DJANGO={"BASE_URL": "http://testserver", "MAX_FILE_BYTES": 10}):
        url = upload_url(user)
        long, cut, right = run(
            ask(url, "PUT", b"x" * 6, b"x" * 6),
            ask(url, "PUT", b"x" * 6, content_length="9"),
            ask(url, "PUT", b"x" * 6, content_length="6"),
        )
    assert (long[0], cut[0], right[0]) == (413, 400, 201)
    assert len(kept(uploads)) == 1
