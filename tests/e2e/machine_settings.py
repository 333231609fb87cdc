"""The example project with programs that sign in by themselves, and an identity provider."""

import os

from tests.e2e.settings import *  # noqa: F403
from tests.e2e.settings import MCP_DJANGO as EXAMPLE

ISSUER = "https://login.example"
MCP_DJANGO = {
    **EXAMPLE,
    "SERVICE_ACCOUNTS": True,
    "IDENTITY_PROVIDERS": [
        {
            "issuer": ISSUER,
            "jwks_uri": os.environ["E2E_JWKS_URI"],
            "clients": ["claude-at-work"],
            "link": "email_staff",
            "create": True,
        }
    ],
}
