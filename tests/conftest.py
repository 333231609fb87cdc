"""Fixtures for all tests.

`postgres` and `redis` need servers, named by `TEST_POSTGRES_URL` and `TEST_REDIS_URL`. Where one does not answer its
tests are skipped, but fail where `CI` is set.
"""

import gc
import os
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from asgiref.sync import SyncToAsync
from django.conf import settings
from django.core.cache import cache
from django.db import connections
from django.urls import clear_script_prefix, set_urlconf
from django.utils import timezone

from tests import cases
from tests.flush import made_at_first, sooner
from tests.resolvers import kept

REDIS_URL = os.environ.get("TEST_REDIS_URL", "redis://127.0.0.1:6379/15")
TIMEOUT = 2


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Look for no garbage while tests are collected, nor later among what that made: all of it is kept to the end.

    Python looks after each 700 new objects, which is every few rows: here that takes a twentieth of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.set_threshold(20_000, 20, 50)
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark whatever lies in `tests/e2e/` so; what is marked so takes longest, and comes first."""
    cases.deselect(config, items)
    directory = f"{Path(__file__).parent / 'e2e'}{os.sep}"
    for item in items:
        if str(item.path).startswith(directory):
            item.add_marker("e2e")
    items.sort(key=lambda item: item.get_closest_marker("e2e") is None)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Keep the SQLite file of this run apart from those of others that run at the same time."""
    database = settings.DATABASES["default"]
    if database["ENGINE"].endswith("sqlite3"):
        test_settings = database.setdefault("TEST", {})
        test_settings["NAME"] = str(tmp_path_factory.mktemp("database") / "test.sqlite3")


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Make the databases, and empty them after tests sooner than Django does."""
    with django_db_blocker.unblock():
        made = made_at_first()
    with sooner(made):
        yield


@pytest.fixture(scope="session", autouse=True)
def resolvers_are_kept() -> Iterator[None]:
    """Read the URLs once, and not in each test that has others."""
    with kept():
        yield


@pytest.fixture(scope="session", autouse=True)
def calls_are_not_logged() -> Iterator[dict[str, Any]]:
    """Its thread would write to the database between tests: those that are about the log take `call_log`."""
    from mcp_django.operating import call_log_storage

    with pytest.MonkeyPatch.context() as patch:
        originals = {"put": call_log_storage.put, "write": call_log_storage.write}
        for name in originals:
            patch.setattr(call_log_storage, name, lambda record: None)
        yield originals


@pytest.fixture(scope="session", autouse=True)
def documents_can_be_fetched() -> Iterator[Callable[[], str]]:
    """Whether this machine reaches the internet changes nothing; gives the look that was taken away."""
    from mcp_django.oauth import client_documents

    original = client_documents.look
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_documents, "look", lambda: "")
        yield original


@pytest.fixture
def call_log(
    db: None, calls_are_not_logged: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], list[Any]]:
    """Have calls logged; gives the rows of the log, oldest first."""
    from mcp_django.models import CallEntry
    from mcp_django.operating import call_log_storage, recorded_calls

    for name, function in calls_are_not_logged.items():
        monkeypatch.setattr(call_log_storage, name, function)
    # Its thread would store rows outside of the transaction of the test.
    writer = call_log_storage.Writer()
    monkeypatch.setattr(writer, "_thread", object())
    # This thread is the one that is woken.
    monkeypatch.setattr(writer, "wake", SimpleNamespace(empty=lambda: True, put=lambda _: writer.flush()))
    monkeypatch.setattr(call_log_storage, "_writer", writer)
    recorded_calls._counted.clear()

    def rows() -> list[Any]:
        call_log_storage.flush()
        return list(CallEntry._default_manager.order_by("time", "pk"))

    return rows


@pytest.fixture(autouse=True)
def nothing_is_left_by_other_tests() -> Iterator[None]:
    """What one test has counted, switched or activated is not there in the next.

    One fixture: each that every test has takes a hundredth of the time of all tests.
    """
    nothing_is_switched()
    empty_cache()
    yield
    cache.clear()
    # Tests on a loop may share their context, which a request of a server has to itself.
    set_urlconf(None)
    clear_script_prefix()
    timezone.deactivate()


def nothing_is_switched() -> None:
    """No call asks the database for switches or approval rules before the test itself sets one: tests count queries."""
    from mcp_django.approvals.rules import rule_book
    from mcp_django.operating.switches import board

    board.off, board.due, board._polled, board._rows = None, float("inf"), float("inf"), ()
    rule_book.due, rule_book._polled, rule_book._rows, rule_book._failure = float("inf"), float("inf"), (), None


def empty_cache() -> None:
    """Limits count in the cache: no test starts with what another one used up, or found too slow."""
    from mcp_django.operating.daily_budgets import counts
    from mcp_django.runtime import cache_and_rate_limits

    cache_and_rate_limits.cache._away_until = 0.0
    cache.clear()
    counts._said.clear()
    counts._untold.clear()


@pytest.fixture(autouse=True)
def news_end_with_the_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """News of one test are not told in the next; and the threads that tell them read the database, and stop first."""
    if "transactional_db" in request.fixturenames:
        request.getfixturevalue("transactional_db")
    from mcp_django.subscriptions import notifier
    from mcp_django.subscriptions.bus import bus
    from mcp_django.transports.http import event_streams

    yield
    bus.close()
    notifier._notifiers[0].stop()
    event_streams._alive.stop()
    if "transactional_db" in request.fixturenames:
        # Where tests on a loop ask the database; a database that is connected to cannot be dropped.
        SyncToAsync.single_thread_executor.submit(connections.close_all).result(10)
    notifier._notifiers[:] = [notifier.Notifier()]
    # Streams that are over listen to nothing.
    left, bus._subscribers = set(bus._subscribers), {}
    assert not left


@pytest.fixture
def tools() -> Iterator[Callable[..., None]]:
    """Make functions tools of the default site while a test runs, declared harmless unless the test says otherwise."""
    from mcp_django import site

    added = []

    def add(function: Callable[..., Any], **options: Any) -> None:
        site.add_tool(function, **{"destructive": False, **options})
        added.append(options.get("name", function.__name__))

    yield add
    for name in added:
        site.remove_tool(name)


@pytest.fixture
def shelves_cannot_undo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the database say that the table of shelves has no transactions, as one of MyISAM."""
    from mcp_django.context.databases import engine_without_undo

    def engine_of(cursor: Any, table: str) -> str:
        return "MyISAM" if table == "testapp_shelf" else "InnoDB"

    engine_without_undo.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(connections["default"].introspection, "get_storage_engine", engine_of, raising=False)
        yield
    engine_without_undo.cache_clear()


