"""Drawn writes: what a dry run shows is what the write does; it leaves nothing; and what was written is taken back.

``DRAWN_WRITES`` is how many are drawn, ``DRAWN_WRITES_CHANGED`` how many with a change before they are taken back that
stops it or does not. Each is known by its number, so that one that fails can be drawn again.
"""

import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core import mail
from django.core.files.storage import default_storage
from django.db import connection, transaction
from django.db.models import CharField, ProtectedError, RestrictedError, TextField

from mcp_django.differences.footprints import StoredDifference
from mcp_django.differences.kept_changes import KeptChange
from mcp_django.differences.stored_rows import Key, differing, stored_table
from mcp_django.models import Change
from mcp_django.testing import MCPClient, ToolCall
from tests.behaviour.drawn_writes import TRIGGERS, World, Writes, connect_receivers, site
from tests.cases import drawn
from tests.factories import make_superuser
from tests.fieldapp.models import Guest, Seat
from tests.inlineapp.models import Note, Order
from tests.oddapp.models import Bid, Currency
from tests.testapp.models import Author, Book, Loan, Section, Tag
from tests.unit.differences.all_rows import dump, key_text, tables_of

pytestmark = [
    *(pytest.mark.walk, pytest.mark.postgresql, pytest.mark.django_db),
    # Django 6.1 has new ways to send mail, and warns of the others.
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:PendingDeprecationWarning"),
]
WRITES = int(os.environ.get("DRAWN_WRITES", drawn(80)))
CHANGED = int(os.environ.get("DRAWN_WRITES_CHANGED", drawn(28)))
FIRST = int(os.environ.get("DRAWN_WRITES_FROM", 0))
# Number of writes that are drawn to find one for a change of some kind.
ATTEMPTS = 60
SET = "(set when written)"
TABLES = tables_of("testapp", "inlineapp", "oddapp", "fieldapp", "fileapp")
Dump = dict[str, dict[str, dict[str, Any]]]
LABELS: dict[str, Any] = {exposure.label: model for model, exposure in site.exposures.items()}


