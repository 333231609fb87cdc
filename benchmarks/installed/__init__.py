"""A project that is started and ended, without the app, with it, and with declarations for it."""
