"""What a program sends to prove who it is: read, and not yet believed."""

import base64
from typing import Any

import pytest
from django.test import RequestFactory
from oauthlib.oauth2 import OAuth2Error

from mcp_django.oauth.assertions_and_keys import ASSERTION_TYPE, Credentials, read_credentials
from mcp_django.oauth.views import require_once
from tests.jwts import claims_of, key_for, signed


def read(header: str = "", **fields: Any) -> Credentials:
    headers = {"authorization": header} if header else {}
    request = RequestFactory().post("/oauth/token/", fields, headers=headers)
    require_once(request)
    return read_credentials(request)


def pair(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("header", "client_id", "secret"),
    [
        (f"Basic {pair('a:b')}", "a", "b"),
        (f"basic {pair('a:b:c')}", "a", "b:c"),
        (f"Basic {pair('a%20b:c%3Ad')}", "a b", "c:d"),
        (f"Basic {pair('a:')}", "a", ""),
        (f"Basic {pair('ä:ü')}", "ä", "ü"),
    ],
)
def test_id_and_secret_come_in_the_header(header: str, client_id: str, secret: str) -> None:
    assert read(header) == Credentials(client_id, secret=secret)


def test_id_and_secret_come_in_the_body() -> None:
    assert read(client_id="a", client_secret="b") == Credentials("a", secret="b")
    assert read(client_id="a") == Credentials("a")


def test_an_assertion_says_whose_it_is() -> None:
    raw = signed(claims_of(sub="robot"), key_for())
    found = read(client_assertion=raw, client_assertion_type=ASSERTION_TYPE)
    assert found.client_id == "robot"
    assert found.assertion is not None
    assert raw not in repr(found)
    assert "b" not in repr(Credentials("a", secret="b"))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"client_secret": "b"},
        {"client_id": "a\x00"},
        {"client_id": "a\n"},
        {"client_id": "x" * 256},
        {"client_assertion_type": ASSERTION_TYPE},
        {"client_assertion": "x", "client_assertion_type": ASSERTION_TYPE},
        {"client_assertion": signed(claims_of(), key_for()), "client_assertion_type": ASSERTION_TYPE},
        {"client_assertion": signed(claims_of(sub=["a"]), key_for()), "client_assertion_type": ASSERTION_TYPE},
        {"header": "Basic"},
        {"header": f"Basic {pair('a')}"},
        {"header": f"Basic {pair(':b')}"},
        {"header": "Basic ////"},
        {"header": "Bearer a"},
    ],
)
def test_who_does_not_say_who_they_are_is_nobody(fields: dict[str, Any]) -> None:
    with pytest.raises(OAuth2Error) as failure:
        read(**fields)
    assert failure.value.error == "invalid_client"


@pytest.mark.parametrize(
    "fields",
    [
        {"client_id": ["a", "a"]},
        {"client_id": "a", "client_secret": ["b", "c"]},
        {"client_id": "a", "anything": ["b", "c"]},
        {"header": f"Basic {pair('a:b')}", "client_secret": "b"},
        {"header": f"Basic {pair('a:b')}", "client_id": "other"},
        {"client_id": "a", "client_secret": "b", "client_assertion_type": ASSERTION_TYPE},
        {"client_assertion": "a.b.c"},
        {
            "client_assertion": "a.b.c",
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:saml2-bearer",
        },
    ],
)
def test_there_is_one_way_and_each_parameter_once(fields: dict[str, Any]) -> None:
    with pytest.raises(OAuth2Error) as failure:
        read(**fields)
    assert failure.value.error == "invalid_request"


def test_endpoints_may_be_several() -> None:
    assert read(client_id="a", resource=["b", "c"])
