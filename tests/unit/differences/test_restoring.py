"""Differences are taken back byte for byte, or nothing is: and then it is said what stands in the way."""

from collections.abc import Callable, Collection
from datetime import UTC, date, datetime
from typing import Any

import pytest
from django.apps import apps
from django.contrib.contenttypes.models import ContentType
from django.db import connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from mcp_django.differences.footprints import StoredDifference
from mcp_django.differences.restoring import CannotRestore, Conflict, Restoration
from mcp_django.differences.stored_rows import Row, stored_table
from tests.factories import make_author, make_book, make_user
from tests.fieldapp.models import Club, Guest, Membership, Night, Passport, Place, Remark, Restaurant, Seat
from tests.inlineapp.models import Line, Order, Product
from tests.oddapp.models import Bid, Currency, Kind, Task
from tests.testapp.models import AudioBook, Author, Book, Loan, Note, Placement, Profile, Section, Shelf, Tag

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
USING = "default"
APPS = ("testapp", "fieldapp", "oddapp", "inlineapp", "auth", "sitesapp")
TABLES = [
    model
    for app in APPS
    for model in apps.get_app_config(app).get_models(include_auto_created=True)
    if model._meta.managed and not model._meta.proxy
]


def everything(tables: Collection[Any] = ()) -> dict[Any, dict[Any, Row]]:
    """Return all rows of all tables, as they are stored."""
    found = {}
    for model in tables or TABLES:
        keys = list(model._base_manager.values_list("pk", flat=True))
        found[model] = stored_table(model, USING).read("pk", keys)
    return found


def difference_of(write: Callable[[], Any]) -> StoredDifference:
    """Return what a write does, as it is kept."""
    before = everything()
    write()
    stored = StoredDifference.between(USING, before, everything()).to_json()
    return StoredDifference.from_json(stored)


def undo(difference: StoredDifference) -> StoredDifference:
    with transaction.atomic():
        return Restoration(difference).run()


def conflicts(difference: StoredDifference) -> list[Conflict]:
    """Return the conflicts; if some of them stop it, nothing was changed."""
    before = everything()
    with transaction.atomic():
        found = Restoration(difference).conflicts()
        stopping = [conflict for conflict in found if conflict.stops]
        if stopping:
            with pytest.raises(CannotRestore) as refused:
                Restoration(difference).run()
            assert refused.value.conflicts == stopping
    assert everything() == before
    return found


def check_undo_and_redo(write: Callable[[], Any]) -> None:
    before = everything()
    difference = difference_of(write)
    after = everything()
    assert difference
    assert conflicts(difference) == []
    done = undo(difference)
    assert everything() == before
    again = undo(done)
    assert everything() == after
    undo(StoredDifference.from_json(again.to_json()))
    assert everything() == before


def shapes(found: list[Conflict]) -> list[tuple[Any, ...]]:
    """Return what conflicts are about, without keys."""
    return [
        (one.what, one.model._meta.model_name, one.columns, one.other and one.other[0]._meta.model_name)
        for one in found
    ]


@pytest.fixture
def library() -> Book:
    author = make_author(born=date(1929, 10, 21))
    Profile.objects.create(author=author, biography="...")
    owner = make_user("ada")
    book = make_book("One", author=author, owner=owner, blob=b"\x00\xff", data={"a": [1.0]}, rating=0.1)
    book.tags.set([Tag.objects.create(name=name) for name in "ab"])
    audio = AudioBook.objects.create(title="Two", author=author, isbn="2", price=1, narrator="Ada")
    shelf = Shelf.objects.create(code="A/1")
    Placement.objects.create(shelf=shelf, book=book, position=1)
    Placement.objects.create(shelf=shelf, book=audio, position=2)
    Loan.all_objects.create(book=book, borrower="x", due=datetime(2026, 1, 1, tzinfo=UTC))
    Loan.all_objects.create(
        book=book, borrower="hidden", due=datetime(2026, 1, 1, tzinfo=UTC), deleted=datetime(2026, 1, 1, tzinfo=UTC)
    )
    return book


def test_changes_of_cells_are_taken_back(library: Book) -> None:
    def write() -> None:
        Book.objects.filter(pk=library.pk).update(
            title="Other", owner=None, price=2, published=date(2026, 1, 1), rating=None, data=[], blob=b"x"
        )
        Book.objects.exclude(pk=library.pk).update(title="Third", active=False)

    check_undo_and_redo(write)


