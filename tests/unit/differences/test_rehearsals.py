import threading
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
from functools import partial
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.models import Session
from django.core.mail import EmailMessage, get_connection, mail_admins, send_mail
from django.db import IntegrityError, InterfaceError, connection, connections, transaction
from django.utils import timezone

from mcp_django.context.call_record import CallRecord
from mcp_django.context.databases import engine_without_undo
from mcp_django.context.rehearsing import is_rehearsing
from mcp_django.differences.rehearsals import NotRehearsable, Rehearsal
from mcp_django.exceptions import ToolError
from mcp_django.orm.database_writes import refusals
from mcp_django.orm.query_limits import OutcomeUnknown
from tests.factories import make_author, make_book, make_superuser
from tests.testapp.models import Author, Book, Section, Shelf, Tag
from tests.tool_calls import request_of

pytestmark = pytest.mark.postgresql


def after_the_commit():
    raise AssertionError("this was only tried")


def nothing_is_left():
    """Whether no rehearsal is going on in this thread, and nothing of one is."""
    wrappers = [wrapper for alias in connections for wrapper in connections[alias].execute_wrappers]
    watching = [wrapper for wrapper in wrappers if type(getattr(wrapper, "__self__", None)) is Rehearsal]
    return not (is_rehearsing() or watching)


@pytest.mark.django_db(transaction=True)
def test_a_rehearsed_write_is_done_and_rolled_back():
    author = make_author("Ursula")
    with Rehearsal(Author, {Author._meta.db_table}) as rehearsal:
        assert is_rehearsing()
        Author.objects.filter(pk=author.pk).update(name="Octavia")
        Author.objects.create(name="Joanna")
        assert set(Author.objects.values_list("name", flat=True)) == {"Octavia", "Joanna"}
    assert list(Author.objects.values_list("name", flat=True)) == ["Ursula"]
    assert (rehearsal.also_written, rehearsal.callbacks, rehearsal.mails, rehearsal.files_untried) == ([], [], [], [])
    assert nothing_is_left()
    assert not connection.in_atomic_block


@pytest.mark.django_db(transaction=True)
def test_a_rehearsal_within_a_transaction_leaves_the_transaction_as_it_was():
    ran = []
    with transaction.atomic():
        transaction.on_commit(lambda: ran.append("before"))
        Tag.objects.create(name="before")
        with Rehearsal(Tag) as rehearsal:
            Tag.objects.create(name="tried")
            transaction.on_commit(after_the_commit)
        transaction.on_commit(lambda: ran.append("after"))
        Tag.objects.create(name="after")
    assert ran == ["before", "after"]
    assert list(Tag.objects.values_list("name", flat=True)) == ["after", "before"]
    assert rehearsal.callbacks == [f"{__name__}.after_the_commit"]


@pytest.mark.django_db(transaction=True)
def test_what_would_run_after_the_commit_is_named_and_not_run():
    class Task:
        name = "shop.tasks.notify"

        def apply_async(self):
            after_the_commit()

        def delay(self, pk):
            after_the_commit()

    with Rehearsal(Tag) as rehearsal:
        transaction.on_commit(partial(after_the_commit, 1))
        transaction.on_commit(lambda: after_the_commit())
        transaction.on_commit(partial(Task().delay, 1))
        with transaction.atomic():
            transaction.on_commit(after_the_commit)
        try:
            with transaction.atomic():
                transaction.on_commit(after_the_commit)
                raise ValueError
        except ValueError:
            pass
    here = f"{__name__}.test_what_would_run_after_the_commit_is_named_and_not_run"
    name = f"{__name__}.after_the_commit"
    assert rehearsal.callbacks == [name, f"{here}.<locals>.<lambda>", "shop.tasks.notify", name]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("within", [False, True])
