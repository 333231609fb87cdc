"""Which stream of a session has the messages."""

import pytest
from django.core.cache import cache

from mcp_django.transports.http import streams
from mcp_django.transports.http.streams import Lease

pytestmark = pytest.mark.django_db(transaction=True)


async def test_94_the_first_stream_has_the_place_and_keeps_it():
    first, second = Lease("s"), Lease("s")
    assert await first.hold()
    assert not await second.hold()
    assert await first.hold()


async def test_94_the_second_stream_gets_the_place_when_the_first_is_gone():
    first, second = Lease("s"), Lease("s")
    await first.hold()
    await first.release()
    assert await second.hold()
    assert not await first.hold()


async def test_a_place_that_is_not_renewed_becomes_free():
    first, second = Lease("s"), Lease("s")
    await first.hold()
    cache.delete(first.key)
    assert await second.hold()
    await first.release()
    assert await second.hold()


async def test_a_stream_that_goes_on_elsewhere_takes_its_place_along():
    first, again = Lease("s"), Lease("s")
    await first.hold()
    assert await again.hold(take_over=True)
    assert not await first.hold()


async def test_streams_of_other_sessions_have_places_of_their_own():
    assert await Lease("s").hold()
    assert await Lease("t").hold()


async def test_209_a_cache_that_is_down_silences_no_stream(monkeypatch, caplog):
    class Down:
        def __getattr__(self, name):
            raise ConnectionError("redis://secret@cache")

    monkeypatch.setattr(streams, "cache", Down())
    lease = Lease("s")
    assert await lease.hold()
    await lease.release()
    assert "ConnectionError" in caplog.text
    assert "secret" not in caplog.text
