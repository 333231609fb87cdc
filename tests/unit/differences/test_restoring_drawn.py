"""Random writes are taken back byte for byte; after random changes in between, all goes back or nothing does."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from random import Random
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.utils import IntegrityError

from mcp_django.differences.footprints import StoredDifference
from mcp_django.differences.restoring import Conflict, Restoration
from mcp_django.differences.stored_rows import Key, Row, stored_table
from tests.cases import drawn
from tests.fieldapp.models import Club, Guest, Membership, Night, Passport, Place, Remark, Restaurant, Seat
from tests.oddapp.models import Bid, Currency
from tests.testapp.models import AudioBook, Author, Book, Loan, Placement, Profile, Section, Shelf, Tag

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
USING = "default"
MODELS: list[Any] = [
    *(Guest, Club, Membership, Passport, Place, Restaurant, Seat, Night, Remark, Guest.friends.through),
    *(Currency, Bid, Author, Profile, Tag, Book, Book.tags.through, AudioBook, Shelf, Placement, Loan, Section),
]
Tables = dict[Any, dict[Key, Row]]


class Refused(Exception):
    """The database does not take a drawn write."""


class World:
    """Rows that random writes are about."""

    def __init__(self, number: int) -> None:
        self.random = Random(number)
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"n{self.count}"

    def one(self, model: Any) -> Any:
        rows = list(model._base_manager.order_by("pk"))
        return self.random.choice(rows) if rows else None

    def fill(self, rows: int) -> None:
        for _ in range(rows):
            self.add()

    def add(self) -> None:
        name = self.fresh()
        makers: list[Callable[[], Any]] = [
            lambda: Guest.objects.create(name=name, host=self.one(Guest)),
            lambda: Club.objects.create(name=name),
            lambda: Membership.objects.create(guest=self.one(Guest), club=self.one(Club)),
            lambda: Passport.objects.get_or_create(guest=self.one(Guest), defaults={"number": name}),
            lambda: Restaurant.objects.create(name=name, cuisine=name),
            lambda: Seat.objects.create(hall=name, number=self.count, guest=self.one(Guest)),
            lambda: Night.objects.create(guest=self.one(Guest), day=date.fromordinal(738000 + self.count)),
            lambda: self.one(Guest).friends.add(self.one(Guest)),
            lambda: Currency.objects.create(code=f"{self.count:03}", number=self.count, name=name),
            lambda: Bid.objects.create(name=name, currency=self.one(Currency), paid_in=self.one(Currency)),
            lambda: Author.objects.create(name=name),
            lambda: Profile.objects.get_or_create(author=self.one(Author)),
            lambda: Tag.objects.create(name=name),
            lambda: Book.objects.create(title=name, author=self.one(Author), isbn=name, price=1),
            lambda: AudioBook.objects.create(title=name, author=self.one(Author), isbn=name, price=1, narrator=name),
            lambda: self.one(Book).tags.add(self.one(Tag)),
            lambda: Shelf.objects.create(code=name),
            lambda: Placement.objects.create(shelf=self.one(Shelf), book=self.one(Book), position=self.count),
            lambda: Loan.all_objects.create(book=self.one(Book), borrower=name, due=datetime(2026, 1, 1, tzinfo=UTC)),
            lambda: Section.objects.create(name=name, parent=self.one(Section)),
        ]
        self.attempt(self.random.choice(makers))

    def change(self) -> None:
        name = self.fresh()
        changes: list[Callable[[], Any]] = [
            lambda: self.set(Guest, host=self.one(Guest)),
            lambda: self.set(Guest, name=name, host=None),
            lambda: self.set(Book, author=self.one(Author), title=name),
            lambda: self.set(Book, isbn=name, rating=0.1, blob=b"\x00\xff"),
            lambda: self.swap(Book, "isbn"),
            lambda: self.swap(Tag, "name"),
            lambda: self.swap(Placement, "position"),
            lambda: self.swap(Profile, "author_id"),
            lambda: self.set(Bid, paid_in=self.one(Currency), currency=self.one(Currency)),
            lambda: self.set(Placement, shelf=self.one(Shelf)),
            lambda: self.set(Loan, book=self.one(Book), deleted=datetime(2026, 1, 1, tzinfo=UTC)),
            lambda: self.set(Section, parent=self.one(Section)),
            lambda: self.set(Seat, guest=self.one(Guest), note=name),
            lambda: self.set(Restaurant, cuisine=name),
            lambda: self.set(Currency, name=name),
        ]
        self.attempt(self.random.choice(changes))

    def set(self, model: Any, **values: Any) -> None:
        model._base_manager.filter(pk=self.one(model).pk).update(**values)

    def swap(self, model: Any, name: str) -> None:
        """Swap a unique value of two rows, or hand it to a new row in place of the old one."""
        one, two = self.one(model), self.one(model)
        first, second = getattr(one, name), getattr(two, name)
        free: Any = 30_000 + self.count if isinstance(first, int) else f"free{self.count}"
        if name == "author_id":
            free = Author.objects.create(name="free").pk
        for row, value in ((one, free), (two, first), (one, second)):
            model._base_manager.filter(pk=row.pk).update(**{name: value})

    def replace(self) -> None:
        """Make a row with the unique value of another one, which goes; what points to that points to it."""
        book = self.one(Book)
        isbn = book.isbn
        Book.objects.filter(pk=book.pk).update(isbn=self.fresh())
        new = Book.objects.create(title="new", author=book.author, isbn=isbn, price=1)
        for model in (Loan, Placement, Book.tags.through):
            model._base_manager.filter(book=book).update(book=new)
        Book.objects.get(pk=book.pk).delete()

    def delete(self) -> None:
        row = self.one(self.random.choice([Guest, Club, Book, AudioBook, Currency, Shelf, Section, Tag, Author, Seat]))
        self.attempt(row.delete)

    def attempt(self, write: Callable[[], Any]) -> None:
        """Do a write, unless its rows are not there or it is refused."""
        try:
            with transaction.atomic():
                write()
        except (AttributeError, ValueError, IntegrityError):
            pass
        except Exception as error:
            if type(error).__name__ != "ProtectedError":
                raise

    def step(self) -> None:
        kind = self.random.choice([self.add, self.change, self.change, self.delete, self.replace])
        self.attempt(kind)


def everything() -> Tables:
    found = {}
    for model in MODELS:
        keys = list(model._base_manager.values_list("pk", flat=True))
        found[model] = stored_table(model, USING).read("pk", keys)
    return found


def undo(difference: StoredDifference) -> StoredDifference:
    with transaction.atomic():
        done = Restoration(difference).run()
        if connection.features.can_defer_constraint_checks:
            connection.check_constraints()
    return done


@pytest.mark.parametrize("number", range(drawn(40)))
def test_drawn_writes_are_taken_back_and_done_again(number: int) -> None:
    world = World(number)
    world.fill(30)
    before = everything()
    for _ in range(world.random.randint(1, 8)):
        world.step()
    after = everything()
    difference = StoredDifference.between(USING, before, after)
    difference = StoredDifference.from_json(difference.to_json())
    done = undo(difference)
    assert everything() == before
    undo(done)
    assert everything() == after


@pytest.mark.parametrize("number", range(1000, 1000 + drawn(40)))
def test_after_drawn_changes_in_between_all_goes_back_or_nothing(number: int) -> None:
    world = World(number)
    world.fill(12)
    before = everything()
    for _ in range(world.random.randint(1, 4)):
        world.step()
    after = everything()
    difference = StoredDifference.between(USING, before, after)
    for _ in range(world.random.randint(4, 12)):
        world.step()
    since = everything()

    with transaction.atomic():
        found = Restoration(difference).conflicts()
    assert everything() == since
    stopping = [conflict for conflict in found if conflict.stops]
    for conflict in stopping:
        check_reason(conflict, after, since)
    if stopping:
        return
    undo(difference)
    now = everything()
    between = StoredDifference.between(USING, after, since)
    for model in MODELS:
        for key in before[model].keys() | now[model].keys():
            if key not in difference.changes.get(model, {}):
                # What the difference does not have stays as it is.
                assert now[model].get(key) == since[model].get(key)
            elif key not in between.changes.get(model, {}):
                assert now[model].get(key) == before[model].get(key)


def check_reason(conflict: Conflict, after: Tables, since: Tables) -> None:
    """Assert that what is said to stand in the way came since the write."""
    table = stored_table(conflict.model, USING)
    key, rows = conflict.key, since[conflict.model]
    if conflict.what == "gone":
        assert key not in rows
    elif conflict.what == "changed":
        old, new = after[conflict.model][key], rows[key]
        assert all(table.cell_of(old, name) != table.cell_of(new, name) for name in conflict.columns)
    elif conflict.what == "missing":
        assert conflict.other
        assert since[conflict.other[0]].keys() != after[conflict.other[0]].keys()
    else:
        # Another row, or another value of it.
        assert conflict.other
        other, other_key = conflict.other
        assert since[other][other_key] != after[other].get(other_key)
