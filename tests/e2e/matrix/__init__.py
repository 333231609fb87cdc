"""Every generation of the official clients, each in its own environment, on a walk through the fixture project."""
