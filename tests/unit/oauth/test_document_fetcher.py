import gzip
import socket
import time
from collections.abc import Iterator
from email.message import Message
from http.client import HTTPMessage
from pathlib import Path
from typing import Any

import pytest

from mcp_django.oauth.document_fetcher import Fetcher, FetchFailed, age_of, is_private_or_public
from tests.tls_server import PUBLIC, Authority, Redirected, TLSServer, answer, dripping, proxying, serving

HOST = "client.example"
URL = f"https://{HOST}/client.json"
DOCUMENT = {"client_id": URL, "client_name": "Robot"}
# Seconds that what is slow here takes, or more: twice as many as the test does on a busy machine.
LONG = 60


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def server(authority: Authority) -> Iterator[TLSServer]:
    with serving(authority.context(HOST)) as running:
        yield running


@pytest.fixture
def fetcher(server: TLSServer, authority: Authority) -> Redirected:
    return Redirected(server, authority)


def refused(fetcher: Fetcher, url: str = URL) -> FetchFailed:
    with pytest.raises(FetchFailed) as failure:
        fetcher.fetch(url)
    return failure.value


def test_a_document_is_fetched_by_one_request_that_says_little(server: TLSServer, fetcher: Redirected) -> None:
    server.answers[f"{HOST}/client.json?v=2"] = answer(DOCUMENT)
    found = fetcher.fetch(f"{URL}?v=2")
    assert found.data == DOCUMENT
    assert found.age == 3600
    head = server.asked[0]
    assert head.startswith(f"GET /client.json?v=2 HTTP/1.1\r\nHost: {HOST}\r\n")
    assert not any(name in head.lower() for name in ("cookie", "authorization", "referer", "forwarded"))


@pytest.mark.parametrize("kind", ["application/json", "application/JSON; charset=UTF-8", "application/x-client+json"])
def test_json_is_taken_by_each_of_its_types(server: TLSServer, fetcher: Redirected, kind: str) -> None:
    server.answers[f"{HOST}/client.json"] = answer(DOCUMENT, kind)
    assert fetcher.fetch(URL).data == DOCUMENT


def test_a_body_may_come_in_chunks_and_in_pieces(server: TLSServer, fetcher: Redirected) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    server.answers[f"{HOST}/client.json"] = dripping(head + b'3\r\n{"a\r\n5\r\n": 1}\r\n0\r\n\r\n', 0.001)
    assert fetcher.fetch(URL).data == {"a": 1}


def test_a_document_of_64_kib_is_taken(server: TLSServer, fetcher: Redirected) -> None:
    server.answers[f"{HOST}/client.json"] = answer(b" " * (64 * 1024 - 2) + b"{}")
    assert fetcher.fetch(URL).data == {}


# A server that is out to harm


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [(answer(DOCUMENT), 0.4), (b"HTTP/1.1 200 OK\r\n" + b"X-A: " + b"a" * 200, 0.4), (b"", 0)],
    ids=["body", "head", "nothing"],
)
def test_all_of_it_has_five_seconds_however_it_drips(
    server: TLSServer, fetcher: Redirected, sent: bytes, seconds: float
) -> None:
    server.answers[f"{HOST}/client.json"] = dripping(sent, seconds) if sent else lambda connection: time.sleep(LONG)
    began = time.monotonic()
    failure = refused(fetcher)
    assert 4.5 < time.monotonic() - began < LONG / 2
    assert failure.is_passing
    assert "5 seconds" in failure.seen


def test_a_server_that_does_not_finish_the_handshake_has_five_seconds(authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        fetcher = Fetcher(is_private_or_public, str(authority.path))
        began = time.monotonic()
        failure = refused(fetcher, f"https://localhost:{silent.getsockname()[1]}/x")
    assert 4.5 < time.monotonic() - began < LONG / 2
    assert failure.is_passing


def test_a_name_server_that_does_not_answer_has_five_seconds(fetcher: Redirected) -> None:
    fetcher.resolve = lambda host, port: time.sleep(LONG) or []  # type: ignore[method-assign, func-returns-value]
    began = time.monotonic()
    assert refused(fetcher).is_passing
    assert 4.5 < time.monotonic() - began < LONG / 2


@pytest.mark.parametrize("location", ["https://other.example/x", "http://169.254.169.254/latest", "/elsewhere"])
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
def test_a_redirect_is_not_followed(server: TLSServer, fetcher: Redirected, location: str, status: str) -> None:
    server.answers[f"{HOST}/client.json"] = answer(DOCUMENT, status=status, Location=location)
    failure = refused(fetcher)
    assert "not followed" in failure.seen
    assert not failure.is_passing
    assert server.urls == [f"{HOST}/client.json"]


@pytest.mark.parametrize("second", ["127.0.0.1", "169.254.169.254", "10.0.0.1", "::1"])
def test_a_name_that_leads_elsewhere_the_next_time_gains_nothing(
    server: TLSServer, authority: Authority, second: str
) -> None:
    server.answers[f"{HOST}/client.json"] = answer(DOCUMENT)
    fetcher = Redirected(server, authority, [[PUBLIC], [second]])
    assert fetcher.fetch(URL).data == DOCUMENT
    assert fetcher.resolved == 1
    assert fetcher.connected == [PUBLIC]
    assert "public network" in refused(fetcher).seen
    assert fetcher.connected == [PUBLIC]


@pytest.mark.parametrize(
    "private", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "fec0::1"]
)
def test_one_address_that_is_not_public_is_enough_to_connect_to_none(
    server: TLSServer, authority: Authority, private: str
) -> None:
    fetcher = Redirected(server, authority, [[PUBLIC, private]])
    failure = refused(fetcher)
    assert not failure.is_passing
    assert private not in failure.seen
    assert server.connections == 0


