"""The example project on a database that gives up soon, with tools that take long or tell much."""

from mcp_django.conf import Settings
from tests.e2e.settings import *  # noqa: F403
from tests.e2e.settings import DATABASES, INSTALLED_APPS, MCP_DJANGO

INSTALLED_APPS = [*INSTALLED_APPS, "tests.e2e.strained"]
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # As a project has it that sets nothing, but for the seconds that a writer waits.
    DATABASES["default"]["OPTIONS"] = {"timeout": 0.3}
MCP_DJANGO = {**MCP_DJANGO, "RATES": {"calls": None}}
Settings.MAX_CONCURRENT_CALLS = 200
