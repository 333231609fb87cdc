"""The project that the official conformance suite runs against, written with the app's own decorators."""
