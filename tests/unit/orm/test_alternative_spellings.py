"""Other spellings of filters and orders: understood, or refused with the one that is right."""

from typing import Any

import pytest

from mcp_django import ToolError
from mcp_django.context.request import MCPRequest
from mcp_django.orm.alternative_spellings import lookup_meant
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.refused_calls import RefusedCall
from tests.factories import make_author, make_book, make_superuser
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Tag
from tests.tool_calls import call, refusal

QUERY, AGGREGATE = QueryRecords(), AggregateRecords()


@pytest.fixture
def books(db: None) -> MCPRequest:
    """Four books with 0 to 3 pages, of which one has no rating."""
    for pages, status in enumerate(("draft", "published", "published", "draft")):
        make_book(
            title=f"Volume {pages}", author=make_author(f"A{pages}"), pages=pages, status=status, rating=pages or None
        )
    return reader(make_superuser(), site_with(Book, Author, Tag))


def pages(request: MCPRequest, **arguments: Any) -> list[int]:
    page = call(QUERY, request, model="testapp.book", fields=["pages"], **{"ordering": "pages", **arguments})
    return [row[1] for row in page["rows"]]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"status__ne": "draft"}, [1, 2]),
        ({"status": {"!=": "draft"}}, [1, 2]),
        ({"status": {"not": "draft"}}, [1, 2]),
        ({"status": {"$ne": "Draft"}}, [1, 2]),
        ({"status__not": ["draft"]}, [1, 2]),
        ({"pages__not_in": [0, 3]}, [1, 2]),
        ({"pages": {"nin": [0, 3]}}, [1, 2]),
        ({"pages": {"not": {"gt": 1}}}, [0, 1]),
        ({"pages": {">": 2}}, [3]),
        ({"pages": {">=": 1, "<": 3}}, [1, 2]),
        ({"pages": {"$gt": "2"}}, [3]),
        ({"pages >": 2}, [3]),
        ({"pages<=": 1}, [0, 1]),
        ({"pages__>": 2}, [3]),
        ({"pages = ": 2}, None),
        ({"pages__eq": 2}, [2]),
        ({"pages": {"between": [1, 2]}}, [1, 2]),
        ({"title__like": "%ume 2"}, [2]),
        ({"title": {"ilike": "volume%"}}, [0, 1, 2, 3]),
        ({"title": {"like": "%OLU%"}}, [0, 1, 2, 3]),
        ({"title": {"not_icontains": "3"}}, [0, 1, 2]),
        ({"title": {"like": "V%3"}}, None),
        ({"rating": {"is_null": True}}, [0]),
        ({"rating__notnull": True}, [1, 2, 3]),
        ({"rating__notnull": False}, [0]),
        ({"rating__ne": None}, [1, 2, 3]),
        ([{"status": "draft"}, {"pages__gt": 1}], [3]),
        ({"field": "pages", "operator": ">", "value": 2}, [3]),
        ([{"field": "pages", "op": ">=", "value": 2}, {"field": "status", "value": "draft"}], [3]),
        ({"not": {"pages": {">": 1}}, "status": {"ne": "draft"}}, [1]),
    ],
)
def test_a_filter_in_other_words_is_understood_or_refused(books: MCPRequest, filters: Any, found: Any) -> None:
    if found is None:
        refusal(QUERY, books, model="testapp.book", filters=filters)
    else:
        assert pages(books, filters=filters) == found


