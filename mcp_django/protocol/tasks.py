"""The extension for tasks: calls that a client is given a handle of, in place of their result."""

from typing import Final

EXTENSION: Final = "io.modelcontextprotocol/tasks"
