"""Run an action on rows, and read what it answers."""