def test_a_cell_that_was_not_recorded_may_have_changed_since(library: Book) -> None:
    difference = difference_of(lambda: Book.objects.update(title="Other"))
    Book.objects.update(pages=7)
    assert conflicts(difference) == []
    undo(difference)
    assert set(Book.objects.values_list("title", "pages")) == {("One", 7), ("Two", 7)}


def test_a_recorded_cell_that_has_changed_since_stops_all(library: Book) -> None:
    difference = difference_of(lambda: Book.objects.update(title="Other", price=3))
    Book.objects.filter(pk=library.pk).update(title="Third", pages=7)
    (found,) = conflicts(difference)
    assert (found.what, found.model, found.columns) == ("changed", Book, ("title",))


def test_a_deletion_with_all_that_it_takes_along_is_taken_back(library: Book) -> None:
    Loan.all_objects.filter(deleted=None).delete()
    check_undo_and_redo(library.delete)


def test_a_deletion_of_everything_is_taken_back(library: Book) -> None:
    def write() -> None:
        AudioBook.objects.all().delete()
        Loan.all_objects.all().delete()
        Book.objects.all().delete()
        Author.objects.all().delete()
        Shelf.objects.all().delete()

    check_undo_and_redo(write)


def test_new_rows_with_their_parents_and_links_are_deleted(library: Book) -> None:
    def write() -> None:
        author = make_author("New")
        Profile.objects.create(author=author)
        audio = AudioBook.objects.create(title="New", author=author, isbn="3", price=1, narrator="x")
        audio.tags.set(Tag.objects.all())
        Placement.objects.create(shelf=Shelf.objects.create(code="new"), book=audio)

    check_undo_and_redo(write)


def test_links_are_taken_back(library: Book) -> None:
    check_undo_and_redo(lambda: library.tags.set([Tag.objects.create(name="c"), Tag.objects.get(name="a")]))


def test_a_row_that_is_gone_cannot_be_changed_or_deleted() -> None:
    kept, gone = make_author("a"), make_author("b")

    def write() -> None:
        Author.objects.update(email="x@example.com")
        make_author("c")

    difference = difference_of(write)
    Author.objects.exclude(pk=kept.pk).delete()
    assert shapes(conflicts(difference)) == [("gone", "author", (), None)] * 2
    assert gone.pk


def test_a_new_row_that_has_changed_since_is_not_deleted() -> None:
    difference = difference_of(lambda: make_author("a"))
    Author.objects.update(born=date(2000, 1, 1))
    assert shapes(conflicts(difference)) == [("changed", "author", ("born",), None)]


def test_a_key_that_is_taken_stops_it() -> None:
    Shelf.objects.create(code="A")
    difference = difference_of(Shelf.objects.all().delete)
    Shelf.objects.create(code="A")
    assert shapes(conflicts(difference)) == [("taken", "shelf", ("code",), "shelf")]


def test_a_unique_value_that_is_taken_stops_it(library: Book) -> None:
    isbn = library.isbn

    def write() -> None:
        Tag.objects.all().delete()
        Book.objects.filter(pk=library.pk).update(isbn="other")

    difference = difference_of(write)
    Tag.objects.create(name="a")
    other = make_book("Other", author=library.author, isbn=isbn)
    found = conflicts(difference)
    assert shapes(found) == [("taken", "tag", ("name",), "tag"), ("taken", "book", ("isbn",), "book")]
    (key,) = stored_table(Book, USING).read("pk", [other.pk])
    assert found[1].other == (Book, key)


def test_a_unique_combination_of_which_one_column_was_changed(library: Book) -> None:
    placement = Placement.objects.get(book=library)
    difference = difference_of(lambda: Placement.objects.filter(pk=placement.pk).update(position=5))
    Placement.objects.create(shelf=placement.shelf, book=library, position=1)
    assert shapes(conflicts(difference)) == [("taken", "placement", ("shelf_id", "position"), "placement")]


def test_a_row_outside_that_points_to_what_would_go_stops_it(library: Book) -> None:
    difference = difference_of(lambda: make_book("New", author=library.author))
    new = Book.objects.get(title="New")
    Loan.all_objects.create(book=new, borrower="x", due=datetime(2026, 1, 1, tzinfo=UTC), deleted=datetime.now(UTC))
    new.tags.add(Tag.objects.get(name="a"))
    Placement.objects.create(shelf=Shelf.objects.get(), book=new)
    found = conflicts(difference)
    assert sorted(shapes(found)) == [
        ("pointed", "book", ("book_id",), "book_tags"),
        ("pointed", "book", ("book_id",), "loan"),
        ("pointed", "book", ("book_id",), "placement"),
    ]


