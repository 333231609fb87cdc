import pytest

from mcp_django import ToolError, site
from mcp_django.emulation.picked_rows import Selection, listed
from mcp_django.orm.access import access_of
from mcp_django.orm.row_finder import RowFinder
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.fieldapp.models import Seat
from tests.testapp.models import Author, Book
from tests.tool_calls import request_of, site_with

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

BOOKS = site.exposures[Book]


def titles(request, **arguments):
    return [book.title for book in Selection(access_of(request)[BOOKS], arguments).rows]


def refused(request, **arguments):
    with pytest.raises(ToolError) as error:
        Selection(access_of(request)[BOOKS], arguments)
    return error.value.message


@pytest.fixture
def root():
    return request_of(make_superuser())


def test_rows_are_picked_by_key_or_by_a_query(root):
    one, two, three = make_book("One", pages=1), make_book("Two", pages=2), make_book("Three", pages=2)
    assert titles(root, pks=[two.pk, str(one.pk), two.pk]) == ["Two", "One"]
    assert titles(root, filters={"pages": 2}) == ["Two", "Three"]
    assert titles(root, filters='{"pages": 2}', search="thr") == ["Three"]
    assert titles(root, search="one") == ["One"]
    assert titles(root, all=True) == titles(root, all="true", filters={}) == ["One", "Two", "Three"]
    assert titles(root, all=True, search="thre") == ["Three"]
    assert not Selection(access_of(root)[BOOKS], {"pks": [three.pk]}).by_query
    assert Selection(access_of(root)[BOOKS], {"all": True}).by_query


@pytest.mark.parametrize(
    "arguments", [{}, {"filters": {}}, {"filters": None, "search": "", "all": False}, {"filters": "{}"}], ids=repr
)
def test_rows_are_never_picked_by_saying_nothing(root, arguments):
    make_book()
    assert refused(root, **arguments).startswith("Say which rows")


@pytest.mark.parametrize("more", [{"all": True}, {"filters": {"pages": 1}}, {"search": "x"}], ids=repr)
def test_keys_and_a_query_are_not_mixed(root, more):
    assert "not both" in refused(root, pks=[make_book().pk], **more)


def test_a_query_that_finds_nothing_is_refused(root):
    assert refused(root, all=True).startswith("No rows of testapp.book match. Nothing was changed.")


def test_H121_all_rows_are_those_that_the_caller_may_see():
    user = make_user("seller", "testapp.view_book")
    make_book("Mine", owner=user)
    theirs = make_book("Theirs", owner=make_superuser())
    seller = request_of(user)
    assert titles(seller, all=True) == titles(seller, filters={"pages": 0}) == ["Mine"]
    assert refused(seller, search="Theirs").startswith("No rows")
    assert refused(seller, pks=[theirs.pk]) == refused(seller, pks=[0]) == RowFinder.NOT_FOUND


def test_H121_a_row_that_only_its_own_permission_hides_is_left_out_of_a_query(root, monkeypatch):
    make_book("Open")
    secret = make_book("Secret")
    may_view = type(BOOKS).has_view_permission
    monkeypatch.setattr(
        type(BOOKS),
        "has_view_permission",
        lambda self, request, obj=None: may_view(self, request, obj) and getattr(obj, "title", "") != "Secret",
    )
    assert titles(root, all=True) == ["Open"]
    assert refused(root, pks=[secret.pk]) == RowFinder.NOT_FOUND


@pytest.mark.parametrize(
    "key", [2**63, 2**64, 10**400, -(2**63) - 1, "9" * 400, 1.5, None, True, {}, [1], "1 ", "٣"], ids=repr
)
def test_G123_a_key_that_no_row_can_have_stops_all(root, key):
    good = make_book().pk
    text = refused(root, pks=[good, key])
    assert text == RowFinder.NOT_FOUND or text.startswith("Each of pks must be")


def test_a_selection_beyond_the_cap_is_refused_with_what_to_do(root, settings, django_assert_max_num_queries):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "MAX_BULK_ROWS": 3}
    books = [make_book(f"B{number}") for number in range(4)]
    text = refused(root, all=True)
    assert text.startswith("4 rows of testapp.book match, and 3 is the most for one call. Nothing was changed. Narrow")
    assert "1 to 3" in refused(root, pks=[book.pk for book in books])
    assert len(titles(root, pks=[book.pk for book in books[:3]])) == 3


def test_many_rows_take_few_queries_and_no_more_parameters_than_a_database_has(
    root, settings, django_assert_num_queries
):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "MAX_BULK_ROWS": 10_000}
    Author.objects.bulk_create(Author(name=f"A{number}") for number in range(1001))
    exposure = site.exposures[Author]
    with django_assert_num_queries(4):
        selection = Selection(access_of(root)[exposure], {"all": True})
    assert len(selection.rows) == 1001
    assert selection.queryset(selection.rows).count() == 1001
    keys = [row.pk for row in selection.rows]
    with django_assert_num_queries(3):
        assert [row.pk for row in Selection(access_of(root)[exposure], {"pks": keys}).rows] == keys


def test_D121_filters_are_those_that_the_caller_may_use(root):
    make_author(secret_token="x")
    exposure = site_with(Author).exposures[Author]
    for filters in ({"secret_token": "x"}, {"books__title": "x"}, {"name__regex": "x"}):
        with pytest.raises(ToolError):
            Selection(access_of(root)[exposure], {"filters": filters})


def test_G124_rows_with_a_key_of_several_columns_are_picked_by_key_and_by_query(root):
    for hall, number in (("A/1", 1), ("A/1", 2), ("B", 1)):
        Seat.objects.create(hall=hall, number=number)
    exposure = site_with(Seat).exposures[Seat]
    picked = Selection(access_of(root)[exposure], {"pks": [["A/1", 2], '["B", 1]']}).rows
    assert [str(row) for row in picked] == ["A/1 2", "B 1"]
    selection = Selection(access_of(root)[exposure], {"filters": {"hall": "A/1"}})
    found = selection.rows
    assert [str(row) for row in found] == ["A/1 1", "A/1 2"]
    assert selection.queryset(found).count() == 2


def test_rows_are_named_up_to_a_number():
    assert listed(["a", "b"], 2) == "“a”; “b”"
    assert listed(["a", "b"], 5) == "“a”; “b” and 3 more"
