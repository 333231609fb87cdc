"""What a footprint tells of a write is what has happened in all tables, also behind Django's back."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, connections, models, transaction

from mcp_django.differences.cascades import TooManyRows
from mcp_django.differences.footprints import Footprint, StoredDifference
from mcp_django.differences.restoring import Restoration
from tests.factories import make_book
from tests.fieldapp.models import Guest, Night, Restaurant, Seat
from tests.project.test_work import calls_of
from tests.testapp.models import AudioBook, Author, Book, Loan, PublishedBook
from tests.unit.differences.all_rows import changes_of, changing, dump, tables_of
from tests.unit.differences.forest import (
    Branch,
    Elm,
    Mushroom,
    RedOak,
    first,  # noqa: F401
    forest,  # noqa: F401
    grow,
    plant,
    registry,
    tables,
)

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
MODELS: Any = registry.all_models["testapp"]
APPS = tables_of("testapp", "fieldapp", "inlineapp")
FOREST = pytest.mark.usefixtures("first")


def check(
    name: Callable[[Footprint], None], write: Callable[[], None], among: Any = (), *, is_unsure: bool = False
) -> StoredDifference:
    """Do a write; what its footprint tells must be what has happened in all tables. Return the difference."""
    footprint = Footprint("default")
    name(footprint)
    were = dump(among or APPS)
    with changing(among or APPS) as happened:
        footprint.before()
        with footprint.watching():
            write()
        difference = footprint.after()
    assert not footprint.unsure or is_unsure
    assert changes_of(difference) == happened
    assert happened.keys() <= footprint.tables

    # Taken back, all rows are as they were.
    with transaction.atomic():
        Restoration(difference).run()
        assert dump(among or APPS) == were
        transaction.set_rollback(True)
    return difference


# One row


def test_a_changed_row_has_the_columns_that_differ_and_its_key() -> None:
    book = make_book("Old", pages=1)

    def write() -> None:
        Book.objects.filter(pk=book.pk).update(title="New", pages=2)

    difference = check(lambda footprint: footprint.add_row(book), write)
    [(key, (before, after))] = difference.changes[Book].items()
    assert before is not None
    assert after is not None
    shown = [(str(old), str(new)) for old, new in zip(before, after, strict=True) if old is not None or new is not None]
    assert sorted(shown) == sorted([(str(book.pk),) * 2, ("Old", "New"), ("1", "2")])
    assert difference.counts() == {Book: {"changed": 1, "added": 0, "deleted": 0}}
    assert list(difference.keys(Book)) == list(difference.keys(PublishedBook)) == [key]
    assert list(difference.keys(Author)) == []
    assert difference.reversed().changes == {Book: {key: (after, before)}}
    assert difference


def test_a_write_that_does_nothing_has_no_difference() -> None:
    book = make_book()
    difference = check(lambda footprint: footprint.add_row(book), book.save)
    assert not difference
    assert difference.counts() == {}


def test_a_hook_that_writes_past_the_instance_is_seen() -> None:
    book = make_book("Old")

    def write() -> None:
        book.title = "New"
        book.save()
        Book.objects.filter(pk=book.pk).update(title="Hook", rating=3.5)

    difference = check(lambda footprint: footprint.add_row(book), write)
    assert changes_of(difference)["testapp_book"] == {str(book.pk): {"title", "rating"}}


def test_a_row_of_several_tables_has_each_of_its_parts() -> None:
    book = make_book()
    audio = AudioBook(book_ptr=book, narrator="A")
    audio.save_base(raw=True)
    audio = AudioBook.objects.get()

    def write() -> None:
        AudioBook.objects.update(narrator="B", title="New")

    difference = check(lambda footprint: footprint.add_row(audio), write)
    assert difference.changes.keys() == {AudioBook, Book}

    # The part in the parent's table is all that the parent's page writes.
    difference = check(
        lambda footprint: footprint.add_row(Book.objects.get()), lambda: AudioBook.objects.update(title="B") and None
    )
    assert difference.changes.keys() == {Book}


@FOREST
def test_parents_are_found_by_their_links() -> None:
    _, elm = grow(1)

    def write() -> None:
        RedOak.objects.update(name="A", acorns=9, red="B")
        Elm.objects.update(name="C")

    def both(footprint: Footprint) -> None:
        footprint.add_row(RedOak.objects.get())
        footprint.add_row(elm)

    difference = check(both, write, tables())
    assert {model.__name__: len(rows) for model, rows in difference.changes.items()} == {
        **{"RedOak": 1, "Oak": 1, "Tree": 2},
    }


def test_a_proxy_is_a_row_of_its_table_even_where_its_manager_hides_it() -> None:
    proxy = PublishedBook(make_book().pk)
    difference = check(
        lambda footprint: footprint.add_row(proxy), lambda: Book.objects.update(title="New", status="draft") and None
    )
    assert difference.changes.keys() == {Book}


def test_rows_that_a_manager_hides_are_read() -> None:
    loan = Loan.objects.create(book=make_book(), borrower="A", due="2026-01-01T00:00:00Z")
    difference = check(
        lambda footprint: footprint.add_row(loan),
        lambda: Loan.all_objects.update(deleted="2026-01-01T00:00:00Z") and None,
    )
    assert changes_of(difference) == {"testapp_loan": {str(loan.pk): {"deleted"}}}


def test_composite_keys() -> None:
    guest = Guest.objects.create(name="G")
    seat = Seat.objects.create(hall="A", number=1)
    night = Night.objects.create(guest=guest, day="2026-01-02")

    def write() -> None:
        Seat.objects.filter(hall="A").update(note="N", guest=guest)
        Night.objects.update(price=5)

    def both(footprint: Footprint) -> None:
        footprint.add_row(seat)
        footprint.add_row(Night.objects.get(pk=night.pk))

    check(both, write)


def test_a_key_that_changes_is_a_row_that_goes_and_another_that_comes() -> None:
    seat = Seat.objects.create(hall="A", number=1)

    def name(footprint: Footprint) -> None:
        footprint.add_row(seat)
        footprint.add(Seat, "hall", ["A"])

    difference = check(name, lambda: Seat.objects.update(number=2) and None, is_unsure=True)
    assert difference.counts()[Seat] == {"changed": 0, "added": 1, "deleted": 1}


def test_a_new_row_is_read_once_it_is_there() -> None:
    made = Restaurant(name="R", cuisine="C")
    footprint = Footprint("default")
    with changing(APPS) as happened:
        footprint.before()
        made.save()
        footprint.created(made)
        difference = footprint.after()
    assert changes_of(difference) == happened
    assert set(happened) == {"fieldapp_restaurant", "fieldapp_place"}
    assert {kind for kinds in difference.counts().values() for kind, number in kinds.items() if number} == {"added"}


def test_what_was_made_by_one_step_is_new_for_the_next_ones() -> None:
    old = Guest.objects.create(name="old")
    footprint = Footprint("default")
    with changing(APPS) as happened:
        # The first step makes a row and changes another one.
        footprint.add_row(old)
        footprint.before()
        new = Guest.objects.create(name="new", host=old)
        footprint.created(new)
        Guest.objects.filter(pk=old.pk).update(name="older")

        # The second one writes both again, and a third.
        third = Guest.objects.create(name="third")
        footprint.created(third)
        for guest in (old, new, third):
            footprint.add_row(guest)
        footprint.before()
        Guest.objects.update(name="same")
        difference = footprint.after()
    assert changes_of(difference) == happened
    assert happened["fieldapp_guest"] == {str(old.pk): {"name"}, str(new.pk): "added", str(third.pk): "added"}


# Rows that hang on others


@FOREST
def test_a_row_that_no_longer_hangs_where_it_did_is_read_by_its_key(django_assert_num_queries: Any) -> None:
    tree, other = plant(1), plant(2)
    moved, gone = Branch.objects.filter(tree=tree)
    footprint = Footprint("default")
    footprint.add(Branch, "tree_id", [tree.pk])
    with django_assert_num_queries(1):
        footprint.before()
    with changing(tables()) as happened:
        Branch.objects.filter(pk=moved.pk).update(tree=other)
        gone.leaf_set.all().delete()
        Branch.objects.filter(pk=gone.pk).delete()
        added = Branch.objects.create(tree=tree)
        with django_assert_num_queries(1):
            difference = footprint.after()
    assert changes_of(difference)["forest_branch"] == happened["forest_branch"]
    assert set(happened["forest_branch"]) == {row.pk.hex for row in (moved, gone, added)}


@FOREST
def test_a_deletion_with_everything_that_hangs_on_a_row() -> None:
    tree = plant(1)
    difference = check(lambda footprint: footprint.add_deletion([tree]), lambda: tree.delete() and None, tables())
    assert difference.counts()[Mushroom]["deleted"] == 2

    oak, _ = grow(1)
    check(lambda footprint: footprint.add_deletion([oak]), lambda: oak.delete() and None, tables())


@pytest.mark.skipif("well" not in MODELS, reason="Django 6.1 lets the database delete rows")
def test_what_the_database_itself_deletes_and_changes() -> None:
    well, bucket, drop, rope = (MODELS[name] for name in ("well", "bucket", "drop", "rope"))
    well.objects.create(pk=1, name="shallow")
    deep = well.objects.create(pk=2, name="deep")
    for hidden in (False, True):
        drop.objects.create(bucket_id=bucket.objects.create(well=deep, hidden=hidden).pk)
    for model in [rope, *([MODELS["pump"]] if "pump" in MODELS else [])]:
        model.objects.create(well=deep)
    difference = check(lambda footprint: footprint.add_deletion([deep]), lambda: deep.delete() and None, tables())
    assert difference.counts()[bucket]["deleted"] == difference.counts()[drop]["deleted"] == 2
    assert difference.counts()[rope]["changed"] == 1


@FOREST
def test_what_is_left_to_the_project_is_named() -> None:
    tree = plant(1)
    footprint = Footprint("default")
    footprint.add_deletion([tree])
    assert footprint.left == {"testapp.Ghost.tree"}
    assert "forest_leaf" in footprint.tables


@FOREST
def test_each_table_costs_two_statements_however_many_rows(django_assert_num_queries: Any) -> None:
    trees = [plant(number) for number in range(1, 4)]
    footprint = Footprint("default")
    footprint.add_deletion(trees)
    with_rows = sum(1 for rows in footprint._roots.values() if any(rows.values()))
    with django_assert_num_queries(with_rows):
        footprint.before()
    with django_assert_num_queries(with_rows):
        assert not footprint.after()


# Bounds and databases


def test_more_rows_than_are_kept_are_refused_before_the_write(settings: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "MAX_BULK_ROWS": 1}
    author = make_book().author
    for number in range(9):
        make_book(f"B{number}", author=author)
    footprint = Footprint("default")
    footprint.add(Book, "author_id", [author.pk])
    footprint.before()
    make_book("More", author=author)
    footprint = Footprint("default")
    footprint.add(Book, "author_id", [author.pk])
    with pytest.raises(TooManyRows):
        footprint.before()


class LoansElsewhere:
    """A router that keeps one model on another database."""

    def db_for_write(self, model: type[models.Model], **hints: Any) -> str | None:
        return "elsewhere" if model is Loan else None


def test_rows_of_other_databases_are_left_out(settings: Any) -> None:
    settings.DATABASE_ROUTERS = [LoansElsewhere()]
    footprint = Footprint("default")
    loan = Loan(pk=1)
    footprint.add_row(loan)
    footprint.created(loan)
    assert footprint.tables == frozenset()
    footprint.before()
    assert not footprint.after()


@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="has no locks of rows")
def test_rows_are_locked_by_the_query_that_reads_them(django_assert_num_queries: Any) -> None:
    book = make_book()
    footprint = Footprint("default")
    footprint.add_row(book)
    with django_assert_num_queries(1) as made:
        footprint.before()
    assert "FOR UPDATE" in made.captured_queries[0]["sql"]


@pytest.mark.skipif("connection.vendor != 'mysql'", reason="reads what was committed")
@pytest.mark.parametrize(("level", "locks"), [("read committed", False), ("repeatable read", True)])
def test_rows_are_read_again_as_they_were_locked(
    level: str, locks: bool, monkeypatch: Any, django_assert_num_queries: Any
) -> None:
    monkeypatch.setattr(connections["default"], "isolation_level", level)
    footprint = Footprint("default")
    footprint.add_row(make_book())
    footprint.before()
    with django_assert_num_queries(1) as made:
        footprint.after()
    assert ("FOR UPDATE" in made.captured_queries[0]["sql"]) is locks


# Cost


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="other drivers are more functions")
def test_both_reads_of_a_changed_row_are_few_calls_of_functions() -> None:
    author = make_book().author

    def act() -> None:
        footprint = Footprint("default")
        footprint.add_row(author)
        footprint.before()
        footprint.after()

    connection.ensure_connection()
    made = calls_of(act)
    assert made <= 250, made
