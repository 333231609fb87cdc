"""Signed assertions: what is accepted, and what an attacker could send instead."""

import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings
from django.utils import timezone
from jwcrypto.jwk import JWK

from mcp_django.models import UsedAssertion
from mcp_django.oauth import assertions_and_keys as oauth_keys
from mcp_django.oauth.assertions_and_keys import InvalidAssertion, read_assertion, read_keys, use_once, verify
from tests.jwts import KINDS, claims_of, key_for, part, public_set, signed

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server]

ISSUER, AUDIENCE = "https://issuer.example", "https://shop.example"
RULES: dict[str, Any] = {"signer": ISSUER, "audiences": [AUDIENCE], "max_life": 300}
KEY = key_for("ES256", "one")
HUGE = 10**400


def claims(**changes: Any) -> dict[str, Any]:
    return claims_of(**({"iss": ISSUER, "sub": "ada", "aud": AUDIENCE} | changes))


def known(*keys: JWK) -> Callable[[bool], Iterable[JWK]]:
    published = read_keys(public_set(*keys))
    return lambda again: published


def check(raw: str, rules: dict[str, Any] = RULES, *keys: JWK) -> dict[str, Any]:
    assertion = read_assertion(raw)
    verify(assertion, known(*(keys or (KEY,))), **rules)
    return dict(assertion.claims)


@pytest.mark.parametrize("algorithm", KINDS)
def test_a_signed_assertion_is_accepted(algorithm: str) -> None:
    key = key_for(algorithm)
    assert check(signed(claims(), key, algorithm), RULES, key)["sub"] == "ada"


@pytest.mark.parametrize("header", [{"kid": None}, {"typ": None}, {"typ": "application/JWT"}, {"x5t": "a"}])
def test_a_header_may_say_less_or_more_that_does_not_matter(header: dict[str, Any]) -> None:
    assert check(signed(claims(), KEY, **header))


@pytest.mark.parametrize("audience", [AUDIENCE, f"{AUDIENCE}/", [AUDIENCE]])
def test_the_audience_may_have_a_slash_or_stand_in_a_list(audience: Any) -> None:
    assert check(signed(claims(aud=audience), KEY))


def test_clocks_may_differ_a_little() -> None:
    now = int(time.time())
    assert check(signed(claims(iat=now + 20, nbf=now + 20, exp=now + 320), KEY))
    assert check(signed(claims(iat=now - 300, exp=now - 20), KEY))


# Algorithms and keys


def secret_of(text: str) -> JWK:
    return JWK(kty="oct", k=part(text))


@pytest.mark.parametrize("name", ["none", "None", "NONE", "", "HS256", "RS512", "PS256", "ES512", 1, None, ["ES256"]])
def test_no_other_algorithm_is_accepted(name: Any) -> None:
    header, body = part({"alg": name, "kid": "one"}), part(claims())
    with pytest.raises(InvalidAssertion, match="algorithm"):
        check(f"{header}.{body}.{part(b'0' * 64)}")


def test_a_token_without_a_signature_is_none() -> None:
    with pytest.raises(InvalidAssertion, match="three parts"):
        check(signed(claims(), KEY, "none"))


@pytest.mark.parametrize("form", ["pem", "jwk"])
def test_the_public_key_is_no_shared_secret(form: str) -> None:
    public = KEY.export_to_pem().decode() if form == "pem" else KEY.export_public()
    with pytest.raises(InvalidAssertion, match="algorithm"):
        check(signed(claims(), secret_of(public), "HS256", kid="one"))


def test_an_algorithm_is_checked_with_a_key_of_its_kind_alone() -> None:
    for algorithm in ("RS256", "EdDSA"):
        with pytest.raises(InvalidAssertion, match="not signed by a key"):
            check(signed(claims(), key_for(algorithm, "one"), algorithm))


def test_another_key_signs_nothing() -> None:
    stranger = key_for("ES256", "stranger")
    for kid in ("one", "stranger", None):
        with pytest.raises(InvalidAssertion, match="not signed by a key"):
            check(signed(claims(), stranger, kid=kid))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_nothing_can_be_changed_after_signing(place: int) -> None:
    parts = signed(claims(), KEY).split(".")
    other = signed(claims(sub="root"), key_for("ES256", "stranger"), kid="one", x5t="a").split(".")
    parts[place] = other[place]
    with pytest.raises(InvalidAssertion, match="not signed by a key"):
        check(".".join(parts))


@pytest.mark.parametrize(
    "kid",
    [
        "../../../../dev/null",
        "/etc/passwd",
        "https://evil.example/jwks.json",
        "one' OR '1'='1",
        "one'; DROP TABLE mcp_django_usedassertion; --",
        "one\x00",
        "$(id)",
        "",
        "ONE",
    ],
)
def test_a_key_is_named_by_its_own_id_and_nothing_else(kid: str) -> None:
    with pytest.raises(InvalidAssertion, match="not signed by a key"):
        check(signed(claims(), KEY, kid=kid))


