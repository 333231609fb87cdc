from typing import Any

import pytest

from mcp_django.context.untrusted_text import plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Robot", "Robot"),
        ("Käse 🧀 日本", "Käse 🧀 日本"),
        ("a\u202eb\u2066c\u200bd", "a\ufffdb\ufffdc\ufffdd"),
        ("a\x00b\x1bc\x7f", "a\ufffdb\ufffdc\ufffd"),
        ("a\r\nb\u2028c", "a\ufffd\ufffdb\ufffdc"),
        ("\U000e0041", "\ufffd"),
        ("\ud800", "\ufffd"),
        ("  a   b ", "a b"),
        ("a\u3164b\u2800", "a\ufffdb\ufffd"),
        ("\u3164", "\ufffd"),
        ("\u115f\u1160\uffa0\U0001d159", "\ufffd\ufffd\ufffd\ufffd"),
        ("\ufe0f\ufe0f", ""),
        ("\u0301 \u0300", ""),
        ("\u00a0\u2003\u3000", ""),
        ("e\u0301", "e\u0301"),
        ("\u2764\ufe0f", "\u2764\ufe0f"),
        ("<b>", "<b>"),
        (None, ""),
        (7, ""),
    ],
)
def test_what_could_mislead_is_replaced(text: Any, shown: str) -> None:
    assert plain(text) == shown


def test_long_text_is_cut() -> None:
    assert len(plain("x" * 1000)) == 100
    assert len(plain("x" * 1000, limit=255)) == 255
