"""Drawn wrong calls: whatever ``next`` proposes selects the rows that a person reads in what was sent, or it is absent.

Each value is drawn with what it means, as a test in Python. ``DRAWN_QUESTIONS`` is how many are drawn.
"""

import json
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from mcp_django.testing import MCPClient
from tests.cases import drawn
from tests.factories import make_author, make_superuser, new_book
from tests.testapp.models import Book

pytestmark = [pytest.mark.walk, pytest.mark.postgresql, pytest.mark.django_db]
QUESTIONS = int(os.environ.get("DRAWN_QUESTIONS", drawn(300)))
Test = Callable[[Book], bool]
STATUSES = Book.Status.values
COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "exact": lambda one, other: one == other,
    "ne": lambda one, other: one != other,
    "gt": lambda one, other: one > other,
    "gte": lambda one, other: one >= other,
    "lt": lambda one, other: one < other,
    "lte": lambda one, other: one <= other,
}
NUMBERS = (1, 2, 10, 100, 1000, 1234, 100_200, 2_000_000)


@pytest.fixture
def books(db: None) -> list[Book]:
    draw, author = random.Random(3), make_author("Ada")
    made = [
        new_book(
            str(number),
            author=author,
            pages=draw.choice(NUMBERS),
            price=draw.choice(["0.50", "1.00", "1.50", "10.00", "1000.00", "1234.50", "50.00"]),
            status=draw.choice(STATUSES),
        )
        for number in range(60)
    ]
    Book.objects.bulk_create(made)
    return list(Book.objects.all())


