"""Values that a client may offer for an argument of a prompt or resource template."""