def test_a_child_that_was_made_of_a_new_row_stops_it() -> None:
    difference = difference_of(lambda: Place.objects.create(name="a"))
    place = Place.objects.get()
    Restaurant(place_ptr=place, cuisine="x").save_base(raw=True)
    assert shapes(conflicts(difference)) == [("pointed", "place", ("place_ptr_id",), "restaurant")]


def test_a_target_that_is_gone_stops_it() -> None:
    one, two = make_author("a"), make_author("b")
    book = make_book(author=one)

    def write() -> None:
        Book.objects.update(author=two)
        Profile.objects.create(author=two)

    difference = difference_of(write)
    one.delete()
    assert shapes(conflicts(difference)) == [("missing", "book", ("author_id",), "author")]
    difference = difference_of(Book.objects.all().delete)
    Author.objects.all().delete()
    assert shapes(conflicts(difference)) == [("missing", "book", ("author_id",), "author")]
    assert book.pk


def test_a_row_that_relates_by_a_generic_relation_is_named(library: Book) -> None:
    def write() -> None:
        Section.objects.create(name="new")
        Guest.objects.create(name="new")
        Term = apps.get_model("fieldapp.term")
        Term.objects.create(word="not a number")

    difference = difference_of(write)
    for model in (Section, Guest):
        kind = ContentType.objects.get_for_model(model)
        Note.objects.create(content_type=kind, object_id=str(model.objects.get().pk), text="x")
        if model is Guest:
            Remark.objects.create(content_type=kind, object_id=model.objects.get().pk, text="x")
    found = conflicts(difference)
    assert {one.what for one in found} == {"related"}
    assert sorted(one.other[0].__name__ for one in found if one.other) == ["Note", "Note", "Remark"]
    undo(difference)
    assert Note.objects.count() == 2
    assert not Guest.objects.exists()


def test_keys_of_several_columns_go_back() -> None:
    guest = Guest.objects.create(name="Ada")
    for number in (1, 2):
        Seat.objects.create(hall="a", number=number, guest=guest)
        Night.objects.create(guest=guest, day=date(2026, 1, number))
    Passport.objects.create(guest=guest, number="1")

    def write() -> None:
        Seat.objects.filter(number=1).update(note="x")
        Seat.objects.filter(number=2).delete()
        Seat.objects.create(hall="b", number=1)
        guest.delete()

    check_undo_and_redo(write)


def test_trees_go_back_in_their_order() -> None:
    root = Section.objects.create(name="root")
    for name in "ab":
        child = Section.objects.create(name=name, parent=root)
        Section.objects.create(name=f"{name}1", parent=child)
    check_undo_and_redo(root.delete)

    def write() -> None:
        new = Section.objects.create(name="new")
        Section.objects.filter(parent=None).exclude(pk=new.pk).update(parent=new)

    check_undo_and_redo(write)


def test_circles_go_back() -> None:
    one, two = Guest.objects.create(name="a"), Guest.objects.create(name="b")
    Guest.objects.filter(pk=one.pk).update(host=two)
    Guest.objects.filter(pk=two.pk).update(host=one)
    alone = Guest.objects.create(name="c")
    Guest.objects.filter(pk=alone.pk).update(host=alone)
    Membership.objects.create(guest=one, club=Club.objects.create(name="x"))

    def write() -> None:
        Guest.objects.update(host=None)
        Guest.objects.all().delete()

    check_undo_and_redo(write)


def test_relations_to_other_columns_than_the_key() -> None:
    euro = Currency.objects.create(code="EUR", number=978, name="Euro")
    Bid.objects.create(name="x", currency=euro, paid_in=euro)
    check_undo_and_redo(euro.delete)

    def write() -> None:
        new = Currency.objects.create(code="XEU", number=954, name="Ecu")
        Bid.objects.update(currency=new, paid_in=None)

    check_undo_and_redo(write)
    difference = difference_of(lambda: Currency.objects.create(code="USD", number=840, name="Dollar"))
    Bid.objects.update(paid_in=840)
    assert shapes(conflicts(difference)) == [("pointed", "currency", ("paid_in_id",), "bid")]


def test_a_row_that_took_the_unique_value_of_another_one_goes_first(library: Book) -> None:
    """The row was deleted, another one was made with its number, and what pointed to it points to that."""
    author, isbn, old = library.author, library.isbn, library.pk

    def write() -> None:
        Book.objects.filter(pk=old).update(isbn="free")
        new = make_book("New", author=author, isbn=isbn)
        Placement.objects.filter(book=old).update(book=new)
        Loan.all_objects.filter(book=old).update(book=new)
        Book.objects.get(pk=old).delete()

    check_undo_and_redo(write)


