"""Tables of the app's own give the same rows with compiled queries and without."""

from typing import Any

import pytest
from django.db import router
from django.utils import timezone

from mcp_django.models import Change, Session, Stream
from mcp_django.orm import own_tables
from mcp_django.orm.own_tables import OwnTable
from mcp_django.server import sessions, stored_streams
from tests.configured import configured
from tests.factories import make_superuser

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


@pytest.mark.parametrize("compiled", [True, False])
def test_rows_are_inserted_read_updated_and_deleted(compiled: bool) -> None:
    now = timezone.now()
    session = Session.objects.create(id="s", user=make_superuser(), created=now, seen=now)
    table = OwnTable(Session, router.db_for_write(Session))
    streams = OwnTable(Stream, router.db_for_write(Stream))
    values: dict[str, Any] = {"session": session, "alive": now, "version": "2025-06-18"}
    with configured(COMPILED_QUERIES=compiled):
        assert not table.update("t", log_level="info")
        assert table.update("s", log_level="info")
        [row] = table.read(sessions._stored_sessions, (Session._meta.pk, "s"))
        assert row == (now, False, "info", [], session.facts)
        for call in ("{}", "[]"):
            streams.insert(Stream(pk="a", call=call, request_id=1, **values))
        assert Stream.objects.get().call == "{}"
        [(size,)] = streams.read(stored_streams._kept_bytes, (stored_streams.USER, session.user_id))
        assert size == 2
        streams.delete("a")
        assert not Stream.objects.exists()


@pytest.mark.parametrize("way", ["compiled", "built", "a database without a way of its own"])
def test_a_row_that_is_appended_gets_its_number(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = OwnTable(Change, router.db_for_write(Change))
    now = timezone.now()
    if way.startswith("a database"):
        monkeypatch.setattr(own_tables, "COUNTING", frozenset())
    with configured(COMPILED_QUERIES=way == "compiled"):
        for number in range(2):
            row = Change(state=Change.State.DONE, time=now, rows=number, summary="é", shown=b"\0\xff")
            table.append(row)
            found = Change.objects.get(pk=row.pk)
            assert (found.rows, found.summary, bytes(found.shown), found.time) == (number, "é", b"\0\xff", now)
            assert not row._state.adding
            assert row._state.db == table.using
    assert Change.objects.count() == 2
