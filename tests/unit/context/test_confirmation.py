import base64
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.test import override_settings

from mcp_django import Declined, MCPSite, ToolError
from mcp_django.context.confirmation import (
    REFUSED,
    CallState,
    Confirmation,
)
from mcp_django.context.questions import STATE_ERROR
from mcp_django.protocol.errors import InvalidParams
from tests.factories import make_author, make_user
from tests.tool_calls import request_of

pytestmark = pytest.mark.django_db

ARGUMENTS = {"model": "testapp.author", "pk": "1"}


def issue(request, *bound):
    return Confirmation(request, *bound).token()


def redeem(request, token, *bound):
    Confirmation(request, *bound).redeem(token)


@pytest.fixture
def request_():
    return request_of(make_user("ann"))


def refused(*args):
    with pytest.raises(ToolError) as error:
        redeem(*args)
    return error.value.message == REFUSED


def test_a_token_confirms_the_same_call_once(request_):
    token = issue(request_, "delete", ARGUMENTS, [1, 2])
    redeem(request_, token, "delete", dict(reversed(ARGUMENTS.items())), [2, 1])
    assert refused(request_, token, "delete", ARGUMENTS, [1, 2])


def test_D74_a_token_fits_no_other_tool_arguments_or_objects(request_):
    token = issue(request_, "delete", ARGUMENTS, [1, 2])
    assert refused(request_, token, "other", ARGUMENTS, [1, 2])
    assert refused(request_, token, "delete", {**ARGUMENTS, "pk": 1}, [1, 2])
    assert refused(request_, token, "delete", {**ARGUMENTS, "force": None}, [1, 2])
    for objects in ([1], [1, 2, 3], [1, "2"], [[1, 2]], [12], []):
        assert refused(request_, token, "delete", ARGUMENTS, objects)
    redeem(request_, token, "delete", ARGUMENTS, [1, 2])


def test_D74_a_token_fits_no_other_user_client_site_or_server(request_):
    token = issue(request_, "delete", {}, [])
    others = [
        request_of(make_user("bob")),
        request_of(request_.user, client_id="other"),
        request_of(request_.user, MCPSite("other")),
        request_of(request_.user, resource="https://other.example/mcp"),
    ]
    assert all(refused(other, token, "delete", {}, []) for other in others)
    redeem(request_of(request_.user), token, "delete", {}, [])


def test_objects_of_two_models_with_one_key_are_two_objects(request_):
    author = make_author()
    token = issue(request_, "delete", {}, [author])
    assert refused(request_, token, "delete", {}, [make_user("bob", staff=False)])
    redeem(request_, token, "delete", {}, [type(author).objects.get(pk=author.pk)])


def test_D73_a_token_that_was_touched_is_refused(request_):
    token = issue(request_, "delete", {}, [])
    for place, char in enumerate(token):
        assert refused(request_, token[:place] + ("A" if char != "A" else "B") + token[place + 1 :], "delete", {}, [])
    for other in (token[:-1], token + "=", token[1:], "", ":", "::", None, 5, [token], "é" * 40, "a" * 10_000):
        assert refused(request_, other, "delete", {}, [])
    redeem(request_, token, "delete", {}, [])


@pytest.mark.parametrize("seconds", [601, -91])
def test_D74_a_token_is_refused_when_it_is_old_or_from_the_future(request_, seconds, monkeypatch):
    token = issue(request_, "delete", {}, [])
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + seconds)
    assert refused(request_, token, "delete", {}, [])


def test_a_token_lives_until_its_age(request_, monkeypatch):
    token = issue(request_, "delete", {}, [])
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 590)
    redeem(request_, token, "delete", {}, [])


def test_a_token_of_a_host_whose_clock_is_ahead_is_good_for_ninety_seconds_and_the_log_names_the_clocks(
    request_, monkeypatch, caplog
):
    token, other = issue(request_, "delete", {}, []), issue(request_, "delete", {}, [1])
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now - 85)
    redeem(request_, token, "delete", {}, [])
    monkeypatch.setattr("time.time", lambda: now - 95)
    with caplog.at_level(logging.INFO, "mcp_django"):
        assert refused(request_, other, "delete", {}, [1])
    assert "set the clocks of all hosts by NTP" in caplog.text


def test_the_log_says_that_a_token_is_too_old(request_, monkeypatch, caplog):
    token = issue(request_, "delete", {}, [])
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + 700)
    with caplog.at_level(logging.INFO, "mcp_django"):
        assert refused(request_, token, "delete", {}, [])
    assert "Confirmation of delete refused: Signature age" in caplog.text


def test_D79_a_token_survives_the_rotation_of_the_key_but_not_its_end(request_, settings):
    token = issue(request_, "delete", {}, [])
    with override_settings(SECRET_KEY="new"):
        assert refused(request_, token, "delete", {}, [])
    with override_settings(SECRET_KEY="new", SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]):
        redeem(request_, token, "delete", {}, [])


def test_a_token_is_used_up_for_all_workers_that_share_the_cache(request_):
    token = issue(request_, "delete", {}, [])
    ready = threading.Barrier(4)

    def redeemed(_):
        ready.wait()
        try:
            redeem(request_, token, "delete", {}, [])
        except ToolError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(redeemed, range(4))) == [False, False, False, True]


