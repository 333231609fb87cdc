"""Streamable HTTP, as an ASGI application and as Django views, and HTTP with SSE."""
