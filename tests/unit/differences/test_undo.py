"""Changes are taken back by who made them, byte for byte, or nothing is: also not by who has lost a right."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection, connections
from django.db.models.signals import post_save, pre_delete
from django.utils import timezone

from mcp_django import ModelExposure, ToolError
from mcp_django.differences.kept_changes import Changes, KeptChange
from mcp_django.models import Change
from mcp_django.signals import change_undone
from mcp_django.subscriptions.bus import bus
from mcp_django.tools.undo_change import UndoChange
from mcp_django.tools.write_tools import CreateRecord, DeleteRecord, UpdateRecord
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import AudioBook, Book, Loan, Note, Profile, Tag
from tests.tool_calls import call, refusal, request_of, site_with
from tests.unit.differences.all_rows import dump, tables_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

CREATE, UPDATE, DELETE, UNDO = CreateRecord(), UpdateRecord(), DeleteRecord(), UndoChange()
BOOK = {"model": "testapp.book"}
DUE = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def root():
    return request_of(make_superuser())


def rows():
    return dump(tables_of("testapp", "inlineapp"))


def confirmed(tool, request, **arguments):
    """Make a call that asks, and confirm it."""
    shown = call(tool, request, **arguments)
    assert shown["confirmation_required"]
    return call(tool, request, **arguments, confirm_token=shown["confirm_token"])


def undo(request, number, **arguments):
    """Take a change back, with the question if there is one."""
    shown = call(UNDO, request, change=number, **arguments)
    if "confirm_token" in shown:
        shown = call(UNDO, request, change=number, confirm_token=shown["confirm_token"], **arguments)
    return shown


def update(request, obj, **values):
    label = obj._meta.label_lower
    return call(UPDATE, request, model=label, pk=str(obj.pk), values=values)["change"]


def test_an_update_goes_back_byte_for_byte(root):
    book = make_book("Dune", price="5.00")
    tag = Tag.objects.create(name="sand")
    before = rows()
    number = update(root, book, title="Dune 2", price="6.00", tags=[tag.pk])
    assert rows() != before
    told = call(UNDO, root, change=number)
    assert rows() == before
    assert told["undone"] is True
    assert told["took_back"] == number
    change = Change.objects.get(pk=told["change"])
    assert (change.undoes_id, change.tool, change.state) == (number, "undo_change", "done")
    assert Change.objects.get(pk=number).state == "undone"
    assert Change.objects.get(pk=number).by == "root"


def test_a_deletion_goes_back_with_all_that_it_took_along(root):
    book = make_book("Dune")
    book.tags.add(Tag.objects.create(name="sand"))
    Loan.objects.create(book=book, borrower="Ann", due=DUE)
    # The default manager hides this one.
    Loan.objects.create(book=book, borrower="Bob", due=DUE, deleted=DUE)
    before = rows()
    number = confirmed(DELETE, root, **BOOK, pk=book.pk)["change"]
    told = call(UNDO, root, change=number)
    assert told["undone"] is True
    assert rows() == before


def test_a_creation_goes_back_once_that_is_confirmed(root):
    before = rows()
    values = {"title": "Dune", "author": make_author("Frank").pk, "isbn": "1", "price": "1"}
    before = rows()
    number = call(CREATE, root, **BOOK, values=values)["change"]
    shown = call(UNDO, root, change=number)
    assert shown["confirmation_required"]
    assert "deletes 1 row" in shown["message"]
    assert shown["difference"]["deleted"]["testapp.book"][0][1] == "Dune"
    assert Book.objects.exists()
    call(UNDO, root, change=number, confirm_token=shown["confirm_token"])
    assert rows() == before


def test_a_dry_run_of_an_undo_shows_the_difference_and_leaves_nothing(root):
    book = make_book("Dune", price="5.00")
    number = update(root, book, price="6.00")
    before = (rows(), list(Change.objects.values()), list(LogEntry.objects.values()))
    shown = call(UNDO, root, change=number, dry_run=True)
    assert shown["summary"] == "book Dune: price 6.00 -> 5.00"
    assert (rows(), list(Change.objects.values()), list(LogEntry.objects.values())) == before
    assert "also_written" not in shown


def test_an_undo_is_undoable_itself(root):
    book = make_book("Dune")
    number = update(root, book, title="Dune 2")
    changed = rows()
    first = undo(root, number)["change"]
    original = rows()
    second = undo(root, first)["change"]
    assert rows() == changed
    undo(root, second)
    assert rows() == original
    assert "It was taken back already." in refusal(UNDO, root, change=number)


def test_many_rows_ask(root):
    author = make_author()
    for number in range(25):
        make_book(author=author, isbn=str(number))
    before = rows()
    number = confirmed(UPDATE, root, **BOOK, filters={"author": author.pk}, values={"pages": 7})["change"]
    shown = call(UNDO, root, change=number)
    assert shown["confirmation_required"]
    assert shown["difference"]["counts"] == {"testapp.book": {"changed": 25}}
    undo(root, number)
    assert rows() == before


def test_a_child_table_goes_back_in_all_its_tables(root):
    audio = AudioBook.objects.create(title="Dune", author=make_author(), isbn="7", price=1, narrator="Ann")
    before = rows()
    number = update(root, audio, title="Dune 2", narrator="Bob")
    undo(root, number)
    assert rows() == before
    number = confirmed(DELETE, root, model="testapp.audiobook", pk=audio.pk)["change"]
    undo(root, number)
    assert rows() == before


def test_inline_rows_go_back(root):
    author = make_author("Frank")
    before = rows()
    number = update(root, author, profile=[{"biography": "Long", "website": "https://a.example"}])
    assert Profile.objects.count() == 1
    undo(root, number)
    assert rows() == before


# What stands in the way


def test_a_recorded_column_that_changed_since_stops_it(root):
    book = make_book("Dune", price="5.00")
    number = update(root, book, price="6.00", pages=3)
    Book.objects.filter(pk=book.pk).update(price="7.00")
    before = rows()
    assert f"Change {number} cannot be taken back: Price of book Dune was changed since." in refusal(
        UNDO, root, change=number
    )
    assert rows() == before
    assert Change.objects.get(pk=number).state == "done"


def test_a_later_edit_of_another_column_does_not_stop_it(root):
    book = make_book("Dune", price="5.00")
    number = update(root, book, price="6.00")
    update(root, book, title="Dune 2")
    undo(root, number)
    book.refresh_from_db()
    assert (book.title, str(book.price)) == ("Dune 2", "5.00")


def test_another_row_with_the_same_unique_value_stops_it(root):
    book = make_book("Dune", isbn="1")
    number = update(root, book, isbn="2")
    make_book("Thief", isbn="1")
    assert "Book Thief has the isbn of book Dune now." in refusal(UNDO, root, change=number)


def test_a_row_that_is_gone_stops_it(root):
    book = make_book("Dune")
    number = update(root, book, pages=3)
    book.delete()
    assert "Another row was deleted since." in refusal(UNDO, root, change=number)


def test_a_row_that_refers_to_what_would_go_stops_it(root):
    values = {"title": "Dune", "author": make_author("Frank").pk, "isbn": "1", "price": "1"}
    number = call(CREATE, root, **BOOK, values=values)["change"]
    Loan.objects.create(book=Book.objects.get(), borrower="Ann", due=DUE)
    assert "refers to book Dune, which would go" in refusal(UNDO, root, change=number)
    assert Book.objects.exists()


def test_hidden_rows_and_columns_have_no_name_in_what_stands_in_the_way(root):
    class Exposure(ModelExposure):
        fields = ["id", "title", "isbn"]

        def get_queryset(self, request):
            return super().get_queryset(request).exclude(title="Thief")

    site = site_with()
    site.register(Book, Exposure)
    request = request_of(root.user, site)
    book = make_book("Dune", isbn="1")
    number = update(request, book, isbn="2")
    make_book("Thief", isbn="1")
    told = refusal(UNDO, request, change=number)
    assert "Another row has the isbn of book Dune now." in told
    assert "Thief" not in told


# Whose changes, and which rights


def test_a_change_of_another_user_is_not_there(root):
    number = update(root, make_book("Dune"), title="Dune 2")
    other = request_of(User.objects.create_superuser("other"))
    before = rows()
    told = refusal(UNDO, other, change=number)
    assert told == refusal(UNDO, other, change=99999)
    assert refusal(UNDO, other, change="x") == told
    assert rows() == before


@pytest.mark.parametrize("lost", ["change_tag", "view_tag"])
def test_who_has_lost_the_right_to_write_takes_nothing_back(lost):
    user = make_user("ann", "testapp.view_tag", "testapp.change_tag")
    tag = Tag.objects.create(name="sand")
    number = update(request_of(user), tag, name="dust")
    user.user_permissions.remove(Permission.objects.get(codename=lost))
    if lost == "view_tag":
        user.user_permissions.remove(Permission.objects.get(codename="change_tag"))
    before = rows()
    request = request_of(User.objects.get(pk=user.pk))
    told = refusal(UNDO, request, change=number)
    assert ("You may not change" in told) or ("no such change" in told)
    assert rows() == before


def test_a_deletion_needs_the_right_to_add_and_a_creation_the_right_to_delete():
    user = make_user("ann", "testapp.view_tag", "testapp.add_tag", "testapp.delete_tag", "testapp.change_tag")
    tag = Tag.objects.create(name="sand")
    made = call(CREATE, request_of(user), model="testapp.tag", values={"name": "dust"})["change"]
    gone = confirmed(DELETE, request_of(user), model="testapp.tag", pk=tag.pk)["change"]
    user.user_permissions.remove(*Permission.objects.filter(codename__in=["add_tag", "delete_tag"]))
    request = request_of(User.objects.get(pk=user.pk))
    before = rows()
    assert "You may not delete testapp.tag dust now" in refusal(UNDO, request, change=made)
    assert "You may not add testapp.tag sand now" in refusal(UNDO, request, change=gone)
    assert rows() == before


def test_a_row_that_would_belong_to_another_afterwards_does_not_go_back():
    user = make_user("ann", "testapp.view_book", "testapp.change_book")
    other = make_user("bob")
    root = request_of(make_superuser())
    book = make_book("Dune", owner=user)
    number = update(request_of(user), book, pages=3)
    # Meanwhile the row is another's, which the user must not see.
    Book.objects.filter(pk=book.pk).update(owner=other)
    before = rows()
    told = refusal(UNDO, request_of(User.objects.get(pk=user.pk)), change=number)
    assert "you cannot see" in told
    assert rows() == before
    assert undo(root, update(root, book, pages=4))["undone"]


def test_a_row_is_checked_as_it_would_be_afterwards(monkeypatch):
    user = make_user("ann", "testapp.view_book", "testapp.change_book")
    book = make_book("Dune", owner=user)
    number = update(request_of(user), book, status="withdrawn")
    # Rows in preparation were taken away from all since.
    owner = type(admin.site.get_model_admin(Book))
    queryset = owner.get_queryset
    monkeypatch.setattr(owner, "get_queryset", lambda self, request: queryset(self, request).exclude(status="draft"))
    before = rows()
    assert "you cannot see" in refusal(UNDO, request_of(User.objects.get(pk=user.pk)), change=number)
    assert rows() == before


# Hooks, history, signals


def test_no_hook_and_no_receiver_of_the_project_runs(root):
    book = make_book("Dune")
    number = update(root, book, title="Dune 2")
    ran: list[Any] = []

    def note(**kwargs: Any) -> None:
        ran.append(kwargs["sender"])

    post_save.connect(note, sender=Book)
    pre_delete.connect(note, sender=Book)
    try:
        undo(root, number)
    finally:
        post_save.disconnect(note, sender=Book)
        pre_delete.disconnect(note, sender=Book)
    assert ran == []


def test_the_history_says_that_rows_were_taken_back(root):
    book = make_book("Dune")
    number = update(root, book, title="Dune 2")
    LogEntry.objects.all().delete()
    undo(root, number)
    entry = LogEntry.objects.get()
    assert (entry.action_flag, entry.object_id, entry.object_repr) == (CHANGE, str(book.pk), "Dune")
    assert f"taken back: change {number}" in entry.get_change_message()
    assert "undo_change" in entry.get_change_message()
    number = confirmed(DELETE, root, **BOOK, pk=book.pk)["change"]
    LogEntry.objects.all().delete()
    back = undo(root, number)["change"]
    assert LogEntry.objects.get().action_flag == ADDITION
    LogEntry.objects.all().delete()
    undo(root, back)
    assert LogEntry.objects.get().action_flag == DELETION
    assert LogEntry.objects.get().object_repr == "Dune"


def test_a_signal_tells_that_a_change_was_taken_back(root, django_capture_on_commit_callbacks):
    number = update(root, make_book("Dune"), title="Dune 2")
    told: list[Any] = []

    def note(change: Any, request: Any, **kwargs: Any) -> None:
        told.append((change.pk, change.state, request.user.username))

    change_undone.connect(note)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            call(UNDO, root, change=number, dry_run=True)
        assert told == []
        with django_capture_on_commit_callbacks(execute=True):
            call(UNDO, root, change=number)
    finally:
        change_undone.disconnect(note)
    assert told == [(number, "undone", "root")]


def test_the_record_of_the_call_counts_the_rows(root):
    author = make_author("Frank")
    number = update(root, author, name="Ida")
    request = request_of(root.user)
    call(UNDO, request, change=number)
    assert request.mcp.record.rows_changed == 1


# States


def test_a_waiting_change_is_withdrawn_without_a_question(root):
    waiting = Changes(root).keep(
        using="default",
        tool="delete_record",
        labels=["testapp.tag"],
        rows=1,
        summary="1 tag to delete",
        state=Change.State.WAITING,
        expires=timezone.now() + timedelta(minutes=5),
    )
    number = waiting.change.pk
    assert call(UNDO, root, change=number, dry_run=True)["withdraws"] is True
    assert call(UNDO, root, change=number)["withdrawn"] is True
    assert Change.objects.get(pk=number).state == "withdrawn"
    assert "It was withdrawn, and never made." in refusal(UNDO, root, change=number)


def test_what_is_too_old_is_refused(root):
    number = update(root, make_book("Dune"), title="Dune 2")
    Change.objects.filter(pk=number).update(expires=timezone.now())
    assert "could be taken back for" in refusal(UNDO, root, change=number)


def test_what_was_kept_under_a_lost_key_or_of_another_table_is_refused(root, settings):
    number = update(root, make_book("Dune"), title="Dune 2")
    settings.SECRET_KEY = "another"
    assert "secret key" in refusal(UNDO, root, change=number)


def test_notes_that_would_refer_to_nothing_are_told(root):
    from django.contrib.contenttypes.models import ContentType

    values = {"name": "dust"}
    number = call(CREATE, root, model="testapp.tag", values=values)["change"]
    tag = Tag.objects.get()
    kind = ContentType.objects.get_for_model(Tag)
    Note.objects.create(content_type=kind, object_id=str(tag.pk), text="Look")
    shown = call(UNDO, root, change=number)
    assert "1 other row will refer to nothing" in shown["message"]


def test_only_who_may_write_something_sees_the_tool():
    viewer = request_of(make_user("eve", "testapp.view_tag"))
    writer = request_of(make_user("ann", "testapp.view_tag", "testapp.add_tag"))
    assert not UNDO.has_permission(viewer)
    assert UNDO.has_permission(writer)


@pytest.mark.django_db(transaction=True)
def test_two_undos_at_once_do_it_once():
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time.")
    root = request_of(make_superuser())
    book = make_book("Dune", price="5.00")
    number = update(root, book, price="6.00")
    barrier = threading.Barrier(4)

    def run(_: int) -> str:
        try:
            request = request_of(User.objects.get(pk=root.user.pk))
            barrier.wait()
            return "undone" if call(UNDO, request, change=number)["undone"] else ""
        except ToolError as error:
            return error.message
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        told = sorted(pool.map(run, range(4)))
    refused = f"Change {number} cannot be taken back: It was taken back already. Nothing was changed."
    assert told == [*[refused] * 3, "undone"]
    assert str(Book.objects.get().price) == "5.00"
    assert Change.objects.filter(tool="undo_change").count() == 1


def test_a_claim_that_somebody_else_has_made_undoes_nothing(root, monkeypatch):
    book = make_book("Dune", price="5.00")
    number = update(root, book, price="6.00")
    monkeypatch.setattr(KeptChange, "claim", lambda *args, **kwargs: False)
    before = rows()
    assert "just now" in refusal(UNDO, root, change=number)
    assert rows() == before


def test_a_deleted_row_goes_back_under_its_own_key_and_time_which_a_dry_run_shows(root):
    book = make_book("Dune")
    number = confirmed(DELETE, root, **BOOK, pk=str(book.pk))["change"]
    tried = call(UNDO, root, change=number, dry_run=True)
    [added] = tried["added"]["testapp.book"]
    assert added["pk"] == book.pk
    assert "(set when written)" not in str(tried)


def test_subscribers_are_told_of_each_row_also_at_both_ends_of_links(root, django_capture_on_commit_callbacks):
    audio = AudioBook.objects.create(title="Dune", author=make_author(), isbn="7", price=1, narrator="Ann")
    tag = Tag.objects.create(name="sand")
    number = update(root, audio, narrator="Bob", tags=[tag.pk])
    told = []
    put = bus.put
    bus.put = told.append
    try:
        with django_capture_on_commit_callbacks(execute=True):
            call(UNDO, root, change=number)
    finally:
        bus.put = put
    rows_told = {label: keys for changes in told for label, keys in changes.rows.items() if label != "admin.logentry"}
    assert rows_told["testapp.audiobook"] == rows_told["testapp.book"] == {str(audio.pk)}
    assert rows_told["testapp.tag"] == {str(tag.pk)}
