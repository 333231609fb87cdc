from contextlib import nullcontext
from functools import partial

import pytest
from django.contrib.contenttypes.models import ContentType
from django.core.mail import EmailMessage, get_connection, mail_admins, send_mail
from django.db import IntegrityError, connection, connections, transaction

from mcp_django.context.rehearsing import is_rehearsing
from mcp_django.differences.rehearsals import NotRehearsable, Rehearsal
from tests.factories import make_author, make_book
from tests.testapp.models import Author, Book, Shelf, Tag

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