def test_D80_a_token_shows_nothing_of_the_call(request_):
    first, second = (issue(request_, "delete", {"pk": "secret"}, ["secret"]) for _ in range(2))
    assert first != second
    assert len(first) == len(issue(request_, "t", {"a": "x" * 5000}, range(500)))


def test_the_cause_of_a_refusal_is_in_the_log_alone(request_, caplog):
    token = issue(request_, "delete", {}, [])
    with caplog.at_level(logging.INFO, "mcp_django.context.confirmation"):
        redeem(request_, token, "delete", {}, [])
        assert refused(request_, token, "delete", {}, [])
        assert refused(request_, "x", "delete", {}, [])
    assert [record.getMessage() for record in caplog.records] == [
        "Confirmation of delete refused: used",
        "Confirmation of delete refused: not a token for this call",
    ]
    assert not caplog.records[0].getMessage().count(token)


# States

CALL = {"name": "book", "arguments": {"order": 7}}
STATE = {"nonce": "n", "asked": {"carrier": "0" * 32}, "kept": {"email": ["1", {"value": "ada@example.org"}]}}


def unopened(request, params=CALL, text=None, method="tools/call"):
    with pytest.raises(InvalidParams) as error:
        CallState(request, method, params).open(text)
    return error.value.message == STATE_ERROR


def test_a_state_comes_back_with_the_same_call(request_):
    text = CallState(request_, "tools/call", CALL).seal(STATE)
    later = {**CALL, "_meta": {"x": 1}, "inputResponses": {}, "requestState": text}
    assert CallState(request_, "tools/call", dict(reversed(later.items()))).open(text) == STATE


def test_80_a_state_tells_its_bearer_nothing(request_):
    text = CallState(request_, "tools/call", CALL).seal(STATE)
    raw = base64.urlsafe_b64decode(text.split(":")[0] + "===")
    assert not any(word in raw + text.encode() for word in (b"carrier", b"ada@", b"book", b"asked"))
    assert CallState(request_, "tools/call", CALL).seal(STATE).split(":")[0] != text.split(":")[0]


def test_73_a_state_with_any_byte_changed_is_refused(request_):
    text = CallState(request_, "tools/call", CALL).seal(STATE)
    flipped = [text[:place] + chr(ord(char) ^ 1) + text[place + 1 :] for place, char in enumerate(text)]
    others = [text[:-1], text[1:], text + "A", f"{text}-TAMPERED", text.replace(":", "::"), "", "x", None, 7, [text]]
    repacked = text.replace(text.split(":")[0], base64.b64encode(b"{}").decode())
    for changed in (*flipped, *others, text.encode(), f"v2:{text}", repacked, "é" + text, text * 1000):
        assert unopened(request_, text=changed)


def test_73_a_confirmation_token_is_no_state(request_):
    assert unopened(request_, text=issue(request_, "book", CALL["arguments"], []))


def test_74_a_state_fits_no_other_call(request_):
    text = CallState(request_, "tools/call", CALL).seal(STATE)
    assert unopened(request_, {**CALL, "name": "other"}, text)
    assert unopened(request_, {**CALL, "arguments": {"order": "7"}}, text)
    assert unopened(request_, {**CALL, "arguments": {"order": 7, "more": None}}, text)
    assert unopened(request_, {"name": "book"}, text)
    assert unopened(request_, CALL, text, "prompts/get")


def test_74_a_state_fits_no_other_user_client_site_or_server(request_):
    text = CallState(request_, "tools/call", CALL).seal(STATE)
    for other in (
        request_of(make_user("bob")),
        request_of(AnonymousUser()),
        request_of(request_.user, client_id="other"),
        request_of(request_.user, MCPSite("other")),
        request_of(request_.user, resource="https://other.example/mcp"),
    ):
        assert unopened(other, text=text)


def test_74_a_state_expires_and_none_comes_from_the_future(request_, monkeypatch):
    now = time.time()
    text = CallState(request_, "tools/call", CALL).seal(STATE)
    for moment, opens in ((now + 590, True), (now + 601, False), (now - 80, True), (now - 100, False)):
        monkeypatch.setattr(time, "time", lambda moment=moment: moment)
        if opens:
            assert CallState(request_, "tools/call", CALL).open(text) == STATE
        else:
            assert unopened(request_, text=text)


def test_79_a_former_key_opens_a_state_and_a_foreign_one_does_not(request_):
    text = CallState(request_, "tools/call", CALL).seal(STATE)
    with override_settings(SECRET_KEY="new", SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]):
        assert CallState(request_, "tools/call", CALL).open(text) == STATE
    with override_settings(SECRET_KEY="new", SECRET_KEY_FALLBACKS=[]):
        assert unopened(request_, text=text)


def test_73_the_cause_of_a_refusal_is_in_the_log_alone(request_, caplog):
    with caplog.at_level(logging.INFO, "mcp_django"):
        assert unopened(request_, text="x")
    assert "not for this call, or too old" in caplog.text


# The answer of a person


def answering(content):
    return SimpleNamespace(settle=lambda question, version, read: read(content))


def test_only_a_yes_confirms():
    user = make_user("ann")

    def settle(content):
        confirmation = Confirmation(request_of(user, answers=answering(content)), "delete", ARGUMENTS, [1])
        return confirmation.settle(confirmation.question("sure", "Delete it?"))

    assert settle({"_confirm": "yes", "reason": "old"}) == {"reason": "old"}
    for content in ({"_confirm": "no"}, {}):
        with pytest.raises(Declined):
            settle(content)
