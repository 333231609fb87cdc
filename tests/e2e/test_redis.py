"""What workers share: the cache, over real connections to Redis."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache.backends.redis import RedisCacheClient

from mcp_django import MCPSite, ToolError
from mcp_django.context.confirmation import Confirmation
from mcp_django.context.request import MCPContext, MCPRequest
from mcp_django.runtime.cache_and_rate_limits import Caller, LimitExceeded


@pytest.fixture(autouse=True)
def shared_cache(redis: str, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The project's cache is Redis, under a prefix of the test's own."""
    backend = "django.core.cache.backends.redis.RedisCache"
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": redis, "KEY_PREFIX": uuid.uuid4().hex}}
    # Each thread of a test has a client of its own, and its pool of sockets is closed with it.
    clients = []
    make = RedisCacheClient.get_client

    def get_client(self: Any, *arguments: Any, **options: Any) -> Any:
        client = make(self, *arguments, **options)
        clients.append(client)
        return client

    monkeypatch.setattr(RedisCacheClient, "get_client", get_client)
    yield
    for client in clients:
        client.connection_pool.disconnect()


def test_H153_calls_are_counted_together_whichever_connection_counts(settings: Any) -> None:
    settings.MCP_DJANGO = {"RATES": {"calls": "25/h"}}

    def call(_: int) -> bool:
        try:
            Caller("user:1").count_call()
        except LimitExceeded:
            return False
        return True

    with ThreadPoolExecutor(8) as workers:
        assert sum(workers.map(call, range(60))) == 25


def test_a_confirmation_is_good_for_one_of_many_workers_that_ask_at_once() -> None:
    request = MCPRequest()
    request.user = User(pk=1, username="root")
    request.mcp = MCPContext(site=MCPSite("shared"))
    arguments = {"pk": 1}
    token = Confirmation(request, "delete_record", arguments, [1]).token()

    def confirm(_: int) -> bool:
        try:
            Confirmation(request, "delete_record", arguments, [1]).redeem(token)
        except ToolError:
            return False
        return True

    with ThreadPoolExecutor(8) as workers:
        assert sum(workers.map(confirm, range(32))) == 1