def test_a_key_that_refers_to_no_row_is_refused_as_by_the_commit(within):
    book = make_book()

    def write():
        Book.objects.filter(pk=book.pk).update(author_id=999_999)

    with pytest.raises(IntegrityError) as real, transaction.atomic():
        write()
    outer = transaction.atomic() if within else nullcontext()
    with pytest.raises(IntegrityError) as tried, outer, Rehearsal(Book):
        write()
    assert str(tried.value) == str(real.value)
    assert nothing_is_left()
    book.refresh_from_db()
    assert book.author_id


@pytest.mark.django_db(transaction=True)
def test_a_deletion_that_leaves_rows_behind_is_refused():
    book = make_book()
    with pytest.raises(IntegrityError), Rehearsal(Author):
        Author.objects.filter(pk=book.author_id)._raw_delete("default")
    assert Author.objects.filter(pk=book.author_id).exists()


# Django 6.1 has new ways to send mail, and warns of the others.
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:PendingDeprecationWarning")
@pytest.mark.django_db(transaction=True)
def test_mail_is_caught_whichever_way_it_is_sent(mailoutbox):
    with Rehearsal(Tag) as rehearsal:
        send_mail("One", "text", None, ["a@example.com", "b@example.com"])
        EmailMessage("Two", "text", to=["a@example.com"]).send()
        assert (
            get_connection().send_messages([EmailMessage("Three", "", to=["a@example.com"], cc=["b@example.com"])]) == 1
        )
        assert send_mail("nobody", "text", None, []) == 0
        mail_admins("no admins", "text")
    assert [(mail.subject, mail.recipients) for mail in rehearsal.mails] == [("One", 2), ("Two", 1), ("Three", 2)]
    assert mailoutbox == []
    send_mail("sent", "text", None, ["a@example.com"])
    assert [mail.subject for mail in mailoutbox] == ["sent"]


@pytest.mark.django_db(transaction=True)
def test_tables_outside_of_the_write_are_named():
    make_book()
    with Rehearsal(Tag, [Tag._meta.db_table]) as rehearsal:
        Tag.objects.create(name="a")
        Author.objects.update(name="b")
        Shelf.objects.filter(code="no such shelf").update(code="x")
        ContentType.objects.create(app_label="a", model="b")
        with connection.cursor() as cursor:
            cursor.execute("UPDATE testapp_book SET pages = pages + 1")
    assert rehearsal.also_written == ["testapp_author", "testapp_book"]


@pytest.mark.django_db(transaction=True)
def test_a_statement_that_ends_the_transaction_is_refused():
    def write():
        Tag.objects.create(name="a")
        with connection.cursor() as cursor:
            cursor.execute("COMMIT")

    with pytest.raises(NotRehearsable, match="ends the transaction"), Rehearsal(Tag):
        write()
    assert not Tag.objects.exists()
    assert nothing_is_left()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit, SystemExit, StopIteration])
def test_no_error_leaves_anything_behind(error):
    def write():
        Tag.objects.create(name="a")
        raise error

    with pytest.raises(error), Rehearsal(Tag):
        write()
    assert not Tag.objects.exists()
    assert nothing_is_left()
    assert not connection.in_atomic_block


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("within", [False, True])
def test_the_record_of_the_call_and_its_request_are_as_before(within):
    request = request_of(make_superuser())
    request.before = "mine"
    record = request.mcp.record
    token = CallRecord.current.set(record)
    record.rows_changed, record.history = 1, ["7"]
    with transaction.atomic() if within else nullcontext():
        with Rehearsal(Tag, request=request):
            record.rows_changed += 5
            record.history.append("8")
            request.before, request.after = "changed", "new"
        assert (record.rows_changed, record.history, record.kept, record.is_ending) == (1, ["7"], None, False)
        assert (request.before, hasattr(request, "after")) == ("mine", False)
    CallRecord.current.reset(token)


