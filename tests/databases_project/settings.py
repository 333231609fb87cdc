"""Settings of a project with its own database, one of an app, and replicas that reads may go to.

Of the replicas one is never behind, and one gets nothing by itself: tests write into it what it knows so far.

Tables are made without migrations, so that each is only where its rows are.
"""

from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, INSTALLED_APPS

# Fields of PostgreSQL need extensions, which migrations make.
INSTALLED_APPS = [app for app in INSTALLED_APPS if app != "tests.postgresapp"] + ["tests.databases_project.store"]

_default = {**DATABASES["default"]}


def _further(name: str) -> dict[str, Any]:
    if _default["ENGINE"].endswith("sqlite3"):
        return {**_default, "TEST": {"NAME": str(Path(mkdtemp(prefix=f"mcp-{name}-")) / f"{name}.sqlite3")}}
    return {**_default, "NAME": f"{_default['NAME']}_{name}"}


DATABASES = {
    "default": _default,
    "other": _further("other"),
    "replica": {**_default, "TEST": {"MIRROR": "default"}},
    "behind": _further("behind"),
}
DATABASE_ROUTERS = ["tests.databases_project.store.routers.StoreRouter"]
