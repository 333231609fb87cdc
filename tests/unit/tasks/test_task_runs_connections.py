"""A worker runs tasks in one thread for as long as it lives, and so may lose its connection in between."""

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, connections

from mcp_django.tasks import run_task

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

KILL = {
    "postgresql": ("SELECT pg_backend_pid()", "SELECT pg_terminate_backend({})"),
    "mysql": ("SELECT CONNECTION_ID()", "KILL {}"),
}


@pytest.mark.skipif(connection.vendor not in KILL, reason="connections to files are not lost")
def test_a_worker_that_has_lost_its_connection_runs_the_next_task(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # A project keeps its connections for ever, and does not ask whether they still are there.
    for name, value in (("CONN_MAX_AGE", None), ("CONN_HEALTH_CHECKS", False)):
        monkeypatch.setitem(connections.settings["default"], name, value)
    mine, kill = KILL[connection.vendor]

    def number() -> Any:
        with connection.cursor() as cursor:
            cursor.execute(mine)
            return cursor.fetchone()[0]

    with ThreadPoolExecutor(1) as worker:
        first = worker.submit(number).result()
        worker.submit(run_task, "a").result()
        assert worker.submit(number).result() == first
        with connection.cursor() as cursor:
            cursor.execute(kill.format(first))
        with caplog.at_level(logging.WARNING, "mcp_django"):
            worker.submit(run_task, "a").result()
            assert caplog.messages == ["The task a could not be run"]
            worker.submit(run_task, "a").result()
            assert len(caplog.messages) == 1
        assert worker.submit(number).result() != first
        worker.submit(connections.close_all).result()