@pytest.mark.parametrize("kid", [1, ["one"], {"kid": "one"}, "a" * 256])
def test_an_id_of_a_key_is_a_short_text(kid: Any) -> None:
    with pytest.raises(InvalidAssertion, match="kid"):
        check(signed(claims(), KEY, kid=kid))


def test_a_key_in_the_header_is_refused_whoever_signed() -> None:
    mine = key_for("ES256", "stranger")
    for key in (mine, KEY):
        for header in (
            {"jwk": mine.export_public(as_dict=True)},
            {"jku": "https://evil.example/jwks.json"},
            {"x5u": "https://evil.example/certificate.pem"},
        ):
            with pytest.raises(InvalidAssertion, match="not accepted"):
                check(signed(claims(), key, kid="one", **header))
    with pytest.raises(InvalidAssertion, match="not signed by a key"):
        check(signed(claims(), mine, kid="one", x5c=["MIIB"]))


@pytest.mark.parametrize(
    "header",
    [{"crit": ["exp"]}, {"crit": []}, {"b64": False, "crit": ["b64"]}, {"b64": False}, {"cty": "JWT"}, {"zip": "DEF"}],
)
def test_a_header_that_asks_for_more_is_refused(header: dict[str, Any]) -> None:
    with pytest.raises(InvalidAssertion, match="not accepted"):
        check(signed(claims(), KEY, **header))


def test_a_new_key_is_asked_for_and_an_old_one_no_more_accepted() -> None:
    asked: list[bool] = []
    now = [read_keys(public_set(KEY))]

    def keys(again: bool) -> Iterable[JWK]:
        asked.append(again)
        return now[0] if again else read_keys(public_set(KEY))

    new = key_for("ES256", "two")
    with pytest.raises(InvalidAssertion, match="not signed by a key"):
        verify(read_assertion(signed(claims(), new)), keys, **RULES)
    now[0] = read_keys(public_set(new))
    verify(read_assertion(signed(claims(), new)), keys, **RULES)
    assert asked == [False, True, False, True]
    with pytest.raises(InvalidAssertion, match="not signed by a key"):
        check(signed(claims(), KEY), RULES, new)


# Its form


@pytest.mark.parametrize(
    "raw",
    [
        "",
        ".",
        "..",
        "a.b",
        "a.b.c.d",
        "a.b.c.d.e",
        "ä.b.c",
        "a.b.c\n",
        " a.b.c",
        "a=.b.c",
        f"{part([])}.{part({})}.a",
        f"{part({})}.{part('text')}.a",
        f"{part(b'{')}.{part({})}.a",
        f"{part(b'[' * 9000)}.{part({})}.a",
        f"{part(bytes([255]))}.{part({})}.a",
        json.dumps({"protected": "a", "payload": "b", "signature": "c"}),
    ],
)
def test_what_is_no_token_is_refused(raw: str) -> None:
    with pytest.raises(InvalidAssertion):
        check(raw)


def test_a_huge_token_is_not_even_read() -> None:
    with pytest.raises(InvalidAssertion, match="16384"):
        check(signed(claims(padding="a" * oauth_keys.MAX_SIZE), KEY))


def test_a_token_within_a_token_is_refused() -> None:
    inner = signed(claims(), KEY)
    with pytest.raises(InvalidAssertion, match="not accepted"):
        check(signed(claims(), KEY, cty="JWT"))
    with pytest.raises(InvalidAssertion, match="must be a JSON object"):
        check(signed(inner, KEY))


@pytest.mark.parametrize("name", ["sub", "exp", "aud", "iss", "jti"])
def test_no_claim_stands_twice(name: str) -> None:
    text = json.dumps(claims())
    doubled = f'{text[:-1]}, "{name}": {json.dumps(claims()[name])}}}'
    with pytest.raises(InvalidAssertion, match="each name once"):
        check(signed(doubled, KEY))


def test_no_member_of_the_header_stands_twice() -> None:
    body = signed(claims(), KEY).split(".", 1)[1]
    with pytest.raises(InvalidAssertion, match="each name once"):
        check(part('{"alg": "none", "alg": "ES256"}') + f".{body}")


@pytest.mark.parametrize("value", [str(HUGE), r'"\ud800"', "[" * 70 + "]" * 70, "NaN", "\ufeff1"])
def test_no_claim_is_more_than_a_message_may_hold(value: str) -> None:
    claimed = f'{json.dumps(claims())[:-1]}, "more": {value}}}'
    with pytest.raises(InvalidAssertion, match="must be a JSON object"):
        check(signed(claimed, KEY))


@pytest.mark.parametrize("typ", ["oauth-id-jag+jwt", "at+jwt", "dpop+jwt", "logout+jwt", 1])
def test_an_assertion_of_another_type_is_refused(typ: Any) -> None:
    with pytest.raises(InvalidAssertion, match="typ"):
        check(signed(claims(), KEY, typ=typ))


@pytest.mark.parametrize("typ", ["JWT", "", None, "at+jwt"])
def test_a_type_that_is_asked_for_has_to_be_there(typ: Any) -> None:
    rules = {**RULES, "typ": "oauth-id-jag+jwt"}
    with pytest.raises(InvalidAssertion, match="typ"):
        check(signed(claims(), KEY, typ=typ), rules)
    assert check(signed(claims(), KEY, typ="OAuth-ID-JAG+jwt"), rules)


