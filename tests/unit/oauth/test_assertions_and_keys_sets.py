"""Keys that check signatures: which are taken, and how those are fetched that others publish."""

import json
import socket
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from jwcrypto.jwk import JWK

from mcp_django.oauth import assertions_and_keys
from mcp_django.oauth.assertions_and_keys import FetchedLately, InvalidKeys, fetched_keys, fits, read_keys
from mcp_django.oauth.document_fetcher import Fetcher, fetcher_for
from tests.jwts import KINDS, key_for, public_set
from tests.tls_server import PUBLIC, Authority, TLSServer, answer, serving

HOST = "keys.example"
URL = f"https://{HOST}/jwks.json"


def public(key: JWK, **changes: Any) -> dict[str, Any]:
    return key.export_public(as_dict=True) | changes


class Local(Fetcher):
    """Each name leads to the server of the test."""

    __eq__, __hash__ = object.__eq__, object.__hash__

    def __init__(self, server: TLSServer, authority: Authority) -> None:
        super().__init__(authorities=str(authority.path))
        self.server = server

    def resolve(self, host: str, port: int) -> list[str]:
        return [PUBLIC]

    def connect(self, address: str, port: int, seconds: float) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), seconds)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def server(authority: Authority) -> Iterator[TLSServer]:
    with serving(authority.context(HOST)) as running:
        yield running


@pytest.fixture
def fetcher(server: TLSServer, authority: Authority) -> Local:
    return Local(server, authority)


# Which are taken


@pytest.mark.parametrize("algorithm", KINDS)
def test_a_public_key_is_read_in_each_form(algorithm: str) -> None:
    key = key_for(algorithm)
    for text in (key.export_to_pem().decode(), json.dumps(public(key)), public_set(key)):
        [found] = read_keys(f"\n{text}\n")
        assert found.thumbprint() == key.thumbprint()
        assert [name for name in KINDS if fits(found, name, None)] == [algorithm]


def test_a_key_of_pem_fits_whatever_id_a_signature_names() -> None:
    [found] = read_keys(key_for("RS256").export_to_pem().decode())
    assert fits(found, "RS256", "any")
    [named] = read_keys(json.dumps(public(key_for("RS256", "one"))))
    assert fits(named, "RS256", "one")
    assert not fits(named, "RS256", "two")


@pytest.mark.parametrize(
    "text",
    [
        key_for("RS256").export_to_pem(private_key=True, password=None).decode(),
        key_for("ES256").export_private(),
        json.dumps({"keys": [public(key_for("ES256")), json.loads(key_for("EdDSA").export_private())]}),
        json.dumps({"kty": "oct", "k": "c2VjcmV0c2VjcmV0"}),
    ],
    ids=["PEM", "JWK", "set", "shared secret"],
)
def test_private_keys_and_secrets_are_refused(text: str) -> None:
    with pytest.raises(InvalidKeys, match="Only the public key"):
        read_keys(text)


@pytest.mark.parametrize(
    "text",
    ["", "key", "[]", "{}", '{"keys": 1}', '{"keys": ["a"]}', "-----BEGIN PUBLIC KEY-----", "[" * 10_000],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidKeys):
        read_keys(text)


def test_no_key_is_made_up_for_who_asks_for_one() -> None:
    with pytest.raises(InvalidKeys):
        read_keys(json.dumps({"kty": "RSA", "generate": "RSA", "size": 2048}))


@pytest.mark.parametrize(
    "key",
    [
        public(JWK.generate(kty="RSA", size=1024)),
        public(JWK.generate(kty="EC", crv="P-384")),
        public(JWK.generate(kty="OKP", crv="X25519")),
        public(key_for("ES256"), use="enc"),
        public(key_for("ES256"), key_ops=["encrypt"]),
        public(key_for("ES256"), key_ops="verify"),
        public(key_for("ES256"), y=key_for("ES256", "other").export_public(as_dict=True)["y"]),
    ],
    ids=["short", "curve", "agreement", "use", "operations", "no list", "no point"],
)
def test_a_set_is_read_without_the_keys_that_cannot_check(key: dict[str, Any]) -> None:
    with pytest.raises(InvalidKeys, match="no key for RS256"):
        read_keys(json.dumps(key))
    good = public(key_for("EdDSA", "good"))
    assert [found["kid"] for found in read_keys(json.dumps({"keys": [key, good]}))] == ["good"]


