"""The example project with tools that wait, served on each road of the transport."""
