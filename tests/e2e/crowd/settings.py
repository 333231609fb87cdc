"""The example project with a ledger, whose tasks go to processes of their own through Redis."""

from tests.e2e.workers.settings import *  # noqa: F403
from tests.e2e.workers.settings import INSTALLED_APPS as WORKERS_APPS
from tests.e2e.workers.settings import MCP_DJANGO as WORKERS_MCP

INSTALLED_APPS = [*WORKERS_APPS, "tests.e2e.crowd"]
MCP_DJANGO = {**WORKERS_MCP, "TASK_BACKEND": "tests.e2e.crowd.broker.enqueue"}
