"""The conditions of approval rules."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.apps.registry import Apps
from django.db import connection, models
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation

from mcp_django.approvals.conditions import RuleCondition, WrongCondition
from mcp_django.differences.stored_rows import stored_table
from tests.factories import make_author, make_book, make_user
from tests.fieldapp.models import Seat
from tests.testapp.models import AudioBook, Author, Book, Loan, Note, Placement, PublishedBook, Section, Shelf, Tag

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


def keys(model: Any, *rows: Any) -> list[tuple[Any, ...]]:
    """Return the keys of rows as a stored difference has them."""
    return list(stored_table(model, "default").read("pk", [row.pk for row in rows]))


def found(condition: dict[str, Any], model: Any, *rows: Any, side: str = "before") -> list[bool]:
    """Return which rows meet the condition on a side."""
    met = RuleCondition(condition).rows_meeting(model, keys(model, *rows), side, "default")
    return [keys(model, row)[0] in met for row in rows]


def test_a_condition_keeps_its_data() -> None:
    assert RuleCondition({"pages__gt": 100}).data == {"pages__gt": 100}
    assert str(RuleCondition({"pages__gt": 100})) == '{"pages__gt": 100}'
    assert RuleCondition().data == {}
    assert str(RuleCondition()) == ""
    assert str(RuleCondition(function=keys)) == "keys"


# On rows


def test_rows_are_compared_as_filters_compare_them() -> None:
    ada, ben = make_author("Ada"), make_author("Ben", secret_token="x1")
    short = make_book(author=ada, pages=50, published=timezone.localdate())
    long = make_book(author=ben, pages=500, status="published", published=timezone.localdate() - timedelta(days=90))
    short.tags.add(Tag.objects.create(name="new"))
    assert found({"pages__gt": 100}, Book, short, long) == [False, True]
    assert found({"pages": {"gt": 100}}, Book, short, long) == [False, True]
    assert found({"author__name": "Ben"}, Book, short, long) == [False, True]
    assert found({"author__secret_token__startswith": "x"}, Book, short, long) == [False, True]
    assert found({"tags__name": "new"}, Book, short, long) == [True, False]
    assert found({"published__gte": "last 30 days"}, Book, short, long) == [True, False]
    assert found({"or": [{"pages": 50}, {"pages": 60}]}, Book, short, long) == [True, False]
    assert found({"not": {"status": "published"}}, Book, short, long) == [True, False]
    assert found({"status": "In preparation"}, Book, short, long) == [True, False]
    assert found({"books": {"some": {"pages__gt": 100}}}, Author, ada, ben) == [False, True]
    assert found({"books": {"count__gte": 1, "where": {"pages__gt": 100}}}, Author, ada, ben) == [False, True]
    assert found({"price": {"field": "pages"}}, Book, short, long) == [False, False]
    assert found({"pages__gt": {"avg": "pages"}}, Book, short, long) == [False, True]


def test_each_side_has_its_part() -> None:
    book = make_book(pages=500)
    assert found({"before": {"pages": 500}}, Book, book) == [True]
    assert found({"before": {"pages": 500}}, Book, book, side="after") == [False]
    assert found({"after": {"pages": 500}}, Book, book, side="after") == [True]
    assert found({"pages": 500}, Book, book, side="after") == [True]
    assert found({"arguments": {"pages": 500}}, Book, book) == [False]
    one, two = {(1,)}, {(2,)}
    assert RuleCondition({"pages": 500}).all_of(one, two) == {(1,), (2,)}
    assert RuleCondition({"before": {"pages": 5}, "after": {"pages": 6}}).all_of(one, one | two) == one


@pytest.mark.parametrize(
    ("condition", "is_on_rows", "needs_after"),
    [
        ({}, False, False),
        ({"pages__gt": 100}, True, True),
        ({"before": {"pages__gt": 100}}, True, False),
        ({"after": {"pages__gt": 100}}, True, True),
        ({"arguments": {"pages__gt": 100}}, False, False),
    ],
)
def test_what_has_to_be_known_of_the_rows(condition: dict[str, Any], is_on_rows: bool, needs_after: bool) -> None:
    made = RuleCondition(condition)
    assert (made.is_on_rows, made.needs_after) == (is_on_rows, needs_after)


def test_keys_of_every_kind_are_those_of_the_difference() -> None:
    shelf = Shelf.objects.create(code="A/1 50 %")
    section = Section.objects.create(id=uuid.uuid4(), name="Poetry")
    audio = AudioBook.objects.create(
        title="Aloud", narrator="Ann", author=make_author(), isbn="1", price="3.00", pages=7
    )
    assert found({"code__startswith": "A"}, Shelf, shelf) == [True]
    assert found({"name": "Poetry", "parent": None}, Section, section) == [True]
    assert found({"pages": 7, "narrator": "Ann"}, AudioBook, audio) == [True]
    assert found({"pages": 7}, Book, audio) == [True]
    placement = Placement.objects.create(shelf=shelf, book=audio, position=3)
    assert found({"shelf": "A/1 50 %", "book__pages": 7}, Placement, placement) == [True]


def test_keys_of_several_columns_are_compared_together() -> None:
    seats = [Seat.objects.create(hall=hall, number=number) for hall, number in (("a", 1), ("a", 2), ("b", 2))]
    assert found({"number__gt": 1, "hall": "a"}, Seat, *seats) == [False, True, False]


def test_rows_of_a_parent_are_those_of_the_child_only_where_there_are_such() -> None:
    plain = make_book(pages=7)
    audio = AudioBook.objects.create(title="Aloud", author=make_author(), isbn="1", price="3.00", pages=7)
    both = keys(Book, plain, audio)
    assert RuleCondition({"pages": 7}).rows_meeting(AudioBook, both, "before", "default") == {keys(Book, audio)[0]}


def test_rows_that_managers_hide_are_compared() -> None:
    gone = Loan.all_objects.create(book=make_book(), borrower="Ada", due=timezone.now(), deleted=timezone.now())
    draft = PublishedBook(pk=make_book(pages=7).pk)
    assert found({"borrower": "Ada"}, Loan, gone) == [True]
    assert found({"pages": 7}, PublishedBook, draft) == [True]
    assert found({"loans": {"count": 1}}, Book, gone.book) == [True]


def test_rows_that_are_not_there_do_not_meet_it() -> None:
    book = make_book(pages=7)
    [key] = keys(Book, book)
    book.delete()
    assert RuleCondition({"pages": 7}).rows_meeting(Book, [key], "after", "default") == set()


def test_many_rows_cost_one_query_for_each_part_of_their_keys() -> None:
    books = [make_book(pages=number) for number in range(40)]
    wanted = keys(Book, *books)
    with CaptureQueriesContext(connection) as captured:
        met = RuleCondition({"pages__gte": 20}).rows_meeting(Book, wanted, "before", "default")
    assert len(met) == 20
    assert len([query for query in captured if query["sql"].startswith("SELECT")]) == 1


# What cannot be evaluated


@pytest.mark.parametrize(
    "condition",
    [
        {"renamed__gt": 100},
        {"pages__gt": "many"},
        {"pages": {}},
        {"author__renamed": 1},
        {"pages__gt": 100, "after": {"status": "published"}},
        {"before": {"renamed": 1}},
    ],
)
def test_a_condition_that_cannot_be_evaluated_applies(condition: dict[str, Any], caplog: Any) -> None:
    book = make_book(pages=1)
    assert found(condition, Book, book) == [True]
    assert "cannot be evaluated" in caplog.text
    with pytest.raises(WrongCondition):
        RuleCondition.read(condition, [Book], [])
    # The transaction goes on.
    assert Book.objects.count() == 1


def test_an_error_of_the_database_applies_and_breaks_no_transaction(caplog: Any) -> None:
    class Tableless(models.Model):
        title = models.CharField(max_length=10)

        class Meta:
            apps = Apps()
            app_label = "testapp"

    assert RuleCondition({"title": "x"}).rows_meeting(Tableless, [(1,)], "before", "default") == {(1,)}
    assert RuleCondition({"title": "x"}).rows_meeting(Tableless, [(1,)], "before", "nowhere") == {(1,)}
    assert caplog.text.count("cannot be evaluated") == 2
    assert Author.objects.count() == 0


def test_keys_that_are_none_apply() -> None:
    assert RuleCondition({"pages": 7}).rows_meeting(Book, [("x",)], "before", "default") == {("x",)}


# Whoever calls


def test_parts_of_texts_that_are_hidden_from_callers_are_compared() -> None:
    author = make_author('{"password": "abc"} refund')
    assert found({"name__contains": "refund"}, Author, author) == [True]
    assert found({"name__contains": "abc"}, Author, author) == [True]
    assert found({"not": {"name__contains": "abc"}}, Author, author) == [False]
    assert found({"name": '{"password": "abc"} refund'}, Author, author) == [True]
    book = make_book('{"password": "abc"}', isbn="abc")
    assert found({"title": {"field": "author__name"}}, Book, book) == [False]
    book.author.name = book.title
    book.author.save()
    assert found({"title": {"field": "author__name"}}, Book, book) == [True]


def test_models_that_no_site_exposes_are_compared() -> None:
    owner = make_user("ada")
    owner.set_password("x")
    book = make_book(owner=owner)
    assert found({"owner__username": "ada"}, Book, book) == [True]
    assert found({"owner__password__startswith": "md5"}, Book, book) == [True]
    assert found({"owner__is_superuser": True}, Book, book) == [False]


def test_language_and_time_zone_are_those_of_the_settings() -> None:
    book = make_book(published=timezone.localdate())
    with translation.override("de"), timezone.override("Pacific/Kiritimati"):
        assert found({"published": "today"}, Book, book) == [True]
        assert found({"status": "In preparation"}, Book, book) == [True]


# Reading


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ([1], "A condition is an object"),
        ({"page__gt": 1}, "testapp.book.*'page__gt'.*pages"),
        ({"pages__gt": "x"}, "testapp.book"),
        ({"pages__gt": 1, "after": {"pages": 1}}, "or none of them"),
        ({"before": {}}, "testapp.book"),
        ({"arguments": {}}, "takes an object"),
        ({"arguments": {"amout__gt": 1}}, "no argument 'amout'. Did you mean 'amount'"),
        ({"arguments": {"amount__gt": "many"}}, "number or a date"),
        ({"arguments": {"amount__in": 3}}, "needs a list"),
        ({"arguments": {"amount__range": [1]}}, "two values"),
        ({"arguments": {"amount__isnull": 3}}, "true or false"),
        ({"arguments": {"amount__contains": 3}}, "needs a text"),
        ({"arguments": {"or": {}}}, "list of objects"),
        ({"arguments": {"amount": {}}}, "is empty"),
        ({"arguments": {"amount__gt": [1]}}, "needs one value"),
    ],
)
def test_a_wrong_condition_says_why(condition: Any, message: str) -> None:
    with pytest.raises(WrongCondition, match=message):
        RuleCondition.read(condition, [Book], ["amount"])


def test_a_condition_has_to_fit_every_model() -> None:
    assert RuleCondition.read({"title": "x"}, [Book, PublishedBook], []).is_on_rows
    with pytest.raises(WrongCondition, match=r"testapp\.author"):
        RuleCondition.read({"title": "x"}, [Book, Author], [])
    with pytest.raises(WrongCondition, match="Name the models"):
        RuleCondition.read({"title": "x"}, [], [])
    assert not RuleCondition.read({"arguments": {"amount__gt": 1}}, [], ["amount"]).is_on_rows
    assert not RuleCondition.read({}, [], []).is_on_rows


def test_the_columns_that_a_condition_reads_are_known_by_their_paths() -> None:
    condition = {
        "author__name": "Ada",
        "or": [{"tags__name": "x"}, {"price": {"field": "pages*2"}}],
        "loans": {"count__gt": 2, "where": {"borrower": "Ben"}},
    }
    assert set(RuleCondition(condition).reads(Book)) == {
        "author",
        "author__name",
        "tags",
        "tags__name",
        "price",
        "pages",
        "loans__book",
        "loans__borrower",
    }
    assert RuleCondition({"before": {"pages": 1}, "after": {"status": "draft"}}).reads(Book) == ["pages", "status"]
    assert RuleCondition({"arguments": {"pages": 1}}).reads(Book) == []
    assert RuleCondition({"renamed": 1}).reads(Tag) == ["id", "name"]
    assert RuleCondition({"pages__gt": {"avg": "price", "where": {"status": "draft"}}}).reads(Book) == [
        "pages",
        "price",
        "status",
    ]


# On arguments


def meets(condition: dict[str, Any], **arguments: Any) -> bool:
    return RuleCondition({"arguments": condition}).arguments_meet(None, arguments)


@pytest.mark.parametrize("amount", [150, "150", " 150.00 ", 150.5, "1.5e2", "1_50", None, "many", "NaN", {}, True])
def test_an_amount_that_is_larger_or_cannot_be_compared_applies(amount: Any) -> None:
    assert meets({"amount__gt": 100}, amount=amount)


@pytest.mark.parametrize("amount", [50, "50", "99.99", "-1e9", 100])
def test_an_amount_that_is_not_larger_does_not_apply(amount: Any) -> None:
    assert not meets({"amount__gt": 100}, amount=amount)
    assert meets({"not": {"amount__gt": 100}}, amount=amount)


def test_what_is_not_given_applies() -> None:
    assert meets({"amount__gt": 100})
    assert meets({"not": {"amount__gt": 100}})
    assert meets({"amount__isnull": True})
    assert not meets({"amount__isnull": False})


def test_forms_and_inner_objects_are_looked_into() -> None:
    assert meets({"amount__gt": 100}, form={"amount": "150"})
    assert meets({"amount__gt": 100}, arguments='{"amount": "150"}')
    assert not meets({"amount__gt": 100}, form={"amount": "50"})
    assert meets({"amount__gt": 100}, amount=5, form={"amount": "150"})
    assert meets({"rows__amount__gt": 100}, rows=[{"amount": 5}, {"amount": 500}])
    assert not meets({"rows__amount__gt": 100}, rows=[{"amount": 5}, {"amount": 50}])
    assert meets({"to": {"country": "PL"}}, to={"country": "pl "})
    assert not meets({"to__country": "PL"}, to={"country": "DE"})
    assert meets({"to__country": "PL"}, to="PL")


@pytest.mark.parametrize(
    ("condition", "value", "expected"),
    [
        ({"x": "refunded"}, " Refunded ", True),
        ({"x": "refunded"}, "paid", False),
        ({"x": ["refunded", "paid"]}, "paid", True),
        ({"x__in": ["refunded", "paid"]}, "new", False),
        ({"x": 5}, "5.0", True),
        ({"x": "5"}, 5, True),
        ({"x": True}, "true", True),
        ({"x": True}, False, False),
        ({"x": True}, "perhaps", True),
        ({"x__range": [1, 5]}, "5", True),
        ({"x__range": [1, 5]}, 6, False),
        ({"x__contains": "b"}, "abc", True),
        ({"x__contains": "B"}, "abc", False),
        ({"x__icontains": "B"}, "abc", True),
        ({"x__startswith": "b"}, "abc", False),
        ({"x__iendswith": "C"}, "abc", True),
        ({"x": None}, "", True),
        ({"x": None}, "a", False),
        ({"x": "a"}, ["b", "a"], True),
        ({"x__gte": "2026-02-01"}, "2026-02-01", True),
        ({"x__gt": "2026-02-01"}, "2026-02-01T12:00:00Z", False),
        ({"x__lt": "2026-02-01"}, "2026-01-31", True),
        ({"x__lt": "today"}, "2020-01-31", True),
        ({"x": "2026-02-01"}, "2026-02-01T12:00:00Z", True),
        ({"x__lt": "today"}, "soon", True),
        ({"or": [{"x": 1}, {"x": 2}]}, 2, True),
        ({"or": [{"x": 1}, {"x": 2}]}, 3, False),
        ({"and": [{"x__gt": 1}, {"x__lt": 3}]}, 2, True),
        ({"x": {"gt": 1, "lt": 3}}, 4, False),
    ],
)
def test_arguments_are_compared_as_they_come(condition: dict[str, Any], value: Any, expected: bool) -> None:
    assert meets(condition, x=value) is expected


def test_a_part_that_is_false_decides_whatever_cannot_be_compared() -> None:
    assert not meets({"x": 1, "y": 1}, x=2)
    assert meets({"or": [{"x": 1}, {"y": 1}]}, x=2)


def test_a_condition_without_a_part_on_arguments_lets_rows_decide() -> None:
    assert RuleCondition({"pages": 1}).arguments_meet(None, {})
    assert RuleCondition().arguments_meet(None, {})


def test_a_function_decides_by_itself_and_one_that_fails_applies(caplog: Any) -> None:
    def is_large(request: Any, arguments: Any) -> bool:
        return bool(arguments["amount"] > 100)

    condition = RuleCondition(function=is_large)
    assert not condition.is_on_rows
    assert condition.arguments_meet(None, {"amount": 200})
    assert not condition.arguments_meet(None, {"amount": 20})
    assert condition.arguments_meet(None, {})
    assert "is_large" in caplog.text


def test_a_generic_relation_is_compared_by_its_columns() -> None:
    book = make_book()
    note = Note.objects.create(target=book, text="refund")
    assert found({"object_id": str(book.pk), "text__contains": "refund"}, Note, note) == [True]


@pytest.mark.skipif(connection.vendor != "mysql", reason="plain reads of other databases show what is locked")
def test_rows_are_read_as_they_were_locked(monkeypatch: Any) -> None:
    monkeypatch.setattr("mcp_django.approvals.conditions.reads_snapshots", lambda using: True)
    book = make_book(pages=7)
    with CaptureQueriesContext(connection) as captured:
        assert found({"pages": 7, "author__name__startswith": "A", "loans": {"count": 0}}, Book, book) == [True]
    assert any("FOR UPDATE" in query["sql"] for query in captured)