@pytest.mark.parametrize("filters", ["Q(status='draft') | Q(pages__gt=1)", "status = 'draft'", {"or": {"pages": 1}}])
def test_what_is_not_understood_is_told_in_the_spelling_that_is(books: MCPRequest, filters: Any) -> None:
    message = refusal(QUERY, books, model="testapp.book", filters=filters)
    assert 'Q(a=1) | Q(b__gt=2) is {"or": [{"a": 1}, {"b__gt": 2}]}' in message
    assert pages(books, filters={"or": [{"status": "draft"}, {"pages__gt": 1}]}) == [0, 2, 3]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"published__year__gte": 2024}, [0, 2]),
        ({"published__year__gt": 2024}, [2]),
        ({"published.year": {"lte": 2024}}, [0, 3]),
        ({"published": {"year__lt": 2024}}, [3]),
        ({"published.year >": 2024}, [2]),
        ({"published__year__in": [2020, 2025]}, [2, 3]),
        ({"published__year": [2020, 2025]}, [2, 3]),
        ({"published__year__range": [2020, 2024]}, [0, 3]),
        ({"published__year__ne": 2024}, [1, 2, 3]),
        ({"published__month__gte": 5}, [2, 3]),
        ({"author.books.published.year__gte": 2025}, [2]),
        ({"not": {"published__year__gte": 2024}}, [1, 3]),
    ],
)
def test_a_part_of_a_date_is_compared_as_a_number(books: MCPRequest, filters: Any, found: list[int]) -> None:
    for number, day in enumerate(("2024-02-01", None, "2025-05-01", "2020-12-31")):
        Book.objects.filter(pages=number).update(published=day)
    assert pages(books, filters=filters) == found


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        ({"published__year__gte": 99999}, "a whole number from 2 to 9998"),
        ({"published__year__range": [2020]}, "a list of two values"),
        ({"published__year__contains": 2024}, "Valid: exact, gt, gte, lt, lte, in, range."),
        ({"title__year__gte": 2024}, "takes other lookups. Valid: exact, in, contains"),
        ({"published__century__gte": 20}, "has no filter"),
    ],
)
def test_a_part_of_a_date_is_not_compared_otherwise(books: MCPRequest, filters: Any, said: str) -> None:
    assert said in refusal(QUERY, books, model="testapp.book", filters=filters)


@pytest.mark.parametrize(
    ("ordering", "found"),
    [
        ("pages desc", [3, 2, 1, 0]),
        ("pages DESC", [3, 2, 1, 0]),
        (["pages ascending"], [0, 1, 2, 3]),
        ("pages:desc", [3, 2, 1, 0]),
        ("-pages desc", [3, 2, 1, 0]),
        ({"pages": "desc"}, [3, 2, 1, 0]),
        ([{"field": "pages", "direction": "DESC"}], [3, 2, 1, 0]),
        (["status asc", {"pages": "desc"}], [3, 0, 2, 1]),
        ("rating DESC NULLS FIRST", [0, 3, 2, 1]),
        ("rating desc nulls last", [3, 2, 1, 0]),
    ],
)
def test_an_order_in_other_words_is_understood(books: MCPRequest, ordering: Any, found: list[int]) -> None:
    assert pages(books, ordering=ordering) == found


@pytest.mark.parametrize("ordering", ["pages downwards", {"pages": -1}, "isbn desc; drop", "secret_token desc"])
def test_an_order_that_is_none_is_refused_with_how_to_write_one(books: MCPRequest, ordering: Any) -> None:
    refusal(QUERY, books, model="testapp.book", ordering=ordering)


def test_groups_are_ordered_and_compared_in_other_words(books: MCPRequest) -> None:
    asked = {"model": "testapp.book", "group_by": ["status"], "aggregates": ["sum:pages"]}
    expected = [["draft", 3], ["published", 3]]
    assert call(AGGREGATE, books, **asked, ordering="status asc")["rows"] == expected
    assert call(AGGREGATE, books, **asked, ordering=[{"status": "desc"}])["rows"] == expected[::-1]
    assert call(AGGREGATE, books, **asked, ordering="sum:pages desc, status")["rows"] == expected
    assert call(AGGREGATE, books, **asked, having={"sum_pages": {">": 3}})["rows"] == []
    assert call(AGGREGATE, books, **asked, having={"sum_pages__>=": 3})["rows"] == expected


