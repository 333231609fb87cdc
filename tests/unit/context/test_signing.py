"""Sealed texts: unreadable, unchangeable, bound, dated."""

import base64
import time
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from mcp_django.context.signing import BriefSeal, Seal, StoredSeal

DATA = b'["what a client carries", 1]'
HOUR = 3600
FORMS = pytest.mark.parametrize("form", [Seal, BriefSeal], ids=["long", "brief"])


@FORMS
def test_a_sealed_text_is_opened_with_its_salt(form: Any) -> None:
    assert form("a").open(form("a").seal(DATA), HOUR) == DATA


def test_equal_data_give_equal_texts_unless_they_are_to_be_unique(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    assert Seal("a").seal(DATA) == Seal("a").seal(DATA)
    assert len({Seal("a").seal(DATA, unique=True) for _ in range(20)}) == 20


def test_88_a_sealed_text_is_visible_ascii() -> None:
    assert all(0x21 <= ord(character) <= 0x7E for character in Seal("a").seal(bytes(range(256)), unique=True))


def test_80_a_sealed_text_shows_nothing_of_its_data() -> None:
    body = Seal("a").seal(DATA).split(":")[0]
    assert DATA not in base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))


@pytest.mark.parametrize("length", [1, 31, 32, 33, 64, 65])
def test_80_each_byte_of_the_data_is_encrypted(length: int) -> None:
    found = set()
    for _ in range(40):
        body = Seal("a").seal(b"x" * length, unique=True).split(":")[0]
        found.add(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))[-length:])
    assert all(len({text[place] for text in found}) > 1 for place in range(length))


@FORMS
@pytest.mark.parametrize("salt", ["b", "", "a\x1f"])
def test_another_salt_does_not_open_it(salt: str, form: Any) -> None:
    assert form(salt).open(form("a").seal(DATA), HOUR) is None


@FORMS
def test_73_no_changed_byte_is_accepted(form: Any) -> None:
    text = form("a").seal(DATA)
    changed = [
        text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
        for place in range(len(text))
        if text[place] != ":"
    ]
    assert all(form("a").open(item, HOUR) is None for item in [*changed, text[:-1], text + "A", text[1:]])


@FORMS
@pytest.mark.parametrize("text", [None, 7, "", "a:b:c", "é", b"bytes", [], "x" * 5000])
def test_what_was_never_sealed_is_not_opened(text: Any, form: Any) -> None:
    assert form("a").open(text, HOUR) is None


@FORMS
def test_a_text_is_bounded_in_length(form: Any) -> None:
    text = form("a").seal(DATA)
    assert form("a").open(text, HOUR, len(text)) == DATA
    assert form("a").open(text, HOUR, len(text) - 1) is None


@FORMS
def test_an_old_text_is_not_opened(monkeypatch: pytest.MonkeyPatch, form: Any) -> None:
    text = form("a").seal(DATA)
    later = time.time() + 100
    monkeypatch.setattr(time, "time", lambda: later)
    assert form("a").open(text, 200) == DATA
    assert form("a").open(text, 50) is None


@FORMS
def test_79_a_former_key_opens_it_and_a_foreign_one_does_not(form: Any) -> None:
    text = form("a").seal(DATA)
    with override_settings(SECRET_KEY="new", SECRET_KEY_FALLBACKS=["not-a-secret-only-for-the-tests-of-this-project"]):
        assert form("a").open(text, HOUR) == DATA
    with override_settings(SECRET_KEY="new", SECRET_KEY_FALLBACKS=[]):
        assert form("a").open(text, HOUR) is None


def test_a_brief_text_shows_nothing_of_its_data_and_is_short() -> None:
    text = BriefSeal("a").seal(DATA)
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    assert DATA not in raw
    assert len(raw) == 16 + 4 + len(DATA)


def test_texts_of_one_form_are_not_opened_as_the_other() -> None:
    assert Seal("a").open(BriefSeal("a").seal(DATA), HOUR) is None
    assert BriefSeal("a").open(Seal("a").seal(DATA), HOUR) is None


def test_brief_texts_of_other_data_or_another_time_have_nothing_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nonce depends on both, so that no two texts are encrypted with one mask."""
    now = time.time()
    found = []
    for data, moment in ((DATA, now), (DATA[:-1] + b"}", now), (DATA, now + 1)):
        monkeypatch.setattr(time, "time", lambda moment=moment: moment)
        found.append(BriefSeal("a").seal(data))
    assert all(one[:8] != other[:8] and one[30:40] != other[30:40] for one in found for other in found if one != other)
    monkeypatch.setattr(time, "time", lambda: now)
    assert BriefSeal("a").seal(DATA) == found[0]


# Stored data


@pytest.mark.parametrize("data", [b"", b"x", DATA, DATA * 100, bytes(range(256)) * 4000])
def test_stored_data_are_opened_with_their_salt_and_their_key_only(data: bytes) -> None:
    sealed = StoredSeal("a").seal(data)
    assert StoredSeal("a").open(sealed) == data
    assert StoredSeal("b").open(sealed) is None
    with override_settings(SECRET_KEY="another", SECRET_KEY_FALLBACKS=[]):
        assert StoredSeal("a").open(sealed) is None
    with override_settings(SECRET_KEY="another", SECRET_KEY_FALLBACKS=["old", settings.SECRET_KEY]):
        assert StoredSeal("a").open(sealed) == data


def test_stored_data_are_unreadable_compressed_and_never_the_same() -> None:
    seal = StoredSeal("a")
    assert DATA not in seal.seal(DATA)
    assert len({seal.seal(DATA) for _ in range(20)}) == 20
    assert len(seal.seal(DATA * 1000)) < len(DATA) * 100


@pytest.mark.parametrize("data", [DATA, DATA * 100])
def test_stored_data_that_were_changed_are_not_opened(data: bytes) -> None:
    sealed = StoredSeal("a").seal(data)
    for place in range(0, len(sealed), 7):
        changed = bytearray(sealed)
        changed[place] ^= 1
        assert StoredSeal("a").open(bytes(changed)) is None
    assert StoredSeal("a").open(sealed[:-1]) is None
    assert StoredSeal("a").open(b"") is None
