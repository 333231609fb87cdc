"""A small shop with an admin, opened to MCP clients by `mcp_django`."""
