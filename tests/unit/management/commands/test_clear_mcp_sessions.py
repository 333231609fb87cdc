"""What `clear_mcp_sessions` deletes and what it leaves."""

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from mcp_django.models import Export, KeyedCall, Session, Stream, Task
from tests.exporting import export_of, with_storage
from tests.factories import make_superuser
from tests.making_tasks import HOUR, SECOND, ended, make_task, running

pytestmark = pytest.mark.django_db


def make_session(name: str, unused: timedelta, ended: bool = False) -> Session:
    then = timezone.now() - unused
    return Session.objects.create(id=name, created=then, seen=then, ended=ended)


def test_only_what_is_over_is_deleted() -> None:
    make_session("idle", timedelta(days=8))
    make_session("ended long ago", timedelta(days=8), ended=True)
    ended = make_session("ended", timedelta(days=1), ended=True)
    live = make_session("live", timedelta(days=1))
    old = timezone.now() - timedelta(hours=1)
    Stream.objects.create(id="done", session=live, state=Stream.State.DONE, alive=old)
    Stream.objects.create(id="dead", session=live, state=Stream.State.RUNNING, alive=old)
    kept = Stream.objects.create(id="asking", session=live, state=Stream.State.ASKING, alive=timezone.now())
    for tool, age in (("old", timedelta(hours=25)), ("new", timedelta(hours=23))):
        KeyedCall.objects.create(id=tool, tool=tool, created=timezone.now() - age)
    out = StringIO()
    call_command("clear_mcp_sessions", stdout=out)
    assert out.getvalue() == "Deleted 2 sessions, 2 streams, 1 calls and 0 uploads.\n"
    assert list(KeyedCall.objects.values_list("tool", flat=True)) == ["new"]
    assert set(Session.objects.all()) == {ended, live}
    assert list(Stream.objects.all()) == [kept]


def test_tasks_that_lost_their_worker_end_and_old_ones_are_deleted() -> None:
    lost = running(HOUR, lease=-SECOND)
    kept = [running(), make_task(HOUR), ended("completed", HOUR)]
    ended("completed", 25 * HOUR)
    make_task(25 * HOUR)
    out = StringIO()
    call_command("clear_mcp_sessions", stdout=out)
    assert "Ended 1 tasks that had lost their worker." in out.getvalue()
    assert "Deleted 2 tasks: their results can no longer be read." in out.getvalue()
    assert set(Task.objects.all()) == {lost, *kept}
    lost.refresh_from_db()
    assert lost.state == "failed"
    assert "It may have been done" in lost.outcome


def test_exports_that_have_expired_are_deleted_with_their_files(settings: Any) -> None:
    storage = with_storage(settings)
    user = make_superuser()
    for _ in range(2):
        export_of(user)
    gone, kept = Export.objects.all()
    Export.objects.filter(pk=gone.pk).update(expires=timezone.now())
    out = StringIO()
    call_command("clear_mcp_sessions", stdout=out)
    assert "Deleted 1 exports: their files can no longer be fetched.\n" in out.getvalue()
    assert list(Export.objects.all()) == [kept]
    assert [storage.exists(row.stored) for row in (gone, kept)] == [False, True]
