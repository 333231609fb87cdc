"""What databases do with rows by themselves: rules of foreign keys, constraints of all kinds, triggers."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any

import django
import pytest
from django.db import IntegrityError, connection, models, transaction
from django.test.utils import isolate_apps

from mcp_django.differences.footprints import StoredDifference
from mcp_django.differences.restoring import CannotRestore, Conflict, Restoration
from mcp_django.differences.stored_rows import stored_table

# MySQL ends a transaction with each statement that makes a table.
pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]
USING = "default"


@contextmanager
def tables(*made: Any) -> Iterator[None]:
    """Make the tables of models, and drop them."""
    with connection.schema_editor() as editor:
        for model in made:
            editor.create_model(model)
    try:
        yield
    finally:
        if connection.vendor == "mysql":
            with connection.cursor() as cursor:
                cursor.execute("SET foreign_key_checks = 0")
        with connection.schema_editor() as editor:
            for model in reversed(made):
                editor.delete_model(model)
        if connection.vendor == "mysql":
            with connection.cursor() as cursor:
                cursor.execute("SET foreign_key_checks = 1")


def everything(*made: Any) -> dict[Any, Any]:
    found = {}
    for model in made:
        keys = list(model._base_manager.values_list("pk", flat=True))
        found[model] = stored_table(model, USING).read("pk", keys)
    return found


def undo(difference: StoredDifference) -> StoredDifference:
    with transaction.atomic():
        return Restoration(difference).run()


def conflicts(difference: StoredDifference) -> list[Conflict]:
    with transaction.atomic():
        return Restoration(difference).conflicts()


@isolate_apps("tests.testapp")
def test_two_tables_that_point_to_each_other() -> None:
    class Team(models.Model):
        name = models.CharField(max_length=20)
        captain: Any = models.ForeignKey("Player", models.SET_NULL, null=True, related_name="+")

        class Meta:
            app_label = "testapp"

    class Player(models.Model):
        name = models.CharField(max_length=20)
        team = models.ForeignKey(Team, models.CASCADE, related_name="players")

        class Meta:
            app_label = "testapp"

    with tables(Team, Player):
        for number in range(3):
            team = Team.objects.create(name=f"{number}")
            players = [Player.objects.create(name=f"{number}{name}", team=team) for name in "ab"]
            Team.objects.filter(pk=team.pk).update(captain=players[1])
        before = everything(Team, Player)
        Team.objects.update(captain=None)
        Team.objects.all().delete()
        after = everything(Team, Player)
        difference = StoredDifference.between(USING, before, after)
        done = undo(difference)
        assert everything(Team, Player) == before
        undo(done)
        assert everything(Team, Player) == after


@isolate_apps("tests.testapp")
def test_a_circle_without_null() -> None:
    """Where foreign keys are checked at the end, two rows may need each other; elsewhere there are no such rows."""

    class Left(models.Model):
        right: Any = models.ForeignKey("Right", models.CASCADE, related_name="+")

        class Meta:
            app_label = "testapp"

    class Right(models.Model):
        left = models.ForeignKey(Left, models.CASCADE, related_name="+")

        class Meta:
            app_label = "testapp"

    if not connection.features.can_defer_constraint_checks:
        rows = {Left: {(1,): ((1, 1), None)}, Right: {(1,): ((1, 1), None)}}
        with tables(Left, Right):
            (found,) = conflicts(StoredDifference(USING, rows))
            assert found.what == "swapped"
        return
    with tables(Left, Right):
        with transaction.atomic():
            Left.objects.create(pk=1, right_id=2)
            Right.objects.create(pk=2, left_id=1)
        before = everything(Left, Right)
        Left.objects.all().delete()
        difference = StoredDifference.between(USING, before, everything(Left, Right))
        undo(undo(undo(difference)))
        assert everything(Left, Right) == before


@pytest.mark.skipif(django.VERSION < (6, 1), reason="needs the rules of the database of Django 6.1")
@isolate_apps("tests.testapp")
def test_rows_that_the_database_deletes_by_itself() -> None:
    class Album(models.Model):
        name = models.CharField(max_length=20)

        class Meta:
            app_label = "testapp"

    class Song(models.Model):
        album = models.ForeignKey(Album, models.DB_CASCADE, related_name="songs")  # type: ignore[attr-defined]
        name = models.CharField(max_length=20)

        class Meta:
            app_label = "testapp"

    class Review(models.Model):
        album = models.ForeignKey(
            Album,
            models.DB_SET_NULL,  # type: ignore[attr-defined]
            null=True,
            related_name="+",
        )

        class Meta:
            app_label = "testapp"

    made = (Album, Song, Review)
    with tables(*made):
        album = Album.objects.create(name="a")
        key = album.pk
        Song.objects.create(album=album, name="one")
        Song.objects.create(album=album, name="two")
        Review.objects.create(album=album)
        before = everything(*made)
        album.delete()
        after = everything(*made)
        assert not after[Song]
        difference = StoredDifference.between(USING, before, after)
        done = undo(difference)
        assert everything(*made) == before

        # What is taken back deletes the rows of the difference and no others.
        new = Song.objects.create(album_id=key, name="three")
        with pytest.raises(CannotRestore) as refused:
            undo(done)
        (found,) = refused.value.conflicts
        assert (found.what, found.columns, found.other) == ("pointed", ("album_id",), (Song, stored_key(new)))
        assert Song.objects.count() == 3
        new.delete()
        undo(done)
        assert everything(*made) == after


def stored_key(row: models.Model) -> Any:
    (key,) = stored_table(type(row), USING).read("pk", [row.pk])
    return key


@isolate_apps("tests.testapp")
def test_unique_values_of_every_kind() -> None:
    class Slot(models.Model):
        day = models.DateField(unique=True)
        rank = models.IntegerField(unique=True, null=True)
        code = models.CharField(max_length=20, db_column="odd code")
        active = models.BooleanField(default=True)
        doubled = models.GeneratedField(
            expression=models.F("rank") * 2, output_field=models.IntegerField(null=True), db_persist=True, unique=True
        )

        class Meta:
            app_label = "testapp"
            db_table = "slots of a day"
            if connection.vendor != "mysql":
                constraints = (
                    models.UniqueConstraint(
                        fields=["code"], condition=models.Q(active=True), name="one_active_slot_of_a_code"
                    ),
                )

    with tables(Slot):
        days = [date(2026, 1, day) for day in (1, 2, 3)]
        slots = [Slot.objects.create(day=day, rank=day.day, code=f"{day.day}") for day in days]

        # A nullable one is NULL meanwhile.
        before = everything(Slot)
        Slot.objects.filter(pk=slots[0].pk).update(rank=None)
        Slot.objects.filter(pk=slots[1].pk).update(rank=1)
        Slot.objects.filter(pk=slots[0].pk).update(rank=2)
        undo(StoredDifference.between(USING, before, everything(Slot)))
        assert everything(Slot) == before

        # Of a day, no other value is known to be free.
        Slot.objects.filter(pk=slots[0].pk).update(day=date(2027, 1, 1))
        Slot.objects.filter(pk=slots[1].pk).update(day=days[0])
        Slot.objects.filter(pk=slots[0].pk).update(day=days[1])
        (found,) = conflicts(StoredDifference.between(USING, before, everything(Slot)))
        assert (found.what, found.columns) == ("swapped", ("day",))

        # A condition is known to the database alone, which refuses.
        if connection.vendor != "mysql":
            before = everything(Slot)
            Slot.objects.filter(pk=slots[2].pk).update(code="free")
            difference = StoredDifference.between(USING, before, everything(Slot))
            Slot.objects.create(day=date(2028, 1, 1), code="3")
            assert conflicts(difference) == []
            with pytest.raises(IntegrityError):
                undo(difference)
            Slot.objects.filter(code="3").update(active=False)
            undo(difference)
            assert Slot.objects.filter(code="3").count() == 2


@pytest.mark.skipif(connection.vendor != "postgresql", reason="needs constraints that are checked at the end")
@isolate_apps("tests.testapp")
def test_unique_values_that_are_checked_at_the_end_are_swapped() -> None:
    class Step(models.Model):
        day = models.DateField()

        class Meta:
            app_label = "testapp"
            constraints = (
                models.UniqueConstraint(fields=["day"], name="one_step_a_day", deferrable=models.Deferrable.DEFERRED),
            )

    with tables(Step):
        one, two = Step.objects.create(day=date(2026, 1, 1)), Step.objects.create(day=date(2026, 1, 2))
        before = everything(Step)
        with transaction.atomic():
            Step.objects.filter(pk=one.pk).update(day=two.day)
            Step.objects.filter(pk=two.pk).update(day=one.day)
        undo(StoredDifference.between(USING, before, everything(Step)))
        assert everything(Step) == before


@isolate_apps("tests.testapp")
def test_a_parent_link_that_is_not_the_key_and_a_key_of_several_columns_with_relations() -> None:
    class Event(models.Model):
        name = models.CharField(max_length=20)

        class Meta:
            app_label = "testapp"

    class Concert(Event):
        code = models.CharField(max_length=20, primary_key=True)

        class Meta:
            app_label = "testapp"

    class Ticket(models.Model):
        pk = models.CompositePrimaryKey("concert", "number")
        concert = models.ForeignKey(Concert, models.CASCADE, related_name="tickets")
        number = models.IntegerField()
        before = models.IntegerField(null=True)

        class Meta:
            app_label = "testapp"

    made = (Event, Concert, Ticket)
    with tables(*made):
        concert = Concert.objects.create(code="a", name="A")
        for number in range(3):
            Ticket.objects.create(concert=concert, number=number)
        before = everything(*made)
        Ticket.objects.filter(number=1).update(before=1)
        concert.delete()
        after = everything(*made)
        assert not after[Event]
        difference = StoredDifference.between(USING, before, after)
        done = undo(difference)
        assert everything(*made) == before
        undo(done)
        assert everything(*made) == after


@isolate_apps("tests.testapp")
def test_a_key_in_other_letters_is_the_same_where_the_database_says_so() -> None:
    """MySQL compares texts without case: a row may point to another one in other letters."""

    class Word(models.Model):
        text = models.CharField(max_length=20, primary_key=True)
        root: Any = models.ForeignKey("self", models.CASCADE, null=True, related_name="+")

        class Meta:
            app_label = "testapp"

    with tables(Word):
        Word.objects.create(text="Go")
        Word.objects.create(text="going", root_id="GO" if connection.vendor == "mysql" else "Go")
        before = everything(Word)
        difference = StoredDifference.between(USING, before, {Word: {}})
        Word.objects.all().delete()
        Word.objects.create(text="GO" if connection.vendor == "mysql" else "Go")
        assert [one.what for one in conflicts(difference)] == ["taken"]
        Word.objects.all().delete()
        assert conflicts(difference) == []
        done = undo(difference)
        assert everything(Word) == before
        Word.objects.create(text="gone", root_id="gO" if connection.vendor == "mysql" else "Go")
        assert [one.what for one in conflicts(done)] == ["pointed"]


# Statements that make a trigger for the updates of a table: {of} is for which columns, {to} what it sets.
TRIGGERS = {
    "sqlite": ["CREATE TRIGGER mine AFTER UPDATE{of} ON {table} BEGIN UPDATE {table} SET {to} WHERE id = NEW.id; END"],
    "postgresql": [
        "CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF pg_trigger_depth() = 1 THEN "
        "UPDATE {table} SET {to} WHERE id = NEW.id; END IF; RETURN NULL; END $$",
        "CREATE TRIGGER mine AFTER UPDATE{of} ON {table} FOR EACH ROW EXECUTE FUNCTION mine()",
    ],
}


@contextmanager
def trigger(table: str, to: str, of: str = "") -> Iterator[None]:
    with connection.cursor() as cursor:
        for statement in TRIGGERS[connection.vendor]:
            cursor.execute(statement.format(table=table, to=to, of=of))
    try:
        yield
    finally:
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("DROP FUNCTION mine CASCADE")


@pytest.mark.skipif(connection.vendor not in TRIGGERS, reason="a trigger cannot write its own table")
@isolate_apps("tests.testapp")
def test_what_a_trigger_has_counted_goes_back_too() -> None:
    class Room(models.Model):
        name = models.CharField(max_length=20)
        size = models.IntegerField(default=0)

        class Meta:
            app_label = "testapp"

    with tables(Room), trigger(Room._meta.db_table, "size = size + 1", " OF name"):
        room = Room.objects.create(name="a")
        before = everything(Room)
        Room.objects.update(name="b")
        difference = StoredDifference.between(USING, before, everything(Room))
        room.refresh_from_db()
        assert room.size == 1
        done = undo(difference)
        assert everything(Room) == before
        undo(done)
        room.refresh_from_db()
        assert (room.name, room.size) == ("b", 1)


@pytest.mark.skipif(connection.vendor not in TRIGGERS, reason="a trigger cannot write its own table")
@isolate_apps("tests.testapp")
def test_what_a_trigger_counts_with_each_update_stays_and_stops_no_undo() -> None:
    class Hall(models.Model):
        name = models.CharField(max_length=20)
        version = models.IntegerField(default=0)

        class Meta:
            app_label = "testapp"

    with tables(Hall), trigger(Hall._meta.db_table, "version = version + 1"):
        Hall.objects.create(name="a")
        before = everything(Hall)
        Hall.objects.update(name="b")
        difference = StoredDifference.between(USING, before, everything(Hall))
        done = undo(difference)
        assert Hall.objects.get().name == "a"
        # What was done is what is there, so it can be taken back.
        undo(done)
        assert Hall.objects.get().name == "b"


@pytest.mark.skipif(connection.vendor not in TRIGGERS, reason="a trigger cannot write its own table")
@isolate_apps("tests.testapp")
def test_rows_that_a_trigger_keeps_are_not_said_to_have_gone_back() -> None:
    class Cell(models.Model):
        name = models.CharField(max_length=20)

        class Meta:
            app_label = "testapp"

    with tables(Cell):
        Cell.objects.create(name="a")
        before = everything(Cell)
        Cell.objects.update(name="b")
        difference = StoredDifference.between(USING, before, everything(Cell))
        with trigger(Cell._meta.db_table, "name = 'b'"):
            with pytest.raises(IntegrityError, match="keeps rows"):
                undo(difference)
            assert Cell.objects.get().name == "b"
