"""Rows written as the admin writes them."""
