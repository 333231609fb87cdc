"""The example project with tools whose calls go on as tasks, on the threads of its own web workers."""

from tests.e2e.settings import *  # noqa: F403
from tests.e2e.settings import INSTALLED_APPS as EXAMPLE_APPS
from tests.e2e.settings import MCP_DJANGO as EXAMPLE_MCP

INSTALLED_APPS = [*EXAMPLE_APPS, "tests.e2e.tasks"]
# A client that knows no tasks soon gets the id of one: a call waits for its task a little less long than this.
MCP_DJANGO = {**EXAMPLE_MCP, "CALL_TIMEOUT": 5, "RATES": {"calls": None}}
