"""Signatures: their parameters, and annotations that are text."""

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from mcp_django.schema.signatures import Signature

Thing = int


def fine(request: Any, year: int, *, month: int = 1, name: "Unknown" = None) -> "list[Thing]":  # type: ignore[name-defined,empty-body]  # noqa: F821
    """What annotations name is not looked for."""


def test_what_the_app_fills_in_is_skipped() -> None:
    assert [item.name for item in Signature(fine).given_by_name(("request", "year"))] == ["month", "name"]


def test_names_are_looked_up_where_the_function_is_defined() -> None:
    signature = Signature(fine)
    assert signature.resolve(signature.return_annotation) == list[int]
    with pytest.raises(ImproperlyConfigured, match="Nothing"):
        signature.resolve("Nothing")