# Claims


@pytest.mark.parametrize("issuer", [None, "", "https://evil.example", f"{ISSUER}/", ISSUER.upper(), [ISSUER], 1])
def test_another_issuer_is_refused(issuer: Any) -> None:
    with pytest.raises(InvalidAssertion, match="issuer"):
        check(signed(claims(iss=issuer), KEY))


@pytest.mark.parametrize(
    "audience",
    [
        None,
        "",
        "https://other.example",
        f"{AUDIENCE}.evil.example",
        f"{AUDIENCE}/mcp",
        f"{AUDIENCE}//",
        [],
        [AUDIENCE, "https://other.example"],
        [AUDIENCE, AUDIENCE],
        {"url": AUDIENCE},
        [[AUDIENCE]],
    ],
)
def test_an_assertion_for_others_or_for_several_is_refused(audience: Any) -> None:
    with pytest.raises(InvalidAssertion, match="audience"):
        check(signed(claims(aud=audience), KEY))


@pytest.mark.parametrize("name", ["sub", "jti"])
@pytest.mark.parametrize("value", [None, "", 1, ["ada"], "a" * 256, "a\x00b", "a\nb"])
def test_subject_and_id_are_short_texts(name: str, value: Any) -> None:
    with pytest.raises(InvalidAssertion, match=name):
        check(signed(claims(**{name: value}), KEY))


# Times are said from the moment of the test: the run may have begun long before.
@pytest.mark.parametrize(
    "times",
    [
        lambda now: {"exp": None},
        lambda now: {"exp": now - 60},
        lambda now: {"exp": 0},
        lambda now: {"exp": -1},
        lambda now: {"exp": str(now + 60)},
        lambda now: {"exp": True},
        lambda now: {"exp": [now + 60]},
        lambda now: {"exp": 10**15},
        lambda now: {"exp": now + 3600},
        lambda now: {"iat": now + 120, "exp": now + 200},
        lambda now: {"nbf": now + 120},
        lambda now: {"iat": None, "exp": now + 700},
        lambda now: {"iat": "yesterday"},
        lambda now: {"nbf": False},
    ],
)
def test_an_assertion_lives_now_and_not_long(times: Callable[[int], dict[str, Any]]) -> None:
    with pytest.raises(InvalidAssertion, match=r"expire|valid|time"):
        check(signed(claims(**times(int(time.time()))), KEY))


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999", "-Infinity"])
def test_no_time_is_without_end(text: str) -> None:
    body = json.dumps(claims(exp=0)).replace('"exp": 0', f'"exp": {text}')
    with pytest.raises(InvalidAssertion):
        check(signed(body, KEY))


def test_only_a_client_may_leave_out_when_it_signed() -> None:
    assert check(signed(claims(iat=None), KEY))
    rules = {**RULES, "typ": "oauth-id-jag+jwt"}
    with pytest.raises(InvalidAssertion, match="iat"):
        check(signed(claims(iat=None), KEY, typ="oauth-id-jag+jwt"), rules)


# Once


@pytest.mark.django_db
@pytest.mark.parametrize("use_tz", [True, False])
def test_an_assertion_is_used_once(use_tz: bool) -> None:
    with override_settings(USE_TZ=use_tz):
        raw = signed(claims(jti="once"), KEY)
        use_once(read_assertion(raw))
        for again in (raw, signed(claims(jti="once", sub="eve"), KEY)):
            with pytest.raises(InvalidAssertion, match="before"):
                use_once(read_assertion(again))


@pytest.mark.django_db
def test_ids_of_two_issuers_do_not_meet() -> None:
    for issuer, name in (("a", "b"), ("b", "a"), ('a","b', "c"), ("a", 'b","c')):
        use_once(read_assertion(signed(claims(iss=issuer, jti=name), KEY)))
    assert UsedAssertion.objects.count() == 4


@pytest.mark.django_db(transaction=True)
def test_of_many_workers_one_accepts_an_assertion() -> None:
    assertion = read_assertion(signed(claims(), KEY))

    def use(number: int) -> bool:
        try:
            use_once(assertion)
        except InvalidAssertion:
            return False
        finally:
            connections.close_all()
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(use, range(8))) == 1


@pytest.mark.django_db
def test_what_has_expired_is_forgotten_by_the_command_that_clears_clients() -> None:
    use_once(read_assertion(signed(claims(jti="old"), KEY)))
    use_once(read_assertion(signed(claims(jti="new"), KEY)))
    old = UsedAssertion.objects.order_by("pk").first()
    assert old is not None
    UsedAssertion.objects.filter(pk=old.pk).update(expires=timezone.now() - timedelta(seconds=1))
    call_command("clear_mcp_clients", dry_run=True, stdout=StringIO())
    assert UsedAssertion.objects.count() == 2
    call_command("clear_mcp_clients", stdout=StringIO())
    assert list(UsedAssertion.objects.exclude(pk=old.pk)) == list(UsedAssertion.objects.all())
    assert UsedAssertion.objects.count() == 1
