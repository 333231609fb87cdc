"""The project that both hosts serve."""