@pytest.mark.parametrize("shape", ["author.%s", "%s >", "author__%s__ne", "%s__like", "%s.x"])
def test_row_112_another_spelling_opens_nothing(books: MCPRequest, shape: str) -> None:
    hidden, missing = (
        refusal(QUERY, books, model="testapp.book", filters={shape.replace("%s", name): "x"})
        for name in ("secret_token", "nono")
    )
    assert hidden.replace("secret_token", "nono") == missing


def test_row_118_other_spellings_count_as_conditions(books: MCPRequest) -> None:
    one = {"pages": {"not": {"not": {">": 1}}}}
    assert pages(books, filters=[one] * 20) == [2, 3]
    assert "at most 20" in refusal(QUERY, books, model="testapp.book", filters=[one] * 21)


def test_a_word_means_only_a_lookup_that_the_field_takes() -> None:
    assert lookup_meant(">", 1, ("exact",)) is None
    assert lookup_meant("regexp", "x", ("exact",)) is None
    assert lookup_meant("not_regex", "x", ("exact", "regex")) == ("regex", "x", True)


@pytest.mark.parametrize(
    ("filters", "meant"),
    [
        ("pages > 1", {"pages__gt": "1"}),
        ("pages>=1 AND status = 'draft'", {"pages__gte": "1", "status": "draft"}),
        ("WHERE status != 'draft'", {"status__ne": "draft"}),
        ("select title from book where pages in (1, 2)", {"pages__in": ["1", "2"]}),
        ("rating is null", {"rating__isnull": True}),
        (["pages", ">", 1], {"pages__gt": 1}),
        ([["pages", ">", 1], ["status", "=", "draft"]], {"pages__gt": 1, "status": "draft"}),
        (["pages > 1"], {"pages__gt": "1"}),
        ({"$or": [{"pages": 1}, {"pages": 2}]}, {"or": [{"pages": 1}, {"pages": 2}]}),
        ({"pages": ">1"}, {"pages__gt": "1"}),
        ({"pages": "more than 1"}, {"pages__gt": "1"}),
        ({"pages": "at least two"}, None),
        ({"pages": "two"}, {"pages": 2}),
        ({"pages": "1..2"}, {"pages__range": ["1", "2"]}),
        ({"pages": "between 1 and 2"}, {"pages__range": ["1", "2"]}),
        ({"pages": "1, 2"}, {"pages__in": ["1", "2"]}),
        ({"price": "1,000"}, {"price": "1000"}),
        ({"price": "9,90"}, {"price": "9.90"}),
        ({"price": "$9.90"}, {"price": "9.90"}),
        ({"active": "yes"}, {"active": True}),
        ({"rating": ""}, {"rating__isnull": True}),
        ({"published": " "}, {"published__isnull": True}),
        ({"status": "publishd"}, {"status": "published"}),
        ({"status": "!draft"}, {"not": {"status": "draft"}}),
        ({"status": "draft,published"}, {"status__in": ["draft", "published"]}),
        ({"status": '["draft", "published"]'}, {"status__in": ["draft", "published"]}),
        ({"title": '["Volume 1", "Volume 2"]'}, {"title__in": ["Volume 1", "Volume 2"]}),
        ({"status__in": "['draft']"}, {"status__in": ["draft"]}),
        ({"pages__gtee": 1}, {"pages__gte": 1}),
        ({"pagesGte": 1}, {"pages__gte": 1}),
        ({"min_pages": 1}, {"pages__min": 1}),
        ({"Pages": 1}, {"pages": 1}),
        ({"author.nam": "A1"}, {"author__name": "A1"}),
        ({"author": {"some": {"nam": "A1"}}}, {"author": {"some": {"name": "A1"}}}),
        ({"published": "since 2024-01-01"}, {"published__gte": "2024-01-01"}),
        ({"or": [{"pages": ">1"}, {"pages": 0}]}, {"or": [{"pages__gt": "1"}, {"pages": 0}]}),
        # What has two meanings, or none, is not proposed.
        ("pages > 1 or pages = 0", None),
        ("drop table books", None),
        ({"published": "01/05/2024"}, None),
        ({"pages": "many"}, None),
        ({"or": {"pages": 1, "status": "draft"}}, None),
        ({"or": [{"titel": "a"}, {"titel": "b"}]}, None),
    ],
)
def test_filters_of_other_forms_are_answered_with_the_form_that_is_right(
    books: MCPRequest, filters: Any, meant: Any
) -> None:
    with pytest.raises(ToolError) as error:
        QUERY.call(books, {"model": "testapp.book", "filters": filters})
    found = RefusedCall(books, QUERY, {"model": "testapp.book", "filters": filters}, error.value).proposal()
    assert (found and found["arguments"]["filters"]) == meant
    if meant is not None:
        call(QUERY, books, model="testapp.book", filters=meant)