@pytest.mark.django_db(transaction=True)
def test_a_content_type_of_a_rolled_back_row_is_forgotten():
    ContentType.objects.clear_cache()
    kept = ContentType.objects.get_for_model(Section)
    kept.delete()
    ContentType.objects.clear_cache()
    with Rehearsal(Section):
        tried = ContentType.objects.get_for_model(Section)
    found = ContentType.objects.get_for_model(Section)
    assert ContentType.objects.filter(pk=found.pk).exists()
    assert (found.pk, found._state.db) != (tried.pk, None)


@pytest.mark.django_db(transaction=True)
def test_rehearsals_within_each_other_are_each_rolled_back():
    with Rehearsal(Tag) as outer:
        Tag.objects.create(name="outer")
        with Rehearsal(Tag) as inner:
            Tag.objects.create(name="inner")
            transaction.on_commit(after_the_commit)
        assert is_rehearsing()
        assert list(Tag.objects.values_list("name", flat=True)) == ["outer"]
    assert not Tag.objects.exists()
    assert (outer.callbacks, inner.callbacks) == ([], [f"{__name__}.after_the_commit"])
    assert nothing_is_left()


@pytest.mark.django_db(transaction=True)
def test_an_async_hook_is_tried_as_a_part_of_the_write():
    async def hook():
        await Tag.objects.acreate(name="a")
        return await Tag.objects.acount(), is_rehearsing()

    with Rehearsal(Tag, ["testapp_tag"]) as rehearsal:
        assert async_to_sync(hook)() == (1, True)
    assert (rehearsal.also_written, Tag.objects.count()) == ([], 0)


@pytest.mark.django_db(transaction=True)
async def test_in_a_coroutine_nothing_is_tried_and_nothing_is_left():
    with pytest.raises(Exception, match="async context"), Rehearsal(Tag):
        raise AssertionError("no block")
    assert not is_rehearsing()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("swallowed", [False, True])
def test_a_write_by_a_connection_of_another_thread_is_refused(swallowed):
    errors = []

    def work():
        with closing(connections["default"]):
            list(Tag.objects.all())
            try:
                Tag.objects.create(name="by the thread")
            except ToolError as error:
                errors.append(error.message)
                if not swallowed:
                    raise

    def write():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    threading.excepthook, before = (lambda args: None), threading.excepthook
    try:
        with pytest.raises(NotRehearsable, match="by another connection"), Rehearsal(Tag):
            write()
    finally:
        threading.excepthook = before
    assert len(errors) == 1
    assert not Tag.objects.exists()


@pytest.fixture
def other_database(tmp_path, transactional_db):
    """A second database, "elsewhere", with a table of tags."""
    connections.settings["elsewhere"] = {
        **connections.settings["default"],
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(tmp_path / "elsewhere.sqlite3"),
        "OPTIONS": {},
    }
    # Django's test would refuse to connect to a database that it does not know.
    connections["elsewhere"].connect()
    with connections["elsewhere"].schema_editor() as editor:
        editor.create_model(Tag)
    yield "elsewhere"
    connections["elsewhere"].close()
    del connections["elsewhere"], connections.settings["elsewhere"]


@pytest.mark.parametrize("swallowed", [False, True])
def test_a_write_to_another_database_is_refused(other_database, swallowed):
    tags = Tag.objects.using(other_database)

    def write():
        assert tags.count() == 0
        with suppress(ToolError) if swallowed else nullcontext():
            tags.create(name="elsewhere")

    with pytest.raises(NotRehearsable, match=r"keeps what it wrote\. Nothing was changed"), Rehearsal(Tag):
        write()
    assert tags.count() == 0
    assert nothing_is_left()


def test_what_would_run_after_the_commit_of_another_database_is_not_run(other_database):
    with Rehearsal(Tag) as rehearsal:
        transaction.on_commit(after_the_commit, using=other_database)
        with transaction.atomic(using=other_database):
            transaction.on_commit(partial(after_the_commit, 1), using=other_database)
    assert rehearsal.callbacks == [f"{__name__}.after_the_commit"] * 2


