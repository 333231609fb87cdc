"""The tree that the text of an expression becomes."""

from decimal import Decimal

import pytest

from mcp_django.exceptions import ToolError
from mcp_django.orm.expression_grammar import Length, Name, Number, Operation, names_in, parsed


def test_multiplication_comes_before_addition() -> None:
    product = Operation(Name("b"), "*", Number(Decimal(2)))
    assert parsed("a + b*2") == Operation(Name("a"), "+", product)
    assert parsed("(a + b)*2") == Operation(Operation(Name("a"), "+", Name("b")), "*", Number(Decimal(2)))


def test_what_stands_side_by_side_is_read_from_the_left() -> None:
    assert parsed("a-b-c") == Operation(Operation(Name("a"), "-", Name("b")), "-", Name("c"))
    assert parsed("a/b*c") == Operation(Operation(Name("a"), "/", Name("b")), "*", Name("c"))


def test_a_duration_stays_as_it_was_written() -> None:
    assert parsed("due+2 weeks") == Operation(Name("due"), "+", Length("2 weeks"))
    assert parsed("-1.50") == Operation(Number(Decimal(0)), "-", Number(Decimal("1.50")))


def test_names_are_found_wherever_they_stand() -> None:
    assert names_in(parsed("(a + author.name)*2 - a")) == ["a", "author.name", "a"]
    assert names_in(parsed("5d")) == []


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("a" * 201, "at most 200 characters"),
        ("+".join("a" * 30), "at most 40 parts"),
        ("(" * 10 + "a" + ")" * 10, "nested 8 deep"),
        ("-" * 20 + "a", "nested 8 deep"),
        ("9" * 16, "was not understood"),
        ("1e9", "was not understood"),
        ("a;b", "was not understood"),
        ("a b", "not understood at 'b'"),
        ("(a", "not understood at its end"),
        ("", "not understood at its end"),
    ],
)
def test_what_is_too_long_or_no_expression_is_refused(text: str, refusal: str) -> None:
    with pytest.raises(ToolError, match=refusal):
        parsed(text)
