"""The example project, with clients of this machine that describe themselves by a document."""

import os

from tests.e2e.settings import *  # noqa: F403

MCP_DJANGO = {
    **MCP_DJANGO,  # noqa: F405
    "CLIENT_DOCUMENTS": {
        "hosts": [os.environ.get("DOCUMENTS_HOST", "localhost").partition(":")[0]],
        "private": [os.environ.get("DOCUMENTS_HOST", "localhost")],
        "ca": os.environ.get("DOCUMENTS_CA"),
    },
    # Whoever has no document is not let in.
    "REGISTRATION": "off",
}