@pytest.fixture(scope="module")
def trigger(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Have a trigger write beside the tests: MySQL makes none in their transactions."""
    made, dropped = TRIGGERS[connection.vendor]
    with django_db_blocker.unblock():
        run_all(made)
    yield
    with django_db_blocker.unblock():
        run_all(dropped)
        connection.close()


def run_all(statements: Sequence[str]) -> None:
    stored_table.cache_clear()
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.fixture
def client(trigger: None, settings: Any) -> Iterator[MCPClient]:
    """A client of the endpoint with the hooks, beside which a trigger and a receiver write."""
    settings.ROOT_URLCONF = "tests.behaviour.drawn_writes"
    disconnect = connect_receivers()
    yield MCPClient(make_superuser(), capabilities={})
    disconnect()


class DrawnWrite:
    """One write that is drawn, tried, made and taken back."""

    def __init__(self, client: MCPClient, seed: int | str, kinds: Sequence[str] = ()) -> None:
        self.client = client
        self.draw = random.Random(seed)
        self.writes = Writes(World(self.draw))
        self.call = self.writes.drawn(*kinds)
        self.before = dump(TABLES)
        self.shown: Mapping[str, Any] = {}
        self.records: dict[tuple[str, str], Any] = {}

    # Trying

    def rehearse(self) -> ToolCall:
        """Try the write, which leaves nothing."""
        before = [dump([*TABLES, LogEntry, Change]), files(), len(mail.outbox), len(connection.run_on_commit)]
        answer = self.client.call(self.call.tool, **self.call.arguments, dry_run=True)
        after = [dump([*TABLES, LogEntry, Change]), files(), len(mail.outbox), len(connection.run_on_commit)]
        assert same(before, after), "the dry run has left something"
        self.shown = answer.structured or {}
        return answer

    def perform(self) -> ToolCall:
        """Make the write, and confirm it where it asks."""
        answer = self.client.call(self.call.tool, **self.call.arguments)
        if answer.structured and answer.structured.get("confirmation_required"):
            assert self.shown.get("next"), "the dry run has not said that the call asks"
            told = answer.structured["difference"]
            assert told["counts"] == self.shown["counts"], "the question counts other rows than the dry run"
            token = answer.structured["confirm_token"]
            answer = self.client.call(self.call.tool, **self.call.arguments, confirm_token=token)
        return answer

    # What was shown

    def record(self, label: str, pk: Any) -> Any:
        """Return a row as get_record shows it, None if it is not there."""
        answer = self.client.call("get_record", model=label, pk=pk)
        if answer.is_error:
            return None
        return {"label": answer.structured.get("label"), **answer.structured}

    def look(self) -> None:
        """Read the rows of the dry run as they are before the write."""
        for label, rows in self.shown.get("changed", {}).items():
            for row in rows:
                self.records[label, str(row["pk"])] = self.record(label, row["pk"])

    def compare(self, after: Dump) -> None:
        """Assert that what was shown is what the write has done."""
        untold = bool(self.shown.get("not_tried"))
        for label, rows in self.shown.get("changed", {}).items():
            for row in rows:
                old, new = self.records[label, str(row["pk"])], self.record(label, row["pk"])
                assert None not in (old, new), (label, row)
                compare_columns(row["columns"], old["fields"], new["fields"], untold)
                compare_inlines(row.get("inlines", {}), old, new)
        for label, rows in self.shown.get("added", {}).items():
            self._compare_added(label, rows, after)
        for label, rows in self.shown.get("deleted", {}).items():
            for pk, _ in rows:
                assert self.record(label, pk) is None, (label, pk)
        self._compare_counts(after)

    def _compare_added(self, label: str, rows: Any, after: Dump) -> None:
        model = LABELS[label]
        table = model._meta.db_table
        new = [key for key in after[table] if key not in self.before[table]]
        found = []
        for row in model._base_manager.all():
            if key_text(row.pk) in new and (record := self.record(label, self.writes.pk(row))) is not None:
                found.append(record)
        for row in rows:
            assert any(is_as_shown(row, record) for record in found), f"{row} {found}"

    def _compare_counts(self, after: Dump) -> None:
        counts: Counter[str] = Counter()
        for label, kinds in self.shown["counts"].items():
            if label != "other":
                counts[root_of(LABELS[label])] += sum(kinds.values())
        also = self.shown.get("also_written", ())
        for label in LABELS:
            root = root_of(LABELS[label])
            family = [one for one in TABLES if root_of(one) == root]
            if any(one._meta.db_table in also for one in family):
                continue
            keys: set[str] = set()
            for one in family:
                before = self.before[one._meta.db_table]
                changed = differing_keys(before, after[one._meta.db_table])
                # Rows that the manager hides are among the others.
                keys |= {key for key in changed if before.get(key, {}).get("deleted") is None}
            # A row is changed, too, if its links or the rows of its inlines are; a row that is written as one of a
            # parent model and as one of the child counts for both.
            has_parts = len({one for one in self.shown["counts"] if one in LABELS and root_of(LABELS[one]) == root}) > 1
            has_parts = (
                has_parts
                or any(link_tables(one, self.before, after) for one in family)
                or any(row.get("inlines") for row in self.shown.get("changed", {}).get(label, ()))
            )
            if has_parts:
                assert counts[root] >= len(keys), (root, counts, keys)
            else:
                assert counts[root] == len(keys), (root, self.shown["counts"], keys)

    # Taking back

    def take_back(self, number: int) -> str:
        """Take the change back; return why not, or "" if it is done."""
        arguments: dict[str, Any] = {"change": number}
        answer = self.client.call("undo_change", **arguments)
        if answer.structured and answer.structured.get("confirmation_required"):
            token = answer.structured["confirm_token"]
            answer = self.client.call("undo_change", **arguments, confirm_token=token)
        return answer.text if answer.is_error else ""

    def check_taken_back(self, after: Dump | None = None, since: Dump | None = None) -> None:
        """Assert that all is as it was, but what was named, and what has changed between two dumps."""
        also = self.shown.get("also_written", ())
        now = dump(TABLES)
        for table, rows in self.before.items():
            if table in also:
                continue
            old = {key: dict(row) for key, row in rows.items()}
            if after is not None and since is not None:
                apply_changes(old, after[table], since[table])
            assert same(old, now[table]), (table, difference_of(old, now[table]))


@pytest.mark.parametrize("number", range(FIRST, FIRST + WRITES))
def test_what_a_dry_run_shows_is_done_and_taken_back(client: MCPClient, number: int) -> None:
    write = DrawnWrite(client, number)
    tried = write.rehearse()
    write.look()
    done = write.perform()
    after = dump(TABLES)
    if done.is_error:
        assert tried.is_error, ("only the write is refused", done.text)
        assert done.text == tried.text
        assert same(write.before, after), "a refused write has left something"
        return
    assert not tried.is_error, ("only the dry run is refused", tried.text)
    write.compare(after)
    if "change" not in done.structured:
        write.check_taken_back()
        return
    change = Change.objects.get(pk=done.structured["change"])
    assert bool(change.cannot_undo) == ("cannot_undo" in write.shown)
    if change.cannot_undo:
        return
    refused = write.take_back(change.pk)
    assert not refused, refused
    write.check_taken_back()


@pytest.mark.parametrize("number", range(FIRST, FIRST + CHANGED))
def test_what_has_changed_in_between_stops_exactly_what_it_must(client: MCPClient, number: int) -> None:
    kind = Meanwhile.KINDS[number % len(Meanwhile.KINDS)]
    for attempt in range(ATTEMPTS):
        # What was drawn for nothing goes away again.
        with transaction.atomic():
            if has_been_stopped(DrawnWrite(client, f"{number}-{attempt}", Meanwhile.WRITES.get(kind, ())), kind):
                return
            transaction.set_rollback(True)
    raise AssertionError(f"no write was drawn for {kind}")


def has_been_stopped(write: DrawnWrite, kind: str) -> bool:
    """Make a write and then a change of this kind, and assert that it stops the undo where it must; return whether
    there was anything to change."""
    write.rehearse()
    done = write.perform()
    number = None if done.is_error else done.structured.get("change")
    change = Change.objects.filter(pk=number).exclude(footprint=b"").first()
    if change is None:
        return False
    after = dump(TABLES)
    meanwhile = Meanwhile(write.draw, stored_difference(change))
    if not getattr(meanwhile, kind)():
        return False
    since = dump(TABLES)
    assert not same(after, since), "nothing has changed"
    refused = write.take_back(change.pk)
    assert bool(refused) == meanwhile.stops, (kind, write.call, refused)
    if refused:
        assert same(since, dump(TABLES)), "a refused undo has left something"
    else:
        write.check_taken_back(after, since)
    return True


class Meanwhile:
    """A change between a write and its undo: ``stops`` says whether it stands in the way."""

    KINDS = ("recorded_column", "other_column", "child", "other_child", "unique_value", "other_value", "target")
    # Which writes have what such a change is about; others may too.
    WRITES: Mapping[str, Sequence[str]] = {
        "other_column": ("update", "named", "alike", "expressed", "several"),
        "child": ("create", "several", "named"),
        "other_child": ("update", "named", "alike", "inlines", "several"),
        "unique_value": ("update", "named", "delete", "delete_many", "several"),
        "target": ("delete", "delete_many", "several", "inlines"),
    }

    def __init__(self, draw: random.Random, difference: StoredDifference) -> None:
        self.draw = draw
        self.difference = difference
        self.stops = True

    def rows(self) -> Iterator[tuple[Any, Key, Any, Any]]:
        found = [
            (model, key, before, after)
            for model, rows in self.difference.changes.items()
            for key, (before, after) in rows.items()
        ]
        self.draw.shuffle(found)
        yield from found

    def recorded_column(self) -> bool:
        for model, key, before, after in self.rows():
            table = stored_table(model, "default")
            places = range(len(table.names)) if before is None else differing(before, after or ()) if after else ()
            names = [name for name in texts_of(model) if table.names.index(name) in places]
            if after is not None and names:
                self._set(model, key, self.draw.choice(names))
                return True
        return False

    def other_column(self) -> bool:
        for model, key, before, after in self.rows():
            if before is None or after is None or model._meta.db_table == "fieldapp_place":
                continue
            table = stored_table(model, "default")
            places = differing(before, after)
            names = [name for name in texts_of(model) if table.names.index(name) not in places]
            if names:
                name = self.draw.choice(names)
                self._set(model, key, name)
                self.stops = False
                return True
        return False

    def child(self) -> bool:
        """Add a row to one that the write has made."""
        return self._add_child(is_new=True)

    def other_child(self) -> bool:
        """Add a row to one that stays."""
        self.stops = False
        return self._add_child(is_new=False)

    def _add_child(self, *, is_new: bool) -> bool:
        makers: dict[Any, Any] = {
            Book: lambda row: Loan.objects.create(book_id=row.pk, borrower="x", due="2030-01-01T00:00:00Z"),
            Author: lambda row: Book.objects.create(title="x", author=row, isbn="taken", price=1),
            Section: lambda row: Section.objects.create(name="x", parent=row),
            Guest: lambda row: Seat.objects.create(hall="taken", number=1, guest=row),
            Currency: lambda row: Bid.objects.create(name="x", currency=row),
            Order: lambda row: Note.objects.create(order=row, text="x"),
        }
        for model, key, before, after in self.rows():
            if (before is None) == is_new and after is not None and model in makers:
                makers[model](row_of(model, key))
                return True
        return False

    def other_value(self) -> bool:
        """Add a row of the same table with values that no row had."""
        self.stops = False
        Tag.objects.bulk_create([Tag(name="no row had it")])
        return True

    def unique_value(self) -> bool:
        uniques = {Book: "isbn", Tag: "name", Order: "number"}
        for model, _, before, after in self.rows():
            name = uniques.get(model)
            if name is None or before is None:
                continue
            table = stored_table(model, "default")
            value = table.cell_of(before, name)
            if (after is not None and table.cell_of(after, name) == value) or value is None:
                continue
            values: dict[str, Any] = {name: value}
            if model is Book:
                values |= {"title": "x", "author": Author.objects.create(name="x"), "price": 1}
            model.objects.bulk_create([model(**values)])
            return True
        return False

    def target(self) -> bool:
        for model, _, before, after in self.rows():
            if before is None or after is not None:
                continue
            table = stored_table(model, "default")
            for field in model._meta.local_concrete_fields:
                if not field.is_relation or not field.db_constraint or field.remote_field.parent_link:
                    continue
                related = field.related_model
                value = table.cell_of(before, field.attname)
                rows = related._base_manager.filter(**{field.target_field.attname: value})
                if value is None or related._meta.app_label == "contenttypes" or not rows:
                    continue
                try:
                    with transaction.atomic():
                        rows[0].delete()
                except (ProtectedError, RestrictedError):
                    continue
                return True
        return False

    def _set(self, model: Any, key: Key, name: str) -> None:
        row = row_of(model, key)
        value = f"{getattr(row, name) or ''}"[:5] + "#"
        model._base_manager.filter(pk=row.pk).update(**{name: value})


def row_of(model: Any, key: Key) -> Any:
    names = stored_table(model, "default").key_names
    values = {name: model._meta.get_field(name).to_python(cell) for name, cell in zip(names, key, strict=True)}
    return model._base_manager.get(**values)


def texts_of(model: Any) -> list[str]:
    """Return the columns of a table that hold any text, and to which no other table refers."""
    return [
        field.attname
        for field in model._meta.local_concrete_fields
        if type(field) in (CharField, TextField)
        and not (field.unique or field.choices or field in model._meta.pk_fields)
    ]


def stored_difference(change: Change) -> StoredDifference:
    data = KeptChange(change).footprint
    assert data is not None
    return StoredDifference.from_json(data)


def files() -> list[str]:
    found = []
    for folder in ("documents", "covers"):
        if default_storage.exists(folder):
            found += default_storage.listdir(folder)[1]
    return sorted(found)


def same(one: Any, other: Any) -> bool:
    """Return whether two dumps are the same, also in the types of their cells."""
    return (one == other and repr(one) == repr(other)) or canonical(one) == canonical(other)


def canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): canonical(item) for key, item in sorted(value.items(), key=lambda pair: str(pair[0]))}
    if isinstance(value, list):
        return [canonical(item) for item in value]
    return repr(value)


def difference_of(old: Mapping[str, Any], new: Mapping[str, Any]) -> Any:
    keys = {*old, *new}
    return {key: (old.get(key), new.get(key)) for key in keys if repr(old.get(key)) != repr(new.get(key))}


def apply_changes(rows: dict[str, dict[str, Any]], one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Change rows of a table as they differ between two dumps."""
    for key, (old, new) in difference_of(one, other).items():
        if new is None:
            rows.pop(key, None)
        elif old is None:
            rows[key] = dict(new)
        else:
            rows[key].update({name: value for name, value in new.items() if repr(old[name]) != repr(value)})


def differing_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    return {key for key in {*before, *after} if repr(before.get(key)) != repr(after.get(key))}


def link_tables(model: Any, before: Dump, after: Dump) -> bool:
    """Return whether links of many-to-many fields of a model differ."""
    tables = [field.remote_field.through for field in model._meta.local_many_to_many]
    return any(differing_keys(before[one._meta.db_table], after[one._meta.db_table]) for one in tables)


def root_of(model: Any) -> str:
    """Return the label of the model of which a model is a child, in multi-table inheritance."""
    parents = [*model._meta.all_parents]
    return str(parents[-1]._meta.label_lower if parents else model._meta.label_lower)


def compare_columns(columns: Mapping[str, Any], old: Mapping[str, Any], new: Mapping[str, Any], untold: bool) -> None:
    # A key that is a relation has the label of the other row.
    changed = {name for name in new if old.get(name) != new[name]} - KEYS
    for name, (before, after) in columns.items():
        if is_file(name, untold):
            continue
        assert before == old.get(name), (name, before, old.get(name))
        assert after == SET or alike(after, new[name]), (name, after, new[name])
    assert changed <= columns.keys(), ("not shown", changed - columns.keys())


def is_file(name: str, untold: bool) -> bool:
    return untold and name in ("document", "cover")


def alike(shown: Any, real: Any) -> bool:
    """Return whether a value is the one that was shown, or was to be set when it is written."""
    if shown == SET:
        return True
    if isinstance(shown, list) and isinstance(real, list) and len(shown) == len(real):
        return all(alike(one, other) for one, other in zip(shown, real, strict=True))
    return bool(shown == real)


def is_as_shown(row: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    given = {name: value for name, value in record["fields"].items() if value not in (None, "", [], {})}
    shown = row["columns"]
    return all(alike(value, given.get(name)) for name, value in shown.items()) and {
        name for name in given if name not in ("id", "pk")
    } <= {*shown, record.get("pk_name", "id"), *KEYS}


KEYS = {model._meta.pk.name for model in LABELS.values()}


def compare_inlines(shown: Mapping[str, Any], old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    for name, rows in shown.items():
        before = {str(row["pk"]): row for row in old.get("inlines", {}).get(name, ())}
        after = {str(row["pk"]): row for row in new.get("inlines", {}).get(name, ())}
        added = [row for key, row in after.items() if key not in before]
        for row in rows:
            if "added" in row:
                assert any(all(alike(value, one.get(key)) for key, value in row["added"].items()) for one in added), (
                    row,
                    added,
                )
            elif "deleted" in row:
                assert str(row["pk"]) in before
                assert str(row["pk"]) not in after
            else:
                key = str(row["pk"])
                for column, (one, other) in row["changed"].items():
                    assert one == before[key][column], (column, one, before[key])
                    assert alike(other, after[key][column]), (column, other, after[key])