def test_this_apps_own_tables_may_be_written_elsewhere(other_database):
    with connections[other_database].schema_editor() as editor:
        editor.create_model(Session)
    with Rehearsal(Tag), connections[other_database].cursor() as cursor:
        cursor.execute("DELETE FROM django_session")


@pytest.fixture
def rival(transactional_db):
    """A connection of somebody else to the database."""
    connection.ensure_connection()
    with closing(connection.copy()) as other:
        yield other


def test_a_lock_is_waited_for_no_longer_than_a_second(rival, monkeypatch):
    """A row that somebody else has locked fails the rehearsal, with the text of a busy database."""
    monkeypatch.setattr("mcp_django.differences.rehearsals.MAX_WAIT", 0.1)
    author = make_author()
    limits = limits_of(connection)
    rival.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
    with rival.cursor() as cursor:
        cursor.execute("UPDATE testapp_author SET name = 'theirs'")
    busy = pytest.raises(ToolError, match=r"Nothing was changed: the database is busy\. Repeat")
    with busy, refusals(), Rehearsal(Author):
        Author.objects.filter(pk=author.pk).update(name="mine")
    rival.rollback()
    rival.set_autocommit(True)
    with Rehearsal(Author):
        assert limits_of(connection) != limits
        Author.objects.filter(pk=author.pk).update(name="mine")
    assert limits_of(connection) == limits


def limits_of(which):
    """How long the connection waits for a lock."""
    question = {
        "postgresql": "SHOW lock_timeout",
        "mysql": "SELECT @@innodb_lock_wait_timeout",
        "sqlite": "PRAGMA busy_timeout",
    }
    with which.cursor() as cursor:
        cursor.execute(question[which.vendor])
        return cursor.fetchone()[0]


def test_the_wait_for_a_lock_is_as_before_in_a_transaction_around_it(transactional_db):
    with transaction.atomic():
        limits = limits_of(connection)
        with Rehearsal(Tag):
            with Rehearsal(Tag):
                inner = limits_of(connection)
            assert limits_of(connection) == inner
        assert limits_of(connection) == limits


def test_no_lock_is_held_afterwards(rival):
    author = make_author()
    with transaction.atomic():
        with Rehearsal(Author):
            Author.objects.select_for_update().get(pk=author.pk)
            Author.objects.filter(pk=author.pk).update(name="mine")
        if connection.vendor != "postgresql":
            return
        with rival.cursor() as cursor:
            cursor.execute("SELECT name FROM testapp_author FOR UPDATE NOWAIT")


def test_a_transaction_that_the_project_ends_in_the_driver_is_told(transactional_db):
    def write():
        Tag.objects.create(name="a")
        connection.connection.commit()

    with pytest.raises(OutcomeUnknown, match="may be stored"), Rehearsal(Tag):
        write()
    assert Tag.objects.count() == 1
    assert nothing_is_left()
    assert not connection.in_atomic_block


def test_a_row_that_was_broken_before_is_not_held_against_the_write(transactional_db):
    """SQLite's commit counts what a transaction breaks; its check finds all that is broken."""
    if connection.vendor != "sqlite":
        pytest.skip("other databases check no row that was not written")
    book = make_book()
    connection.disable_constraint_checking()
    Book.objects.filter(pk=book.pk).update(author_id=999_999)
    connection.enable_constraint_checking()
    with Rehearsal(Book):
        Book.objects.filter(pk=book.pk).update(pages=5)
    other = make_book()
    with pytest.raises(IntegrityError), Rehearsal(Book):
        Book.objects.filter(pk=other.pk).update(author_id=999_999)


class OnMySQL:
    pytestmark = pytest.mark.skipif(connection.vendor != "mysql", reason="only MySQL commits so")


