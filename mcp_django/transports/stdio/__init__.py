"""The stdio transport: messages on standard input and output."""
