"""An app with nothing but an ``mcp.py``."""
