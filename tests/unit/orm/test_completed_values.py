"""What a completion holds, and in which order."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_django.orm.completed_values import MAX_VALUES, NOTHING, Completion, is_usable, last_member


def test_all_values_come_with_their_number_and_some_with_the_word_that_there_are_more():
    assert Completion(("a", "b")).to_wire() == {"values": ["a", "b"], "total": 2}
    assert Completion(("a", "b"), more=True).to_wire() == {"values": ["a", "b"], "hasMore": True}
    assert NOTHING.to_wire() == {"values": [], "total": 0}


@pytest.mark.parametrize(("number", "shown", "more"), [(99, 99, False), (100, 100, False), (101, 100, True)])
def test_135_at_most_100_values_are_given(number, shown, more):
    found = Completion.of(str(index) for index in range(number))
    assert (len(found.values), found.more) == (shown, more)
    ranked_too = Completion.ranked([(str(index), "") for index in range(number)], "")
    assert (len(ranked_too.values), ranked_too.more) == (shown, more)


def test_an_endless_source_is_read_no_further_than_is_shown():
    source = itertools.count()
    assert Completion.of(map(str, source)).more
    assert next(source) == MAX_VALUES + 1


def test_a_value_comes_once():
    assert Completion.of(["a", "b", "a"]).values == ("a", "b")


@pytest.mark.parametrize("value", ["", "a\0", "a\ud800", "x" * 1001])
def test_what_a_client_could_not_send_back_is_left_out(value):
    assert not is_usable(value)
    assert Completion.of([value, "a"]).values == ("a",)


OPTIONS = [("cancelled", "Called off"), ("paid", "Paid in full"), ("pa", "Short"), ("unpaid", ""), ("x", "Öffnung")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["cancelled", "paid", "pa", "unpaid", "x"]),
        ("pa", ["pa", "paid", "unpaid"]),
        ("PAID", ["paid", "unpaid"]),
        ("called", ["cancelled"]),
        ("full", ["paid"]),
        ("öff", ["x"]),
        ("nothing", []),
    ],
)
def test_the_value_itself_comes_first_then_beginnings_then_the_rest(text, expected):
    assert list(Completion.ranked(OPTIONS, text).values) == expected


@given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=8), st.text(max_size=3))
def test_a_ranking_is_the_same_each_time_and_makes_nothing_up(options, text):
    found = Completion.ranked(options, text)
    assert found == Completion.ranked(options, text)
    assert set(found.values) <= {value for value, _ in options}


@pytest.mark.parametrize(
    ("text", "written", "member"),
    [("", "", ""), ("ti", "", "ti"), ("title,", "title,", ""), ("title, pu", "title, ", "pu"), ("a,b,c", "a,b,", "c")],
)
def test_of_a_comma_list_the_last_member_is_completed(text, written, member):
    assert last_member(text) == (written, member)