def test_a_key_for_one_algorithm_is_for_that_alone() -> None:
    [found] = read_keys(json.dumps(public(key_for("RS256"), alg="PS256")))
    assert not fits(found, "RS256", None)


# Fetching


def ids(keys: Iterable[JWK]) -> list[str]:
    return [key["kid"] for key in keys]


def published(*keys: JWK) -> bytes:
    return answer(json.loads(public_set(*keys)), "application/jwk-set+json")


def test_keys_are_fetched_once_and_again_when_one_is_missing(
    server: TLSServer, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers[f"{HOST}/jwks.json"] = published(key_for("ES256", "old"))
    assert ids(fetched_keys(URL, fetcher, False)) == ["old"]
    server.answers[f"{HOST}/jwks.json"] = published(key_for("ES256", "new"))
    assert ids(fetched_keys(URL, fetcher, False)) == ["old"]
    # Nobody can have it fetched without end.
    with pytest.raises(FetchedLately) as failure:
        fetched_keys(URL, fetcher, True)
    assert 0 < failure.value.seconds <= assertions_and_keys.PAUSE + 1
    assert len(server.asked) == 1
    monkeypatch.setattr(assertions_and_keys, "PAUSE", 0)
    assert ids(fetched_keys(URL, fetcher, True)) == ["new"]
    assert ids(fetched_keys(URL, fetcher, False)) == ["new"]
    assert len(server.asked) == 2


def test_keys_that_cannot_be_fetched_again_serve_for_a_while(
    server: TLSServer, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers[f"{HOST}/jwks.json"] = published(key_for("ES256", "one"))
    assert fetched_keys(URL, fetcher, False)
    server.answers.clear()
    monkeypatch.setattr(assertions_and_keys, "FRESH", -1)
    monkeypatch.setattr(assertions_and_keys, "PAUSE", -1)
    assert ids(fetched_keys(URL, fetcher, False)) == ["one"]
    monkeypatch.setattr(assertions_and_keys, "STALE", -1)
    assert fetched_keys(URL, fetcher, False) == []


@pytest.mark.parametrize(
    "body",
    [
        b"HTTP/1.1 302 Found\r\nLocation: https://keys.example/other\r\nContent-Length: 0\r\n\r\n",
        answer(json.loads(public_set(key_for("ES256"))), "text/html"),
        answer(b" " * 70_000),
        answer({"keys": []}),
        answer({"keys": [json.loads(key_for("ES256").export_private())]}),
        answer([]),
        answer({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}),
    ],
    ids=["redirect", "type", "huge", "empty", "private", "list", "secret"],
)
def test_a_bad_set_is_none_and_is_not_asked_for_at_once_again(
    server: TLSServer, fetcher: Fetcher, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers[f"{HOST}/jwks.json"] = body
    for _ in range(3):
        assert fetched_keys(URL, fetcher, False) == []
    with pytest.raises(FetchedLately):
        fetched_keys(URL, fetcher, True)
    assert len(server.asked) == 1
    assert len(caplog.messages) == 1
    assert URL in caplog.text


def test_keys_within_the_network_are_fetched_for_the_operator_alone(caplog: pytest.LogCaptureFixture) -> None:
    url = "https://127.0.0.1:9/jwks.json"
    assert fetched_keys(url, fetcher_for(url), False) == []
    assert "not on the public network" in caplog.messages[0]
    assert fetched_keys(url, fetcher_for(url, is_operators=True), False) == []
    assert "does not answer" in caplog.messages[1]