@pytest.fixture
def token(transactional_db: None) -> str:
    """The `Authorization` header of a superuser, whom worker threads see too."""
    from mcp_django.testing import MCPClient
    from tests.factories import make_superuser

    return MCPClient(make_superuser()).headers["Authorization"]


def unavailable(what: str, url: str, error: Exception) -> None:
    parts = urlsplit(url)
    reason = f"{what} does not answer at {parts.hostname}:{parts.port}: {str(error).strip() or type(error).__name__}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def postgres() -> str:
    """The URL of a PostgreSQL server on which databases can be created."""
    from tests.servers import POSTGRESQL

    if (error := POSTGRESQL.why_not()) is not None:
        unavailable(POSTGRESQL.name, POSTGRESQL.url, error)
    return POSTGRESQL.url


@pytest.fixture
def postgres_database(postgres: str) -> Iterator[str]:
    """The URL of an empty PostgreSQL database of the test's own."""
    import psycopg
    from psycopg import sql

    name = f"mcp_django_{uuid.uuid4().hex}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield urlunsplit(urlsplit(postgres)._replace(path=f"/{name}"))
        # The servers of the test may still hold connections.
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def redis() -> str:
    """The URL of a Redis database that tests may write to."""
    from redis import Redis, RedisError

    client: Any = Redis.from_url(REDIS_URL, socket_connect_timeout=TIMEOUT, socket_timeout=TIMEOUT)
    try:
        client.ping()
    except RedisError as error:
        unavailable("Redis", REDIS_URL, error)
    finally:
        client.close()
    return REDIS_URL
