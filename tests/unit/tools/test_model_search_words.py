"""Words of questions: their endings, their misspellings, and other words for the same things."""

import random
import string
import time

import pytest

from mcp_django.tools.model_search import MAX_WORDS, matches, question_stems, stem, stems_of, words_of


@pytest.mark.parametrize(
    "words",
    [
        "order orders ordered ordering",
        "delivery deliveries delivered",
        "category categories",
        "shipment shipments shipped shipping",
        "city cities",
        "box boxes",
        "class classes",
        "customer customers",
        "price prices priced",
    ],
)
def test_forms_of_a_word_have_one_stem(words: str) -> None:
    assert len({stem(word) for word in words.split()}) == 1


def test_words_that_differ_keep_stems_that_differ() -> None:
    words = (
        "order ordinal product process supplier support city country staff state line link user use day data".split()
    )
    assert len({stem(word) for word in words}) == len(words)


def test_names_of_the_code_accents_and_case_are_folded() -> None:
    assert list(words_of("OrderLine order_line shop.orderLine")) == [
        "order",
        "line",
        "order",
        "line",
        "shop",
        "order",
        "line",
    ]
    assert list(words_of("Größe ÉTÉ")) == ["grosse", "ete"]
    assert list(words_of("order 17 of 2026")) == ["order", "of"]


def test_scripts_without_spaces_are_read_in_pairs_of_characters() -> None:
    assert set(words_of("注文明細")) & set(words_of("明細")) == {"明細"}


def test_words_that_say_nothing_are_left_out_unless_a_model_has_that_name() -> None:
    assert question_stems("Which customers have not ordered since May?", ()) == ["custom", "order"]
    assert question_stems("Welche Kunden haben nicht bestellt?", ()) == [stem("kunden"), stem("bestellt")]
    assert question_stems("which show was the first?", {"show"}) == ["show"]
    assert question_stems("what is it?", ()) == ["what", "is", "it"]
    assert stems_of("what it is") == set()


def test_long_questions_are_read_as_far_as_is_cheap() -> None:
    chance = random.Random(1)
    text = " ".join("".join(chance.choices(string.ascii_lowercase, k=12)) for _ in range(10_000))
    assert len(question_stems(text, ())) == MAX_WORDS
    known = set(map(stem, "".join(text).split()[:3000]))
    started = time.perf_counter()
    for word in question_stems(text[::-1], ()):
        matches(word, known)
    assert time.perf_counter() - started < 5


def test_a_known_word_means_itself_more_than_another_word_for_it() -> None:
    known = {stem("customer"), stem("client")}
    assert matches(stem("clients"), known) == {stem("client"): 1.0, stem("customer"): 0.6}
    assert matches("invoic", {"invoic", "invoiceline", "order"}).keys() == {"invoic", "invoiceline"}
    assert matches(stem("clients"), {stem("customer")}) == {stem("customer"): 0.6}


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("shippment", "shipment"),
        ("custommers", "customer"),
        ("reveiw", "review"),
        ("invocie", "invoice"),
        ("unpaid", "paid"),
        ("cust", "customer"),
    ],
)
def test_misspelt_and_shortened_words_are_understood(asked: str, meant: str) -> None:
    found = matches(stem(asked), {stem(word) for word in (meant, "warehouse", "order", "revenue")})
    assert max(found, key=lambda word: found[word]) == stem(meant)


def test_a_misspelt_word_has_other_words_too() -> None:
    assert list(matches(stem("clinets"), {stem("customer"), "order"})) == [stem("customer")]


@pytest.mark.parametrize("asked", ["zzzzzz", "xy", "q", "1"])
def test_what_is_near_nothing_means_nothing(asked: str) -> None:
    assert matches(asked, {"order", "customer", "line"}) == {}
