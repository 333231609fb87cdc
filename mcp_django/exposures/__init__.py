"""Declarations of a project: exposed models, admins that stand for them, actions, history."""
