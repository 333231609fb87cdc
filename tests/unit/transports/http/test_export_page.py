"""The download of an export in a browser: who gets it, and what everybody else sees."""

import logging
import re
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.storage import InMemoryStorage, storages
from django.test import Client
from django.urls import Resolver404, clear_script_prefix, resolve, set_script_prefix
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from mcp_django.exports.kept_exports import KeptExport
from mcp_django.models import Export
from mcp_django.operating.switches import end_switch, set_switch
from mcp_django.testing import MCPClient
from mcp_django.transports.http.file_streams import OtherSize
from tests.confirming import path_of, signed_in
from tests.exporting import export_of, with_storage
from tests.factories import connection_lost, make_book, make_superuser, make_user
from tests.testapp.admin import BookAdmin
from tests.testapp.models import Book

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]

NOBODYS = f"/mcp/exports/{'0' * 32}"


@pytest.fixture(autouse=True)
def storage(settings: Any) -> Any:
    return with_storage(settings)


@pytest.fixture
def reader() -> User:
    make_book("Dune", price="5.00")
    return make_user("reader", "testapp.view_book")


def exported(user: Any, **arguments: Any) -> str:
    """Export books, and return the path of the page."""
    return path_of(export_of(user, **arguments).structured["url"])


def content(response: Any) -> bytes:
    assert response.status_code == 200, response.content
    return b"".join(response.streaming_content)


def masked(response: Any) -> str:
    """The page without what differs each time: the token of its form."""
    return re.sub(r'value="\w{64}"', "", response.content.decode())


# What its user gets


def test_its_user_gets_the_file_to_save(reader: User) -> None:
    response = signed_in(reader).get(exported(reader))
    body = f"id,title,price\r\n{Book.objects.get().pk},Dune,5.00\r\n".encode("utf-8-sig")
    assert content(response) == body
    assert re.fullmatch(r'attachment; filename="testapp\.book-[\d-]{10}\.csv"', response["Content-Disposition"])
    assert response["Content-Type"] == "text/csv"
    assert response["Content-Length"] == str(Export.objects.get().size) == str(len(body))


@pytest.mark.parametrize(("format", "kind"), [("jsonl", "application/jsonl"), ("xlsx", "spreadsheetml.sheet")])
def test_each_format_has_its_type_and_name(reader: User, format: str, kind: str) -> None:
    response = signed_in(reader).get(exported(reader, format=format))
    assert response["Content-Type"].endswith(kind)
    assert response["Content-Disposition"].endswith(f'.{format}"')
    assert content(response)[:2] == {"jsonl": b'{"', "xlsx": b"PK"}[format]


def test_no_browser_runs_or_keeps_it(reader: User) -> None:
    response = signed_in(reader).get(exported(reader))
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["X-Frame-Options"] == "DENY"
    assert response["Cross-Origin-Resource-Policy"] == "same-origin"
    assert response["Referrer-Policy"] == "no-referrer"
    assert "sandbox" in response["Content-Security-Policy"]
    assert {"no-store", "private"} <= set(response["Cache-Control"].split(", "))


def test_it_is_sent_as_a_whole_whatever_range_or_encoding_is_asked_for(reader: User, settings: Any) -> None:
    settings.MIDDLEWARE = ["django.middleware.gzip.GZipMiddleware", *settings.MIDDLEWARE]
    for number in range(50):
        make_book(f"Book {number}")
    page = exported(reader)
    response = signed_in(reader).get(page, headers={"Range": "bytes=3-8", "Accept-Encoding": "gzip"})
    assert response["Accept-Ranges"] == "none"
    body = content(response)
    assert body.startswith(b"\xef\xbb\xbfid,title")
    assert response["Content-Length"] == str(len(body))


def test_a_look_at_its_head_sends_nothing_of_it(reader: User) -> None:
    response = signed_in(reader).head(exported(reader))
    assert response.status_code == 200
    assert response["Content-Length"] == str(Export.objects.get().size)
    assert b"".join(response) == b""