class Wrong:
    """Draws a condition that is refused, with what it means: a test, or None where a person cannot tell."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def condition(self) -> tuple[str, Any, Test | None]:
        return self.draw.choice([self.of_choice, self.of_number, self.of_price, self.of_total])()

    def of_choice(self) -> tuple[str, Any, Test | None]:
        """Draw a value of a column with choices: misspelt, denied, or several."""
        chosen, other = self.draw.sample(STATUSES, 2)
        typo = self.mistyped(chosen)
        name, denies = self.draw.choice([("status", False), ("status__exact", False), ("status__ne", True)])
        sign = self.draw.choice(["|", ", ", ",", " | ", ";", " or ", "/", " "])
        denied = self.draw.choice(["un", "non-", "non", "not ", "in", "!", "-", "~", "not_", "no "])
        text, meant = self.draw.choice(
            [
                (typo, {chosen}),
                (chosen.upper() + "s", {chosen}),
                (f" {typo}.", {chosen}),
                (f"{denied}{chosen}", {*STATUSES} - {chosen}),
                (f"{denied}{typo}", {*STATUSES} - {chosen}),
                (f"{chosen}{sign}{other}", {chosen, other}),
                (f"{typo}{sign}{other}", {chosen, other}),
            ]
        )
        return name, text, lambda book: (book.status in meant) != denies

    def mistyped(self, word: str) -> str:
        place = self.draw.randrange(1, len(word) - 1)
        swapped = word[: place - 1] + word[place] + word[place - 1] + word[place + 1 :]
        return self.draw.choice([word[:place] + word[place + 1 :], word[:place] + "x" + word[place:], swapped])

    def of_number(self) -> tuple[str, Any, Test | None]:
        """Draw a value of a column of numbers: several, a range, or a comparison in words."""
        low, high = sorted(self.draw.sample(NUMBERS, 2))
        word, denies = self.draw.choice([("exact", False), ("gt", None), ("lte", None), ("ne", True), ("in", False)])
        text, test = self.draw.choice(
            [
                (f"{low} to {high}", lambda pages: low <= pages <= high),
                (f"between {low} and {high}", lambda pages: low <= pages <= high),
                (f"{low}..{high}", lambda pages: low <= pages <= high),
                (f"{low} | {high}", lambda pages: pages in (low, high)),
                (f"[{low}, {high}]", lambda pages: pages in (low, high)),
                (f"{low} and {high}", lambda pages: pages in (low, high)),
                (f"> {low}", lambda pages: pages > low),
                (f"at least {low}", lambda pages: pages >= low),
                (f"not {low}", lambda pages: pages != low),
                (f"{low}/{high}", None),
                (f"{low}%", None),
                (f"{low} mil", None),
            ]
        )
        # Two comparisons at once: {"pages__gt": "< 5"}.
        if denies is None or test is None or (denies and text.startswith(("not", ">", "at"))):
            return f"pages__{word}", text, None
        return f"pages__{word}", text, lambda book: test(book.pages) != denies

    def of_price(self) -> tuple[str, Any, Test | None]:
        """Draw a price as people of several countries write it."""
        number = self.draw.choice([0.5, 1.5, 10.0, 1000.0, 1234.5])
        word = self.draw.choice(list(COMPARED))
        english = f"{number:,.2f}"
        german = english.translate(str.maketrans(",.", ".,"))
        spaced = german.replace(".", " ")
        text = self.draw.choice([english, german, spaced, f"${english}", f"{german} €", f"EUR {german}", f"'{number}'"])
        return f"price__{word}", text, lambda book: COMPARED[word](float(book.price), number)

    def of_total(self) -> tuple[str, Any, Test | None]:
        """Draw a name that asks for a total, which no field has, or for a bound."""
        number = self.draw.choice(NUMBERS)
        totals = [("sum_pages", None), ("avg_price", None), ("mean_price__gte", None), ("median_pages__gt", None)]
        bounds = [
            ("min_pages", lambda book: book.pages >= number),
            ("max_pages", lambda book: book.pages <= number),
        ]
        name, test = self.draw.choice([*totals, *bounds])
        return name, number, test


def proposed(client: MCPClient, filters: dict[str, Any]) -> tuple[bool, dict[str, Any] | None, str]:
    """Return whether a call is refused, the arguments that it proposes, and its text."""
    result = client.call("query_records", model="testapp.book", filters=filters, fields=["pk"], limit=200)
    _, _, following = result.text.rpartition("\nnext: ")
    is_proposed = "\nnext: " in result.text
    return result.is_error, json.loads(following)["arguments"] if is_proposed else None, result.text


@pytest.mark.parametrize("shape", ["plain", "not", "or", "object"])
def test_a_proposed_call_means_what_was_sent(books: list[Book], shape: str) -> None:
    client = MCPClient(make_superuser())
    refused = followed = 0
    for number in range(QUESTIONS):
        name, value, test = Wrong(number).condition()
        filters: dict[str, Any] = {name: value}
        passes = test
        if shape == "not":
            filters = {"not": filters}
            passes = (lambda book, test=test: not test(book)) if test is not None else None
        elif shape == "or":
            filters = {"or": [filters, {"title": "0"}]}
            passes = (lambda book, test=test: test(book) or book.title == "0") if test is not None else None
        elif shape == "object":
            field, _, lookup = name.partition("__")
            filters = {field: {lookup or "exact": value}}
        is_refused, arguments, text = proposed(client, filters)
        if not is_refused:
            continue
        refused += 1
        if arguments is None:
            # What is not proposed as a call is not suggested in words either, if it would mean something else.
            assert test is not None or "Did you mean" not in text, (number, filters, text)
            continue
        assert passes is not None, (number, filters, arguments)
        found = client.call("query_records", **arguments).structured
        expected = sorted(str(book.pk) for book in books if passes(book))
        assert sorted(str(row[0]) for row in found["rows"]) == expected, (number, filters, arguments)
        followed += 1
    # The test follows many proposals, and many are none.
    assert followed > QUESTIONS / 10
    assert refused - followed > QUESTIONS / 10


def test_a_number_of_related_rows_is_led_to_their_count(books: list[Book]) -> None:
    client = MCPClient(make_superuser())
    result = client.call("query_records", model="testapp.author", filters={"total_books": len(books)})
    assert "Did you mean books__count?" in result.text
    # A total of the related rows' own column is no condition on that column.
    result = client.call("query_records", model="testapp.author", filters={"books": {"sum_pages__gt": 20_000}})
    assert "Did you mean" not in result.text
    assert "aggregate_records" in result.text