@pytest.mark.parametrize(
    "filters",
    [
        {"pages__greaterThan": 1},
        {"title LIKE": "%2%"},
        {"pages not in": [1]},
        {"where": {"pages": 1}},
        {"filters": {"pages": 1}},
        {"and": {"pages": 1}},
        {"published": "5 May 2024"},
        {"published__gte": "in May 2024"},
        {"published": "year to date"},
        {"published__gte": "two weeks ago"},
        {"published": {"start": "2024-01-01", "end": "2024-02-01"}},
        {"pages__in": "[1, 2]"},
    ],
)
def test_what_has_one_meaning_is_understood(books: MCPRequest, filters: Any) -> None:
    call(QUERY, books, model="testapp.book", filters=filters)


def test_a_day_that_can_be_two_is_told_with_both(books: MCPRequest) -> None:
    text = refusal(QUERY, books, model="testapp.book", filters={"published": "01/05/2024"})
    assert text.endswith("Did you mean 2024-01-05 or 2024-05-01?")
    assert "Did you mean" not in refusal(QUERY, books, model="testapp.book", filters={"published": "1/45/2024"})


def test_a_text_that_looks_like_a_list_can_be_asked_for_as_it_is(books: MCPRequest) -> None:
    make_book(title='["a"]', author=make_author("A"), pages=9)
    assert pages(books, filters={"title__exact": '["a"]'}) == [9]
    assert "title__exact the text" in refusal(QUERY, books, model="testapp.book", filters={"title": '["a"]'})


@pytest.mark.parametrize(
    ("tool", "asked", "right"),
    [
        (QUERY, {"filters": {"num_books": 0}}, {"filters": {"books__count": 0}}),
        (QUERY, {"filters": {"book_count__gte": 2}}, {"filters": {"books__count__gte": 2}}),
        (QUERY, {"filters": {"numberOfBooks": {"gt": 2}}}, {"filters": {"books__count": {"gt": 2}}}),
        (QUERY, {"ordering": ["num_books"]}, {"ordering": ["books__count"]}),
        (QUERY, {"filters": {"nmae": "A1"}}, {"filters": {"name": "A1"}}),
        (QUERY, {"filters": {"author_name": "A1"}}, {"filters": {"name": "A1"}}),
        (QUERY, {"filters": {"born_on__gte": "2020-01-01"}}, {"filters": {"born__gte": "2020-01-01"}}),
        # A word that is left out, or another one, asks something else.
        (QUERY, {"filters": {"born_year": 2020}}, None),
        (QUERY, {"filters": {"last_name": "A1"}}, None),
        (QUERY, {"fields": ["born__year"]}, None),
        (QUERY, {"filters": {"born": {"nisnull": True}}}, None),
        (AGGREGATE, {"aggregates": ["avg:num_books"]}, None),
    ],
)
def test_a_proposal_says_all_that_the_call_said(books: MCPRequest, tool: Any, asked: Any, right: Any) -> None:
    arguments = {"model": "testapp.author", **asked}
    with pytest.raises(ToolError) as error:
        tool.call(books, arguments)
    found = RefusedCall(books, tool, arguments, error.value).proposal()
    assert (found and found["arguments"]) == (right and {"model": "testapp.author", **right})
