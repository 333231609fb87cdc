"""Tasks in an SQLite file: while one of them writes for long, nobody who asks for another gets an error."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from mcp_django.context.databases import writing
from mcp_django.exceptions import ToolError
from mcp_django.models import Task
from mcp_django.tasks import heartbeats, stored_tasks
from mcp_django.tasks.heartbeats import Heartbeat
from mcp_django.tasks.stored_tasks import StoredTask
from tests.configured import configure
from tests.sqlite_file import ALIAS, sqlite_file
from tests.task_calls import make_task

DONE = {"result": {"content": []}}


class ToFile:
    """A router that keeps tasks in the file."""

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return ALIAS if model is Task else None

    db_for_write = db_for_read


@pytest.fixture(params=["", "WAL"])
def file(request: Any, tmp_path: Path, django_db_blocker: Any, settings: Any) -> Iterator[Any]:
    """A database as `startproject` makes it, or with a write-ahead log, that waits for a second."""
    with (
        django_db_blocker.unblock(),
        sqlite_file(tmp_path, Task, journal=request.param, timeout=1) as connection,
    ):
        settings.DATABASE_ROUTERS = [ToFile()]
        configure(settings, TASK_BACKEND="tests.task_calls.put_aside")
        yield connection


@contextmanager
def writing_for_long(alias: str = ALIAS) -> Iterator[Any]:
    """Let another thread have written in a transaction that goes on until the block ends; give what it writes."""
    has_begun, may_end = threading.Event(), threading.Event()
    task = make_task(atomic=True)

    def write() -> None:
        try:
            with writing(alias):
                taken = StoredTask.claim(task.row.pk)
                assert taken is not None
                has_begun.set()
                may_end.wait(60)
                assert taken.finish(DONE)
        finally:
            has_begun.set()
            connections.close_all()

    thread = threading.Thread(target=write)
    thread.start()
    assert has_begun.wait(60)
    try:
        yield task
    finally:
        may_end.set()
        thread.join(60)


def polled(task: StoredTask) -> str:
    found = StoredTask.find(StoredTask.by_id(task.row.pk))
    assert found is not None
    state: str = found.look_after().row.state
    return state


@pytest.mark.usefixtures("file")
def test_polls_go_on_while_a_task_writes_for_long(monkeypatch: Any) -> None:
    monkeypatch.setattr(stored_tasks, "HAND_ON_AFTER", 0)
    waits, lost = make_task(), make_task()
    assert StoredTask.claim(lost.row.pk) is not None
    Task.objects.filter(pk=lost.row.pk).update(lease=1)
    with writing_for_long() as task:
        began = time.monotonic()
        assert polled(waits) == "working"
        # It can be said only later.
        assert polled(lost) == "working"
        assert polled(task) == "working"
        assert time.monotonic() - began < 10
    assert polled(task) == "completed"
    assert polled(lost) == "failed"


@pytest.mark.usefixtures("file")
def test_a_sign_of_life_that_cannot_be_stored_stops_no_work(monkeypatch: Any) -> None:
    monkeypatch.setattr(heartbeats, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(StoredTask, "HEARTBEAT", 0.01)
    mine = StoredTask.claim(make_task().row.pk)
    assert mine is not None
    stopped = threading.Event()
    with writing_for_long(), Heartbeat(mine, str, stopped.set):
        assert not stopped.wait(2.5)
    assert mine.finish(DONE)


@pytest.mark.usefixtures("file")
def test_what_has_to_be_stored_says_that_the_database_is_busy() -> None:
    asks = StoredTask.claim(make_task().row.pk)
    assert asks is not None
    assert asks.ask({"questions": {"a": {"key": "a"}}, "given": {}, "state": None, "used": ["a"]})
    with writing_for_long():
        with pytest.raises(ToolError, match="Nothing was changed"):
            make_task()
        with pytest.raises(ToolError, match="Nothing was changed"):
            asks.answer({"a": {"action": "accept"}})
    asks.answer({"a": {"action": "accept"}})
    assert polled(asks) == "working"
