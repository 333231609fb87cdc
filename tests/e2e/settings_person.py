"""The example project, where a person confirms what asks."""

from tests.e2e.settings import *  # noqa: F403
from tests.e2e.settings import MCP_DJANGO

MCP_DJANGO = {**MCP_DJANGO, "CONFIRM": "person"}