class TestMySQL(OnMySQL):
    @pytest.mark.parametrize(
        "sql",
        ["CREATE TABLE mcp_tried (id int)", "ALTER TABLE testapp_tag COMMENT 'x'", "LOCK TABLES testapp_tag READ"],
    )
    def test_a_statement_that_commits_at_once_is_refused(self, transactional_db: Any, sql: str) -> None:
        def write():
            Tag.objects.create(name="a")
            with connection.cursor() as cursor:
                cursor.execute(sql)

        with pytest.raises(NotRehearsable, match="ends the transaction"), Rehearsal(Tag):
            write()
        assert not Tag.objects.exists()

    @pytest.mark.parametrize("of_the_model", [True, False])
    def test_a_table_without_transactions_is_refused(self, transactional_db: Any, of_the_model: bool) -> None:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE django_session ENGINE=MyISAM")
            engine_without_undo.cache_clear()
            try:
                model = Session if of_the_model else Tag
                with pytest.raises(NotRehearsable, match="no transactions"), Rehearsal(model):
                    Session.objects.create(session_key="a", expire_date=timezone.now())
                assert not Session.objects.exists()
            finally:
                cursor.execute("ALTER TABLE django_session ENGINE=InnoDB")
                engine_without_undo.cache_clear()


class TestAttacks:
    """Code of a project that does what no hook should, in the middle of a write that is tried."""

    @pytest.fixture(autouse=True)
    def nothing_is_stored(self, transactional_db: None) -> Iterator[None]:
        yield
        assert not Tag.objects.exists()
        assert nothing_is_left()
        assert not connection.in_atomic_block

    def test_a_thread_of_an_async_hook_is_refused(self):
        def write():
            with closing(connection):
                Tag.objects.create(name="a")

        hook = async_to_sync(sync_to_async(write, thread_sensitive=False))
        with pytest.raises(NotRehearsable), Rehearsal(Tag):
            hook()

    def test_a_closed_connection_is_an_error_as_in_the_write(self):
        def write():
            Tag.objects.create(name="a")
            connection.close()

        with pytest.raises(InterfaceError), Rehearsal(Tag):
            write()
        connection.close()

    def test_a_rollback_that_is_called_off_happens(self):
        with Rehearsal(Tag):
            Tag.objects.create(name="a")
            transaction.set_rollback(False)

    @pytest.mark.parametrize("within", [False, True])
    def test_a_transaction_that_is_broken_can_go_on_outside(self, within: bool):
        with transaction.atomic() if within else nullcontext():
            with Rehearsal(Tag), suppress(RuntimeError), transaction.atomic(savepoint=False):
                Tag.objects.create(name="a")
                raise RuntimeError
            Author.objects.create(name="after")
        assert Author.objects.count() == 1

    def test_a_project_that_manages_its_transactions_itself_goes_on(self):
        transaction.set_autocommit(False)
        try:
            Author.objects.create(name="before")
            with Rehearsal(Tag):
                Tag.objects.create(name="a")
            assert Author.objects.count() == 1
            transaction.rollback()
        finally:
            transaction.set_autocommit(True)

    def test_savepoints_by_hand_are_rolled_back_too(self):
        with Rehearsal(Tag):
            kept, undone = Tag(name="kept"), Tag(name="undone")
            outer = connection.savepoint()
            kept.save()
            inner = connection.savepoint()
            undone.save()
            transaction.savepoint_rollback(inner)
            transaction.savepoint_commit(outer)
            assert list(Tag.objects.all()) == [kept]

    def test_a_durable_block_is_refused_as_in_the_write(self):
        with pytest.raises(RuntimeError), Rehearsal(Tag), transaction.atomic(durable=True):
            Tag.objects.create(name="a")

    def test_sql_below_djangos_cursor_is_rolled_back(self):
        with Rehearsal(Tag), connection.cursor() as cursor:
            cursor.cursor.execute("INSERT INTO testapp_tag (name) VALUES ('a')")
            assert Tag.objects.count() == 1
