"""Streamable HTTP, on both roads, and HTTP with SSE."""