def test_it_can_be_had_again_and_is_logged(reader: User, caplog: pytest.LogCaptureFixture) -> None:
    page = exported(reader)
    with caplog.at_level(logging.INFO, "mcp_django.exports"):
        assert content(signed_in(reader).get(page)) == content(signed_in(reader).get(f"{page}/"))
    told = [record.getMessage() for record in caplog.records if "downloads" in record.getMessage()]
    assert told == [f"reader downloads the export of call {Export.objects.get().call}: 1 rows of testapp.book"] * 2
    # Anyone who reads the log could try the address.
    assert Export.objects.get().pk not in caplog.text


@pytest.mark.parametrize("method", ["post", "put", "delete", "options", "patch"])
def test_it_can_only_be_fetched(reader: User, method: str) -> None:
    page = exported(reader)
    assert getattr(signed_in(reader), method)(page).status_code == 405
    assert Export.objects.exists()


# Whose it is


def test_who_is_not_signed_in_is_sent_to_the_login_of_the_project(reader: User) -> None:
    page = exported(reader)
    for path in (page, NOBODYS):
        response = Client().get(path)
        assert response.status_code == 302
        assert response["Location"] == f"/admin/login/?next={path}"


def test_a_link_that_was_passed_on_gives_nothing_to_another_user_not_even_a_superuser(reader: User) -> None:
    page = exported(reader)
    eve = signed_in(make_superuser("eve"))
    theirs = eve.get(page)
    missing = eve.get(NOBODYS)
    assert theirs.status_code == missing.status_code == 404
    assert masked(theirs) == masked(missing)
    different = {"Date", "Set-Cookie"}
    assert {name: value for name, value in theirs.items() if name not in different} == {
        name: value for name, value in missing.items() if name not in different
    }
    assert "Dune" not in theirs.content.decode()


def test_a_bearer_token_opens_nothing(reader: User) -> None:
    page = exported(reader)
    token = {"authorization": MCPClient(reader).headers["Authorization"]}
    for browser in (Client(), signed_in(reader)):
        response = browser.get(page, headers=token)
        assert response.status_code == 302
        assert "/login/" in response["Location"]


def test_a_user_whom_middleware_found_by_a_token_is_nobody_here(reader: User, settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.TokenMiddleware"]
    assert Client().get(exported(reader)).status_code == 302


class TokenMiddleware:
    """Finds the user by a token, as some packages do."""

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        request.user = User.objects.get(username="reader")
        return self.get_response(request)


def test_without_sessions_nobody_gets_it(reader: User, settings: Any) -> None:
    page = exported(reader)
    browser = signed_in(reader)
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "auth" not in name and "message" not in name]
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "sessions" not in name]
    assert browser.get(page).status_code == 302


@pytest.mark.parametrize("end", [".csv", "/testapp.book.csv", "/..%2f..%2fetc%2fpasswd", "%00"])
def test_a_name_with_a_path_leads_nowhere(reader: User, end: str) -> None:
    assert signed_in(reader).get(exported(reader) + end).status_code == 404


@pytest.mark.parametrize(
    "guess", ["0" * 32, "f" * 32, "../mcp", "%2e%2e", "1", "A" * 32, "0" * 31, "0" * 33, "\u0661" * 32]
)
def test_guessed_ids_lead_nowhere(reader: User, guess: str) -> None:
    exported(reader)
    assert signed_in(reader).get(f"/mcp/exports/{guess}").status_code in (404, 405)


def test_the_case_of_an_id_counts(reader: User) -> None:
    page = exported(reader)
    # Some databases compare texts without their case.
    assert signed_in(reader).get(page.upper().replace("/MCP/EXPORTS", "/mcp/exports")).status_code == 404


@pytest.mark.parametrize("change", [{"site": "other"}, {"resource": "http://testserver/other"}, {"resource": "stdio:"}])
def test_an_export_of_another_endpoint_is_not_there(reader: User, change: dict[str, str]) -> None:
    page = exported(reader)
    Export.objects.update(**change)
    assert signed_in(reader).get(page).status_code == 404


