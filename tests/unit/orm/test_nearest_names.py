"""Which choice a text misspells, and which one means something else."""

import pytest

from mcp_django.orm.nearest_names import misspelt, says_all

STATUSES = ["paid", "pending", "shipped", "partially paid", "A+", "internal", "Q1"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("PAID", ["paid"]),
        ("paids", ["paid"]),
        ("'paid'", ["paid"]),
        ("piad", ["paid"]),
        ("shiped", ["shipped"]),
        ("ship_ped", ["shipped"]),
        ("partialy payd", ["partially paid"]),
        ("a+", ["A+"]),
        # What denies a choice, or holds another, is not a misspelling of it.
        ("unpaid", []),
        ("prepaid", []),
        ("-paid", []),
        ("!paid", []),
        ("not paid", []),
        ("paid|shipped", []),
        ("paid, pending", []),
        ("A", []),
        ("A-", []),
        ("external", []),
        ("Q2", []),
        ("raid", []),
        ("", []),
        ("?", []),
        ("p" * 5_000, []),
        (5, []),
    ],
)
def test_a_choice_is_misspelt_by_a_letter_or_two(text: object, found: list[str]) -> None:
    assert misspelt(text, STATUSES) == found


def test_a_choice_whose_opposite_is_written_is_not_meant() -> None:
    assert misspelt("paid", ["unpaid"]) == misspelt("active", ["inactive"]) == []
    assert misspelt("male", ["female"]) == misspelt("exported", ["imported"]) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [("paid", "unpaid"), ("unpaid", "paid"), ("internal", "external"), ("is_active", "is_inactive")],
)
def test_a_name_with_the_opposite_word_says_something_else(text: str, name: str) -> None:
    assert not says_all(text, name)
