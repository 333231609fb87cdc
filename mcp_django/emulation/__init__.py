"""The admin for callers without a browser: what its pages show, ask, save and log."""
