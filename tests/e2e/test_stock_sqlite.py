"""A project as `startproject` makes it, with the README's settings and nothing else: one SQLite file, the log on."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cases import drawn
from tests.readme_project.builder import Project, ask, made

pytestmark = pytest.mark.e2e

TIMES = drawn(80)
ALONE = '\nDATABASES["default"].pop("OPTIONS", None)\n'
WITH_LOG_AHEAD = f"{ALONE}DATABASES['default']['OPTIONS'] = {{'init_command': 'PRAGMA journal_mode=WAL'}}\n"


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return made(tmp_path_factory.mktemp("stock"))


@pytest.fixture(params=["", ALONE, WITH_LOG_AHEAD], ids=["readme", "no mode", "no mode, WAL"])
def project(request: pytest.FixtureRequest, stock: Project, tmp_path: Path) -> Project:
    """A copy of the project, with more settings at its end."""
    shutil.copytree(stock.path, tmp_path, dirs_exist_ok=True)
    with (tmp_path / "project" / "settings.py").open("a") as settings:
        settings.write(request.param)
    return Project(tmp_path, stock.token)


def test_one_client_reads_and_writes_and_no_write_is_refused(project: Project) -> None:
    """Each write follows a read whose row of the log is stored meanwhile."""
    with closing(sqlite3.connect(project.path / "db.sqlite3")) as database, database:
        database.execute("INSERT INTO shop_customer (id, name) VALUES (1, 'Grace')")
    refused = []
    with project.server() as address:
        for number in range(TIMES):
            record = {"model": "shop.customer", "pk": "1"}
            ask(f"{address}/mcp", project.token, "tools/call", name="get_record", arguments=record)
            changed = {**record, "values": {"name": f"Grace {number}"}}
            done = ask(f"{address}/mcp", project.token, "tools/call", name="update_record", arguments=changed)
            refused += [done["content"]] if done.get("isError") else []
    assert refused == []
    with closing(sqlite3.connect(project.path / "db.sqlite3")) as database:
        assert database.execute("SELECT name FROM shop_customer").fetchall() == [(f"Grace {TIMES - 1}",)]
        logged = database.execute("SELECT tool, count(*) FROM mcp_django_callentry WHERE outcome = 'ok' GROUP BY tool")
        assert dict(logged.fetchall()) == {"get_record": TIMES, "update_record": TIMES}
