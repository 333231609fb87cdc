import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import DataError, IntegrityError, OperationalError, connection, transaction
from django.db.models import ProtectedError
from django.http import Http404

from mcp_django import ToolError, site
from mcp_django.exceptions import NotFound
from mcp_django.orm.access import access_of
from mcp_django.orm.alternative_spellings import json_or_text
from mcp_django.orm.database_writes import UNWRITABLE, one_transaction, refusals
from mcp_django.orm.row_finder import RowFinder
from tests.factories import make_book, make_superuser, make_user
from tests.testapp.models import Book, Shelf
from tests.tool_calls import request_of

pytestmark = pytest.mark.postgresql


def error_of(function, *args):
    with pytest.raises(ToolError) as error:
        function(*args)
    return error.value.message


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("[1]", [1]),
        ('{"a": 1}', {"a": 1}),
        ("{x", "{x"),
        ("[NaN]", "[NaN]"),
        ("5", "5"),
        ("", ""),
        (None, None),
        (5, 5),
    ],
)
def test_the_text_of_an_object_or_array_is_read(value, read):
    assert json_or_text(value) == read


@pytest.mark.django_db
def test_G124_rows_are_picked_as_a_whole_or_not_at_all():
    user = make_user("seller", "testapp.view_book")
    mine, hidden = make_book(owner=user), make_book(owner=make_superuser())
    request, exposure = request_of(user), site.exposures[Book]
    queryset, rows = RowFinder(access_of(request)[exposure]).pick([str(mine.pk), mine.pk])
    assert (list(queryset), rows) == ([mine], [mine])
    for pks in ([hidden.pk], [mine.pk, hidden.pk], [mine.pk, 0], [f"+{mine.pk}"], ["x"], [None]):
        with pytest.raises(NotFound):
            RowFinder(access_of(request)[exposure]).pick(pks)


@pytest.mark.django_db
def test_rows_are_picked_in_the_order_of_their_keys(django_assert_num_queries):
    for code in ("a", "b/1", "50 %"):
        Shelf.objects.create(code=code)
    request = request_of(make_superuser())
    with django_assert_num_queries(1):
        _, rows = RowFinder(access_of(request)[site.exposures[Shelf]]).pick(["b/1", "50 %", "a"])
    assert [row.pk for row in rows] == ["b/1", "50 %", "a"]


@pytest.mark.django_db(transaction=True)
def test_a_transaction_ends_as_a_whole():
    def fail():
        with one_transaction(Book) as aliases:
            assert aliases == ["default"]
            assert connection.in_atomic_block
            Shelf.objects.create(code="a")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not Shelf.objects.exists()
    with one_transaction(Book) as aliases:
        Shelf.objects.create(code="a")
        for alias in aliases:
            transaction.set_rollback(True, using=alias)
    assert not Shelf.objects.exists()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValidationError(["One.", "Two."]), "Refused, nothing was changed: “One. Two.”"),
        (ValidationError({"name": "Bad."}), "Refused, nothing was changed: “Bad.”"),
        (PermissionDenied("42"), "Permission denied. Nothing was changed."),
        (
            ProtectedError("secret", set()),
            "Nothing was changed: other rows still refer to a row that would be deleted.",
        ),
        (IntegrityError("secret"), "Nothing was changed: the values break a constraint of the database."),
        (DataError("secret"), "Nothing was changed: a value does not fit its column in the database."),
        (OperationalError("secret"), "Nothing was changed: the database is busy. Repeat the call."),
        # What MySQL says by numbers, some of them in a class that says something else.
        (OperationalError(1213, "Deadlock"), "Nothing was changed: the database is busy. Repeat the call."),
        (IntegrityError(1690, "secret"), "Nothing was changed: a value does not fit its column in the database."),
        (OperationalError(1292, "secret"), "Nothing was changed: a value does not fit its column in the database."),
        (IntegrityError(1062, "secret"), "Nothing was changed: the values break a constraint of the database."),
        (OperationalError(1288, "secret"), UNWRITABLE),
        (
            OperationalError(2013, "secret"),
            "Nothing was changed: the connection to the database was lost. Repeat the call.",
        ),
    ],
)
def test_G133_refusals_say_nothing_of_the_database(error, text):
    def fail():
        with refusals():
            raise error

    assert error_of(fail) == text


@pytest.mark.parametrize("error", [ValidationError("x"), PermissionDenied(), IntegrityError(), OperationalError()])
def test_what_is_not_undone_is_not_told_to_be(error):
    def fail():
        with refusals(undone=False):
            raise error

    assert "what it had done before stays" in error_of(fail)
    assert "othing was changed" not in error_of(fail)
    assert not error_of(fail).endswith("busy. Repeat the call.")


def test_other_failures_pass():
    with pytest.raises(NotFound), refusals():
        raise Http404
    with pytest.raises(RuntimeError), refusals():
        raise RuntimeError
    with pytest.raises(OperationalError), refusals():
        raise OperationalError(1054, "Unknown column")


@pytest.mark.parametrize(("model", "outcome"), [(Book, "Nothing was changed"), (Shelf, "It stopped half-way")])
def test_a_write_that_cannot_be_undone_does_not_say_that_nothing_was_changed(model, outcome, db, shelves_cannot_undo):
    def fail():
        with refusals(model=model):
            raise IntegrityError

    assert error_of(fail).startswith(outcome)