def test_unique_values_that_were_passed_on_go_back_in_their_order() -> None:
    tags = [Tag.objects.create(name=name) for name in "abc"]

    def write() -> None:
        for tag, name in zip(reversed(tags), "dcb", strict=True):
            Tag.objects.filter(pk=tag.pk).update(name=name)

    check_undo_and_redo(write)


def test_unique_values_that_were_swapped_go_back(library: Book) -> None:
    def write() -> None:
        Placement.objects.filter(position=1).update(position=9)
        Placement.objects.filter(position=2).update(position=1)
        Placement.objects.filter(position=9).update(position=2)
        names = list(Tag.objects.values_list("name", flat=True))
        Tag.objects.filter(name=names[0]).update(name="free")
        Tag.objects.filter(name=names[1]).update(name=names[0])
        Tag.objects.filter(name="free").update(name=names[1])

    check_undo_and_redo(write)


def test_the_time_of_the_last_change_is_not_compared() -> None:
    """It goes back with the rest, unless another change has set it since."""
    order = Order.objects.create(number="1")
    line, other = (Line.objects.create(order=order, product=Product.objects.create(name=name)) for name in "ab")

    def write() -> None:
        for row in (line, other):
            row.quantity = 5
            row.save()

    before = everything()[Line]
    difference = difference_of(write)
    since = datetime(2030, 1, 1, tzinfo=UTC)
    Line.objects.filter(pk=other.pk).update(updated=since)
    assert conflicts(difference) == []
    undo(difference)
    (key,) = stored_table(Line, USING).read("pk", [line.pk])
    assert everything()[Line][key] == before[key]
    other.refresh_from_db()
    assert (other.quantity, other.updated) == (1, since)


def test_two_statements_for_a_table_are_enough(library: Book) -> None:
    for number in range(20):
        make_book(f"{number}", author=library.author)

    def write() -> None:
        for book in Book.objects.filter(pages=0):
            Book.objects.filter(pk=book.pk).update(price=book.pk % 1000 + 1)

    # Each table is asked once whether it has triggers.
    assert not any(stored_table(model, USING).columns.has_triggers for model in (Book, Loan))
    difference = difference_of(write)
    with transaction.atomic(), CaptureQueriesContext(connection) as queries:
        Restoration(difference).run()
    assert len(queries) == 2
    difference = difference_of(Loan.all_objects.all().delete)
    with transaction.atomic(), CaptureQueriesContext(connection) as queries:
        Restoration(difference).run()
    # The books to which they point are looked for.
    assert len(queries) == 3


def test_rows_go_back_in_a_transaction_only() -> None:
    difference = difference_of(lambda: make_author("a"))
    connection.in_atomic_block = False
    try:
        with pytest.raises(transaction.TransactionManagementError):
            Restoration(difference).run()
    finally:
        connection.in_atomic_block = True
    assert Author.objects.exists()


def test_links_between_rows_of_one_model_go_back() -> None:
    one, two = Guest.objects.create(name="a"), Guest.objects.create(name="b")
    one.friends.add(two)
    check_undo_and_redo(one.delete)


def test_a_pointer_that_nobody_keeps_whole_stops_nothing() -> None:
    """A column with ``DO_NOTHING`` and without a constraint may point to nothing."""
    kind = Kind.objects.create(name="a")
    Task.objects.create(name="x", parent=kind)
    difference = difference_of(Task.objects.all().delete)
    kind.delete()
    assert conflicts(difference) == []
    undo(difference)
    assert Task.objects.get().parent_id
    difference = difference_of(lambda: Kind.objects.create(name="b"))
    Task.objects.update(parent=Kind.objects.get().pk)
    assert conflicts(difference) == []


class Elsewhere:
    """Loans are in another database."""

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "elsewhere" if model is Loan else None


def test_tables_of_other_databases_are_not_asked(library: Book) -> None:
    difference = difference_of(lambda: make_book("New", author=library.author))
    Loan.all_objects.create(book=Book.objects.get(title="New"), borrower="x", due=datetime(2026, 1, 1, tzinfo=UTC))
    assert shapes(conflicts(difference)) == [("pointed", "book", ("book_id",), "loan")]
    with override_settings(DATABASE_ROUTERS=[Elsewhere()]), CaptureQueriesContext(connection) as queries:
        assert Restoration(difference).conflicts() == []
    assert not any("testapp_loan" in query["sql"] for query in queries)
