"""A small shop to try the app with, which ``python -m mcp_django`` makes and serves. Projects do not install it."""
