"""What is likely a secret by its characters alone."""

from typing import Any

import pytest

from mcp_django.operating.likely_secrets import without_likely_secrets
from mcp_django.schema.secrets import HIDDEN


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (5, 5),
        (4111111111111111, HIDDEN),
        (4111111111111112, 4111111111111112),
        (None, None),
        ([1], [1]),
        ("paid with 4111 1111 1111 1111 today", f"paid with {HIDDEN} today"),
        ("paid with 4111 1111 1111 1112 today", "paid with 4111 1111 1111 1112 today"),
        ("use aB3dE5gH7jK9mN1pQ3 for it", f"use {HIDDEN} for it"),
        ("an unremarkable-sentence-of-words", "an unremarkable-sentence-of-words"),
    ],
)
def test_row_129_what_is_likely_a_secret_is_hidden(given: Any, shown: Any) -> None:
    assert without_likely_secrets(given) == shown
