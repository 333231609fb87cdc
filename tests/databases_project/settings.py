"""Settings of a project with three databases: its own, one of an app, and a replica that reads may go to.

Tables are made without migrations, so that each is only where its rows are.
"""

from pathlib import Path
from tempfile import mkdtemp

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, INSTALLED_APPS

# Fields of PostgreSQL need extensions, which migrations make.
INSTALLED_APPS = [app for app in INSTALLED_APPS if app != "tests.postgresapp"] + ["tests.databases_project.store"]

_default = {**DATABASES["default"]}
if _default["ENGINE"].endswith("sqlite3"):
    _other = {**_default, "TEST": {"NAME": str(Path(mkdtemp(prefix="mcp-other-")) / "other.sqlite3")}}
else:
    _other = {**_default, "NAME": f"{_default['NAME']}_other"}
DATABASES = {"default": _default, "other": _other, "replica": {**_default, "TEST": {"MIRROR": "default"}}}
DATABASE_ROUTERS = ["tests.databases_project.store.routers.StoreRouter"]