def test_this_machine_is_refused_as_it_is_resolved_by_the_system() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        for host in ("localhost", "127.0.0.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:7f00:1]"):
            assert refused(Fetcher(), f"https://{host}:{listener.getsockname()[1]}/x").seen
        with pytest.raises(TimeoutError):
            listener.accept()


def test_a_proxy_in_the_environment_is_not_asked(
    server: TLSServer, fetcher: Redirected, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers[f"{HOST}/client.json"] = answer(DOCUMENT)
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(0.2)
        for name in ("https_proxy", "HTTPS_PROXY", "http_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        assert fetcher.fetch(URL).data == DOCUMENT
        with pytest.raises(TimeoutError):
            proxy.accept()


def endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
    while True:
        connection.sendall(b" " * 65_536)


def endless_head(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X: " + b"y" * 60_000 + b"\r\n")


def endless_continue(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)


@pytest.mark.parametrize(
    "sent",
    [
        endless,
        endless_head,
        endless_continue,
        answer(b" " * (64 * 1024 + 1)),
        answer(b"{}", Content_Length=str(10**12)),
    ],
    ids=["endless", "endless head", "endless continue", "one byte more", "a length"],
)
def test_what_is_huge_is_left_at_64_kib(server: TLSServer, fetcher: Redirected, sent: Any) -> None:
    server.answers[f"{HOST}/client.json"] = sent
    failure = refused(fetcher)
    assert failure.seen
    # It was not the time that ended it.
    assert "5 seconds" not in failure.seen


@pytest.mark.parametrize(
    "kind", ["text/html", "text/plain", "application/octet-stream", "application/jsonp", "", "json"]
)
def test_another_type_is_refused(server: TLSServer, fetcher: Redirected, kind: str) -> None:
    server.answers[f"{HOST}/client.json"] = answer(DOCUMENT, kind)
    assert "not JSON" in refused(fetcher).seen


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "x-gzip, gzip"])
def test_nothing_is_unpacked(server: TLSServer, fetcher: Redirected, encoding: str) -> None:
    bomb = gzip.compress(b" " * 10_000_000)
    server.answers[f"{HOST}/client.json"] = answer(bomb, Content_Encoding=encoding)
    assert "compressed" in refused(fetcher).seen


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe{\x00}\x00",
        "[]".encode("utf-16"),
        b"[" * 60_000,
        b'{"client_id": "a", "client_id": "b"}',
        b'{"a": NaN}',
        b'{"a": "\\ud800"}',
        b"9" * 10_000,
        b'{"a": "\xe9"}',
    ],
)
def test_what_is_no_json_in_utf_8_is_refused(server: TLSServer, fetcher: Redirected, body: bytes) -> None:
    server.answers[f"{HOST}/client.json"] = answer(body)
    assert "not JSON" in refused(fetcher).seen


def test_another_charset_is_refused(server: TLSServer, fetcher: Redirected) -> None:
    server.answers[f"{HOST}/client.json"] = answer(DOCUMENT, "application/json; charset=utf-7")
    assert "UTF-8" in refused(fetcher).seen


def test_a_body_that_ends_too_early_is_no_document(server: TLSServer, fetcher: Redirected) -> None:
    server.answers[f"{HOST}/client.json"] = answer(b"{}", Content_Length="5000")
    assert refused(fetcher).is_passing


