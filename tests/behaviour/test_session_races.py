"""Sessions that are stored at the same time, on connections of their own."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connections

from mcp_django.models import Session, Stream
from mcp_django.server.sessions import ClientSession
from mcp_django.server.stored_streams import SessionStreams
from tests.factories import make_user
from tests.isolation import LEVELS, isolated
from tests.unit.server.test_sessions import make_request, new_session

pytestmark = [pytest.mark.postgresql, pytest.mark.undivided, pytest.mark.django_db(transaction=True)]
CLIENTS = 8
# Seconds.
TIMEOUT = 30


@pytest.fixture(autouse=True, params=LEVELS)
def isolation(request: pytest.FixtureRequest) -> Iterator[None]:
    with isolated(request.param):
        yield


@pytest.mark.parametrize("with_stream", [False, True])
def test_new_sessions_do_not_keep_each_other_from_being_stored(with_stream: bool) -> None:
    caller = make_request(make_user("ann"))
    sessions = [new_session(caller) for _ in range(CLIENTS)]
    barrier = Barrier(CLIENTS)

    def store(session: ClientSession) -> None:
        barrier.wait(TIMEOUT)
        try:
            if with_stream:
                SessionStreams(session).open(1, b"{}", session.version)
            else:
                session.set_log_level("info")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(store, sessions))
    assert Session.objects.count() == CLIENTS
    assert Stream.objects.count() == CLIENTS * with_stream


def test_workers_that_store_one_session_at_the_same_time_store_it_once() -> None:
    caller = make_request(make_user("ann"))
    text = ClientSession.open(caller)
    sessions = [ClientSession.find(caller, text) for _ in range(CLIENTS)]
    barrier = Barrier(CLIENTS)

    def store(session: ClientSession) -> None:
        barrier.wait(TIMEOUT)
        try:
            session.set_log_level("info")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(store, sessions))
    assert ClientSession.find(caller, text).log_level == "info"
