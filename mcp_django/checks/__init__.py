"""System checks: what is wrong with a declaration or a setting is said at start, not when a client calls."""