# What ends it


def forget_permissions(user: User) -> None:
    user.user_permissions.clear()


def expire(user: User) -> None:
    Export.objects.update(expires=timezone.now())


def unfinish(user: User) -> None:
    Export.objects.update(size=None)


def lose_the_file(user: User) -> None:
    storages["mcp_exports"].delete(Export.objects.get().stored)


def lose_the_row(user: User) -> None:
    KeptExport(Export.objects.get()).delete()


def lose_the_key(user: User) -> None:
    Export.objects.update(question=b"of a SECRET_KEY that is gone")


@pytest.mark.parametrize(
    "end",
    [forget_permissions, expire, unfinish, lose_the_file, lose_the_row, lose_the_key],
    ids=lambda end: end.__name__,
)
def test_what_has_ended_is_gone_as_if_it_had_never_been(reader: User, end: Any) -> None:
    page = exported(reader)
    browser = signed_in(reader)
    assert browser.get(page).status_code == 200
    end(reader)
    gone, missing = browser.get(page), browser.get(NOBODYS)
    assert gone.status_code == 404
    assert masked(gone) == masked(missing)


def test_a_column_that_is_hidden_now_takes_the_file_away(reader: User, monkeypatch: pytest.MonkeyPatch) -> None:
    page, other = exported(reader), exported(reader, fields=["title"])
    by_price = exported(reader, fields=["title"], filters={"price__gt": 4})
    monkeypatch.setattr(BookAdmin, "list_display", ["title"])
    monkeypatch.setattr(BookAdmin, "get_fieldsets", lambda *args: [(None, {"fields": ["title"]})])
    browser = signed_in(reader)
    assert [browser.get(path).status_code for path in (page, by_price, other)] == [404, 404, 200]


def test_a_model_that_the_admin_hides_now_takes_the_file_away(reader: User, monkeypatch: pytest.MonkeyPatch) -> None:
    page = exported(reader)
    monkeypatch.setattr(BookAdmin, "has_view_permission", lambda *args: False)
    assert signed_in(reader).get(page).status_code == 404


def test_what_may_no_longer_be_exported_is_gone_though_it_may_be_viewed(
    reader: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = exported(reader)
    monkeypatch.setattr(BookAdmin, "has_export_permission", lambda self, request: False, raising=False)
    assert signed_in(reader).get(page).status_code == 404
    assert not MCPClient(reader).call("query_records", model="testapp.book").is_error


def test_a_user_who_is_not_active_is_nobody(reader: User) -> None:
    page = exported(reader)
    browser = signed_in(reader)
    User.objects.update(is_active=False)
    assert browser.get(page).status_code == 302


@pytest.mark.parametrize(
    "switched", [("everything", ""), ("model", "testapp.book"), ("tool", "export_records"), ("user", "reader")]
)
def test_what_is_switched_off_is_refused_until_it_is_on_again(reader: User, switched: tuple[str, str]) -> None:
    page = exported(reader)
    switch = set_switch(*switched, reason="Stocktaking", by="boss")
    browser = signed_in(reader)
    refused = browser.get(page)
    assert refused.status_code == 403
    assert "Stocktaking" in refused.content.decode()
    # To others, it is not there.
    assert "Stocktaking" not in signed_in(make_superuser("eve")).get(page).content.decode()
    end_switch(switch, by="boss")
    assert browser.get(page).status_code == 200


def test_downloads_count_as_calls(reader: User, settings: Any) -> None:
    page = exported(reader)
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "RATES": {"calls": "2/m"}}
    browser = signed_in(reader)
    statuses = [browser.get(page).status_code for _ in range(3)]
    assert statuses[-1] == 429
    assert browser.get(page)["Retry-After"].isdigit()