@pytest.mark.parametrize("sent", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 abc\r\n\r\n", b"\x00" * 100])
def test_what_is_no_http_is_refused(server: TLSServer, fetcher: Redirected, sent: bytes) -> None:
    server.answers[f"{HOST}/client.json"] = sent
    assert refused(fetcher).is_passing


@pytest.mark.parametrize(("status", "passing"), [(404, False), (410, False), (403, False), (429, True), (503, True)])
def test_an_error_of_the_server_may_pass_and_a_missing_page_does_not(
    server: TLSServer, fetcher: Redirected, status: int, passing: bool
) -> None:
    server.answers[f"{HOST}/client.json"] = answer(DOCUMENT, status=f"{status} So")
    failure = refused(fetcher)
    assert failure.is_passing is passing
    assert str(status) in failure.seen


# The name of the host


def test_a_certificate_of_another_host_is_refused(server: TLSServer, fetcher: Redirected) -> None:
    failure = refused(fetcher, "https://other.example/client.json")
    assert "certificate" in failure.seen
    assert not server.asked


def test_an_authority_that_nobody_knows_is_refused(server: TLSServer, fetcher: Redirected, tmp_path: Path) -> None:
    fetcher.authorities = str(Authority(tmp_path).path)
    assert "certificate" in refused(fetcher).seen
    assert not server.asked


def test_an_authority_whose_file_is_missing_is_no_open_door(server: TLSServer, fetcher: Redirected) -> None:
    fetcher.authorities = "/nowhere/authority.pem"
    assert refused(fetcher).seen
    assert not server.asked


def test_each_of_a_few_addresses_is_tried(server: TLSServer, authority: Authority) -> None:
    server.answers[f"{HOST}/client.json"] = answer(DOCUMENT)
    fetcher = Redirected(server, authority, [["2606:4700::1", PUBLIC]])
    connect = fetcher.connect

    def first_is_away(address: str, port: int, seconds: float) -> socket.socket:
        if ":" in address:
            raise OSError
        return connect(address, port, seconds)

    fetcher.connect = first_is_away  # type: ignore[method-assign]
    assert fetcher.fetch(URL).data == DOCUMENT
    assert fetcher.connected == [PUBLIC]


# How long it is kept


@pytest.mark.parametrize(
    ("headers", "age"),
    [
        ({}, 3600),
        ({"Cache-Control": "max-age=7200"}, 7200),
        ({"Cache-Control": "public, max-age=7200", "Age": "200"}, 7000),
        ({"Cache-Control": "max-age=7200, s-maxage=600"}, 600),
        ({"Cache-Control": 'max-age="7200"'}, 7200),
        ({"Cache-Control": "max-age=0"}, 60),
        ({"Cache-Control": "no-store, max-age=7200"}, 60),
        ({"Cache-Control": "no-cache"}, 60),
        ({"Cache-Control": "max-age=999999999"}, 86400),
        ({"Cache-Control": "max-age=" + "9" * 40}, 86400),
        ({"Cache-Control": "max-age=-5"}, 3600),
        ({"Cache-Control": "max-age=100", "Age": "x" * 9}, 100),
        ({"Expires": "Thu, 01 Jan 2026 01:00:00 GMT", "Date": "Thu, 01 Jan 2026 00:00:00 GMT"}, 3600),
        ({"Expires": "Thu, 01 Jan 2026 02:00:00 GMT", "Date": "Thu, 01 Jan 2026 00:00:00 GMT"}, 7200),
        ({"Expires": "0"}, 60),
        ({"Expires": "Thu, 01 Jan 1970 00:00:00 GMT"}, 60),
    ],
)
def test_an_answer_is_kept_as_its_headers_say_within_bounds(headers: dict[str, str], age: int) -> None:
    message: Message = HTTPMessage()
    for name, value in headers.items():
        message[name] = value
    assert age_of(message) == age  # type: ignore[arg-type]


# A proxy


def test_a_proxy_that_the_project_names_makes_the_connection(server: TLSServer, authority: Authority) -> None:
    server.answers[f"{HOST}/client.json"] = answer(DOCUMENT)
    with proxying(server) as proxy:
        fetcher = Fetcher(authorities=str(authority.path), proxy=proxy.url.replace("//", "//ada:p%40ss@"))
        assert fetcher.fetch(URL).data == DOCUMENT
        fetcher.reach(URL, 5)
    head = proxy.asked[0]
    assert head.startswith(f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n")
    assert "Proxy-Authorization: Basic YWRhOnBAc3M=\r\n" in head
    assert len(server.asked) == 1
    assert "roxy" not in server.asked[0]


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "[::1]", "169.254.169.254", "10.0.0.1", "2130706433", "0x7f.1", "localhost", "intranet"),
        *("metadata.google.internal", "printer.local", "1.0.168.192.in-addr.arpa"),
    ],
)
def test_a_proxy_is_asked_for_no_address_and_no_name_of_a_network(server: TLSServer, host: str) -> None:
    with proxying(server) as proxy:
        failure = refused(Fetcher(proxy=proxy.url), f"https://{host}/client.json")
    assert "not on the public network" in str(failure)
    assert not failure.is_passing
    assert proxy.asked == []


def test_a_proxy_that_says_no_or_is_away_is_a_server_that_is_not_reached(server: TLSServer) -> None:
    with proxying(server, "407 Proxy Authentication Required") as proxy:
        failure = refused(Fetcher(proxy=proxy.url))
    assert "the proxy answers 407" in str(failure)
    assert failure.is_away
    failure = refused(Fetcher(proxy=proxy.url))
    assert "the proxy does not answer" in str(failure)
    assert failure.is_away


def test_what_a_server_answers_is_no_fault_of_the_connection(server: TLSServer, fetcher: Redirected) -> None:
    server.answers[f"{HOST}/client.json"] = answer({}, status="500 Down")
    assert not refused(fetcher).is_away
    fetcher.reach(URL, 5)
