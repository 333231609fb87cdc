"""Requests that come at the same time, on connections of their own: one wins, and each is answered in JSON."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError, connection, connections, transaction
from django.utils import timezone
from oauth2_provider.models import AccessToken, Grant, RefreshToken
from oauth2_provider.views.mixins import OAuthLibMixin

from mcp_django.context import databases
from mcp_django.oauth.validator import MCPValidator
from tests.isolation import LEVELS, isolated
from tests.oauth_flow import RESOURCE, Flow

pytestmark = [pytest.mark.postgresql, pytest.mark.undivided, pytest.mark.django_db(transaction=True)]
CLIENTS = 12
# Seconds.
TIMEOUT = 30
# By database, the statement after which it waits for a lock no longer than this.
PATIENCE = {
    "sqlite": "PRAGMA busy_timeout = 50",
    "postgresql": "SET lock_timeout = 50",
    "mysql": "SET innodb_lock_wait_timeout = 1",
}


def at_once(*work: Callable[[], Any]) -> list[Any]:
    """Return the answers of all, on connections of their own; none is worked on before all have come."""
    barrier = Barrier(len(work))

    def waiting(original: Callable[..., Any]) -> Callable[..., Any]:
        def wait(*args: Any) -> Any:
            barrier.wait(TIMEOUT)
            return original(*args)

        return wait

    def run(one: Callable[[], Any]) -> Any:
        try:
            return one()
        finally:
            connections.close_all()

    names = "create_token_response", "create_revocation_response"
    changed = {name: waiting(getattr(OAuthLibMixin, name)) for name in names}
    with mock.patch.multiple(OAuthLibMixin, **changed), ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(run, work))


def outcomes(answers: list[Any]) -> Counter[str]:
    assert {answer["Content-Type"] for answer in answers} == {"application/json"}
    return Counter(str(answer.json().get("error", answer.status_code)) for answer in answers)


@pytest.fixture(autouse=True, params=LEVELS)
def isolation(request: pytest.FixtureRequest) -> Iterator[None]:
    with isolated(request.param):
        yield


@pytest.fixture
def flow() -> Flow:
    flow = Flow()
    # An error is to be seen as a client sees it.
    flow.application.raise_request_exception = False
    return flow


def test_one_of_many_exchanges_of_a_code_wins(flow: Flow) -> None:
    for _ in range(3):
        code = flow.code()
        answers = at_once(*[lambda code=code: flow.exchange(code)] * CLIENTS)
        assert outcomes(answers) == {"200": 1, "invalid_grant": CLIENTS - 1}
        won = next(answer.json() for answer in answers if answer.status_code == 200)
        assert AccessToken.objects.count() == 1
        assert flow.refresh(won["refresh_token"]).status_code == 200
        AccessToken.objects.all().delete()
        RefreshToken.objects.all().delete()
    assert not Grant.objects.exists()


def test_a_code_that_is_sent_again_later_still_ends_what_was_made_of_it(flow: Flow) -> None:
    code = flow.code()
    tokens = flow.exchange(code).json()
    answers = at_once(*[lambda: flow.exchange(code)] * 4)
    assert outcomes(answers) == {"invalid_grant": 4}
    assert not AccessToken.objects.exists()
    assert flow.refresh(tokens["refresh_token"]).status_code == 400


def test_refreshes_at_the_same_time_get_siblings_that_all_work(flow: Flow) -> None:
    tokens = flow.tokens()
    answers = at_once(*[lambda: flow.refresh(tokens["refresh_token"])] * CLIENTS)
    assert outcomes(answers) == {"200": CLIENTS}
    assert len({answer.json()["access_token"] for answer in answers}) == CLIENTS
    assert len(set(RefreshToken.objects.values_list("token_family", flat=True))) == 1
    again = at_once(*[lambda answer=answer: flow.refresh(answer.json()["refresh_token"]) for answer in answers])
    assert outcomes(again) == {"200": CLIENTS}


def test_a_refresh_and_a_revocation_leave_nothing_half_done(flow: Flow) -> None:
    tokens = flow.tokens()
    revoked = {"token": tokens["refresh_token"], "client_id": flow.client_id}
    work = [
        lambda: flow.refresh(tokens["refresh_token"]),
        lambda: flow.application.post("/oauth/revoke_token/", revoked),
    ]
    answers = at_once(*(work * 4))
    assert {answer.status_code for answer in answers} <= {200, 400}
    at_once(lambda: flow.application.post("/oauth/revoke_token/", revoked))
    assert flow.refresh(tokens["refresh_token"]).status_code == 400


def test_exchanges_of_different_codes_do_not_disturb_each_other(flow: Flow) -> None:
    codes = [flow.code() for _ in range(6)]
    answers = at_once(*[lambda code=code: flow.exchange(code) for code in codes])
    assert outcomes(answers) == {"200": 6}
    assert AccessToken.objects.filter(resource=[RESOURCE]).count() == 6


class Deadlock(Exception):
    """What a driver raises by which the database undid the whole transaction."""

    sqlstate = "40P01"


@pytest.mark.parametrize("times", [1, 5])
def test_tokens_are_stored_again_after_a_deadlock(flow: Flow, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    original, failures = MCPValidator._create_refresh_token, [Deadlock()] * times

    def undone(*args: Any) -> Any:
        row = original(*args)
        if failures:
            raise OperationalError("deadlock detected") from failures.pop()
        return row

    monkeypatch.setattr(databases, "DEADLOCK_PAUSES", (0.0,) * 5)
    tokens = flow.tokens()
    monkeypatch.setattr(MCPValidator, "_create_refresh_token", undone)
    answer = flow.refresh(tokens["refresh_token"])
    assert outcomes([answer]) == {"200": 1}
    assert AccessToken.objects.count() == 1
    assert flow.refresh(answer.json()["refresh_token"]).status_code == 200


def test_after_many_deadlocks_the_client_may_come_again(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "DEADLOCK_PAUSES", (0.0,))
    tokens = flow.tokens()
    with monkeypatch.context() as patch:
        deadlock = OperationalError("deadlock detected")
        deadlock.__cause__ = Deadlock()
        patch.setattr(MCPValidator, "_create_refresh_token", mock.Mock(side_effect=deadlock))
        assert outcomes([flow.refresh(tokens["refresh_token"])]) == {"temporarily_unavailable": 1}
    assert flow.refresh(tokens["refresh_token"]).status_code == 200


@pytest.mark.parametrize("path", ["token", "revoke_token"])
def test_a_database_that_stays_locked_is_told_in_json_and_nothing_is_lost(flow: Flow, path: str) -> None:
    code, tokens, held, done = flow.code(), flow.tokens(), Event(), Event()

    def hold() -> None:
        with transaction.atomic():
            Grant.objects.update(updated=timezone.now())
            AccessToken.objects.update(updated=timezone.now())
            held.set()
            done.wait(TIMEOUT)
        connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        try:
            assert held.wait(TIMEOUT)
            with connection.cursor() as cursor:
                cursor.execute(PATIENCE[connection.vendor])
            if path == "token":
                answer = flow.exchange(code)
            else:
                revoked = {"token": tokens["access_token"], "client_id": flow.client_id}
                answer = flow.application.post("/oauth/revoke_token/", revoked)
        finally:
            done.set()
            holding.result(TIMEOUT)
            connection.close()
    assert outcomes([answer]) == {"temporarily_unavailable": 1}
    assert answer["Retry-After"] == "5"
    assert flow.exchange(code).status_code == 200
    assert flow.refresh(tokens["refresh_token"]).status_code == 200