def test_a_storage_that_is_away_is_told_with_the_number_of_its_error(
    reader: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    page = exported(reader)
    monkeypatch.setattr(InMemoryStorage, "_open", lambda *args: (_ for _ in ()).throw(ConnectionError("bucket")))
    response = signed_in(reader).get(page)
    assert response.status_code == 503
    assert response["Retry-After"] == "5"
    assert "bucket" not in response.content.decode()
    (number,) = re.findall(r"error ([0-9a-f]{32})", response.content.decode())
    assert number in caplog.text


def test_a_database_that_is_away_is_told(reader: User, monkeypatch: pytest.MonkeyPatch) -> None:
    page = exported(reader)
    browser = signed_in(reader)
    monkeypatch.setattr(KeptExport, "find", lambda *args, **kwargs: (_ for _ in ()).throw(connection_lost()))
    assert browser.get(page).status_code == 503


# Where it is


@pytest.mark.parametrize(("urlconf", "mount"), [("tests.urls", "/mcp"), ("tests.sse_urls", "/sse")])
def test_every_mount_has_it_below_it(urlconf: str, mount: str) -> None:
    assert resolve(f"{mount}/exports/{'0' * 32}", urlconf).url_name == "export"
    for other in (f"{mount}/exports/", f"{mount}/exports/{'0' * 32}/x", f"{mount}/x/exports/{'0' * 32}"):
        with pytest.raises(Resolver404):
            resolve(other, urlconf)


def test_the_page_that_says_why_speaks_the_language_of_the_browser(reader: User) -> None:
    page = signed_in(reader).get(NOBODYS, headers={"Accept-Language": "de"}).content.decode()
    assert "Die Datei ist nicht hier" in page
    assert '<html lang="de"' in page
    assert "<script" not in page


# What a browser, a proxy or an attacker may add


@pytest.mark.parametrize(
    "headers",
    [
        {"Range": "bytes=0-1,4-5"},
        {"Range": "bytes=-1"},
        {"Range": "bytes=99999999-"},
        {"Range": "bytes=3-8", "If-Range": '"x"'},
        {"If-None-Match": "*"},
        {"If-None-Match": 'W/"x"', "If-Modified-Since": "Fri, 01 Jan 2100 00:00:00 GMT"},
        {"If-Modified-Since": "Fri, 01 Jan 2100 00:00:00 GMT"},
        {"Accept-Encoding": "gzip, br", "TE": "trailers"},
    ],
    ids=str,
)
def test_no_condition_makes_it_a_part_or_says_that_it_is_known(
    reader: User, settings: Any, headers: dict[str, str]
) -> None:
    settings.MIDDLEWARE = ["django.middleware.http.ConditionalGetMiddleware", *settings.MIDDLEWARE]
    response = signed_in(reader).get(exported(reader), headers=headers)
    assert len(content(response)) == Export.objects.get().size
    assert "ETag" not in response
    assert "Last-Modified" not in response
    assert "Content-Range" not in response


def test_neither_a_cache_nor_a_frame_keeps_the_file_or_the_page_in_its_place(reader: User, settings: Any) -> None:
    settings.MIDDLEWARE = [
        "django.middleware.cache.UpdateCacheMiddleware",
        *settings.MIDDLEWARE,
        "django.middleware.cache.FetchFromCacheMiddleware",
    ]
    page = exported(reader)
    browser = signed_in(reader)
    for path, status in ((page, 200), (NOBODYS, 404)):
        response = browser.get(path)
        assert response.status_code == status
        assert "no-store" in response["Cache-Control"]
        assert "public" not in response["Cache-Control"]
        assert "Cookie" in response["Vary"]
        assert response["X-Frame-Options"] == "DENY"
        assert "frame-ancestors 'none'" in response["Content-Security-Policy"]
    # What one user got is not there for the next one, nor for the same one signed out.
    eve = signed_in(make_superuser("eve"))
    assert eve.get(page).status_code == 404
    browser.logout()
    assert browser.get(page).status_code == 302


def test_a_file_that_is_purged_while_it_is_sent_is_sent_to_its_end(reader: User, settings: Any, tmp_path: Any) -> None:
    disk = {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": tmp_path}}
    settings.STORAGES = {**settings.STORAGES, "mcp_exports": disk}
    for number in range(500):
        make_book(f"Book {number} {'x' * 190}")
    page = exported(reader)
    size = Export.objects.get().size
    response = signed_in(reader).get(page)
    pieces = iter(response.streaming_content)
    found = next(pieces)
    assert KeptExport.purge(every=True) == 1
    found += b"".join(pieces)
    assert len(found) == size > 2**16
    assert signed_in(reader).get(page).status_code == 404


def test_a_file_that_is_cut_or_replaced_in_the_storage_is_sent_as_no_whole_file(
    reader: User, settings: Any, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    disk = {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": tmp_path}}
    settings.STORAGES = {**settings.STORAGES, "mcp_exports": disk}
    page = exported(reader)
    row = Export.objects.get()
    for body in (b"", b"x", b"x" * (row.size + 1)):
        (tmp_path / row.stored).write_bytes(body)
        with pytest.raises(OtherSize):
            content(signed_in(reader).get(page))
    assert f"The download of the export of call {row.call}"[:64] in caplog.text
    assert row.pk not in caplog.text


def test_it_is_found_below_a_path_of_the_whole_project(reader: User) -> None:
    page = exported(reader)
    row = Export.objects.get()
    browser = signed_in(reader)
    # As behind a proxy that serves the project below /shop: the file was made there.
    Export.objects.update(resource="http://testserver/shop/mcp")
    set_script_prefix("/shop/")
    try:
        assert KeptExport(Export.objects.get()).url == f"http://testserver/shop{page}"
        assert len(content(browser.get(page, SCRIPT_NAME="/shop"))) == row.size
    finally:
        clear_script_prefix()
    assert browser.get(page).status_code == 404


def test_a_read_only_project_gives_files(reader: User, settings: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "READ_ONLY": True}
    assert b"Dune" in content(signed_in(reader).get(exported(reader)))


def test_a_client_that_is_switched_off_takes_its_files_away(reader: User) -> None:
    page = exported(reader)
    Export.objects.update(client_id="robot")
    set_switch("client", "robot", reason="Stolen", by="boss")
    assert signed_in(reader).get(page).status_code == 403


@pytest.fixture
def live_server() -> Iterator[LiveServer]:
    """A server for one test: other tests see which sockets listen."""
    server = LiveServer("localhost")
    yield server
    server.stop()


@pytest.mark.parametrize("format", ["csv", "jsonl", "xlsx"])
def test_a_real_connection_gives_the_file_and_its_head_and_nobody_elses(
    reader: User, live_server: LiveServer, format: str, request: pytest.FixtureRequest
) -> None:
    page = exported(reader, format=format)
    row = Export.objects.get()
    connection = HTTPConnection(live_server.url.partition("//")[2], timeout=60)
    request.addfinalizer(connection.close)

    def answer(method: str, path: str, user: User | None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        cookie = "" if user is None else f"sessionid={signed_in(user).cookies['sessionid'].value}"
        connection.request(method, path, headers={"Cookie": cookie, **headers})
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()

    status, headers, found = answer("HEAD", page, reader)
    assert (status, headers["Content-Length"], found) == (200, str(row.size), b"")
    status, headers, found = answer("GET", page, reader, Range="bytes=1-2")
    assert (status, len(found)) == (200, row.size)
    assert answer("GET", page, make_superuser("eve"))[0] == 404
    assert answer("GET", page, None)[0] == 302
    for path in (f"{page}/../{row.pk}", f"{page}%0d%0aX-Own:%201", f"{page};x", f"{page}?format=html", page.upper()):
        status, headers, again = answer("GET", path, reader)
        assert "X-Own" not in headers
        assert status in (200, 404)
        assert (again == found) is (status == 200)
