import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.auth.models import AnonymousUser, User
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.confirmation import REFUSED
from mcp_django.context.request import Client
from mcp_django.orm.row_finder import RowFinder
from mcp_django.testing import MCPClient, MCPError
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.write_tools import CreateRecord, DeleteRecord, UpdateRecord
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.question_rounds import CANCEL, DECLINE, ELICITS, YES, again, calling, only, send
from tests.testapp.models import Author, Book, Loan, Note, Placement, Profile, Section, Shelf, Tag
from tests.tool_calls import call, history_page, refusal, request_of, site_with

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

CREATE, UPDATE, DELETE = CreateRecord(), UpdateRecord(), DeleteRecord()
BOOK = {"model": "testapp.book"}


@pytest.fixture
def root():
    return request_of(make_superuser())


def seller(*permissions):
    names = permissions or ("view", "add", "change", "delete")
    return request_of(make_user("seller", *(f"testapp.{name}_book" for name in names), "testapp.view_author"))


# Creating


def test_a_row_is_created_through_the_admins_form(root):
    author, tag = make_author(), Tag.objects.create(name="new")
    values = {"title": "Dune", "author": author.pk, "isbn": "1", "price": 9.5, "tags": [tag.pk], "data": {"a": [1]}}
    created = call(CREATE, root, **BOOK, values=values)
    book = Book.objects.get()
    assert (book.title, book.author, book.price, list(book.tags.all())) == ("Dune", author, Decimal("9.50"), [tag])
    assert book.data == {"a": [1]}
    # The admin's save_model ran.
    assert book.owner == root.user
    assert created["created"] is True
    assert set(values) <= set(created["changed"])
    assert created["fields"]["title"] == created["label"] == "Dune"


def test_what_is_left_out_gets_the_defaults_of_the_add_page(root):
    values = {"title": "Dune", "author": make_author().pk, "isbn": "1", "price": "1"}
    call(CREATE, root, **BOOK, values=values)
    book = Book.objects.get()
    assert (book.status, book.active, book.data, book.pages, book.reading_time) == ("draft", True, {}, 0, None)


def test_H147_a_name_that_is_not_writable_is_refused_and_nothing_is_saved(root):
    author = make_author(secret_token="s3cret")
    hidden = [*"id pk uuid created blob address _state is_superuser nonsense loans".split(), ""]
    values = {"title": "Dune", "author": author.pk, "isbn": "1", "price": "1"}
    texts = set()
    for name in hidden:
        text = refusal(CREATE, root, **BOOK, values={**values, name: "1"})
        assert "title, author, owner, isbn, price, status" in text
        texts.add(text.replace(repr(name), "NAME"))
    # Hidden, read-only, and missing names differ in nothing but a hint to a name that may be written.
    assert {text.partition("Did you mean")[0].partition("Valid")[0] for text in texts} == {
        "You cannot write NAME of testapp.book. "
    }
    assert not Book.objects.exists()
    assert not LogEntry.objects.exists()
    assert "secret_token" not in refusal(UPDATE, root, model="testapp.author", pk=author.pk, values={"secret_toke": 1})
    refusal(UPDATE, root, model="testapp.author", pk=author.pk, values={"secret_token": "x"})
    author.refresh_from_db()
    assert author.secret_token == "s3cret"


def test_H147_what_is_read_only_for_one_user_is_not_written_by_them():
    request = seller()
    values = {"title": "Dune", "author": make_author().pk, "isbn": "1", "price": "1", "owner": make_superuser().pk}
    assert "'owner'" in refusal(CREATE, request, **BOOK, values=values)


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"title": ""}, "title: This field is required."),
        ({"title": "x" * 201}, "title: Ensure this value has at most 200 characters (it has 201)."),
        ({"title": "a\0b"}, "title: Null characters are not allowed."),
        ({"title": {"a": 1}}, "title: Give one value, not a list or an object."),
        ({"title": ["a"]}, "title: Give one value, not a list or an object."),
        ({"title": True}, "title: Give a text."),
        ({"price": "cheap"}, "price: Enter a number."),
        ({"price": "1.234"}, "price: Ensure that there are no more than 2 decimal places."),
        ({"pages": -1}, "pages: Ensure this value is greater than or equal to 0."),
        ({"pages": True}, "pages: Enter a whole number."),
        ({"status": "Sold"}, "status: Select a valid choice. Sold is not one of the available choices. "
         "(valid: draft, published, withdrawn)"),
        ({"published": "tomorrow"}, "published: Enter a valid date. (such as 2026-01-31)"),
        ({"reading_time": "long"}, "reading_time: Enter a valid duration. (such as P1DT2H)"),
        ({"active": "perhaps"}, "active: Give true or false."),
        ({"tags": 5}, "tags: Give a list of primary keys."),
        ({"author": [1, 2, 3]}, "author: Give a primary key, as a text or an integer."),
        ({"author": True}, "author: Give a primary key, as a text or an integer."),
        ({"author": 0}, "author: No testapp.author has this primary key."),
        ({"tags": [0]}, "tags: No testapp.tag has this primary key."),
        ({"author": None}, "author: This field is required."),
        ({"data": "{"}, None),
    ],
)  # fmt: skip
def test_H149_everything_is_validated_as_in_the_admin(root, values, error):
    good = {"title": "Dune", "author": make_author().pk, "isbn": "1", "price": "1"}
    if error is None:
        call(CREATE, root, **BOOK, values={**good, **values})
        assert Book.objects.get().data == values["data"]
        return
    assert refusal(CREATE, root, **BOOK, values={**good, **values}) == f"Nothing was saved:\n{error}"
    assert not Book.objects.exists()


def test_H149_all_errors_are_told_at_once(root):
    text = refusal(CREATE, root, **BOOK, values={"price": "x", "status": "x"})
    assert [line.partition(":")[0] for line in text.splitlines()] == [
        *["Nothing was saved", "title", "author", "isbn", "price", "status"]
    ]


def test_G134_a_value_that_is_taken_is_told_as_in_the_admin(root):
    book = make_book()
    values = {"title": "Dune", "author": book.author_id, "isbn": book.isbn, "price": "1"}
    text = refusal(CREATE, root, **BOOK, values=values)
    told = f"(testapp.book with pk {book.pk} has it)"
    assert text == f"Nothing was saved:\nisbn: Book with this ISBN already exists. {told}"


def test_G133_what_only_the_database_refuses_is_told_without_sql(root, monkeypatch):
    monkeypatch.setattr(Book, "validate_unique", lambda *args, **kwargs: None)
    book = make_book()
    values = {"title": "Dune", "author": book.author_id, "isbn": book.isbn, "price": "1"}
    text = refusal(CREATE, root, **BOOK, values=values)
    assert text == "Nothing was changed: there is a row of testapp.book with the same isbn already."
    assert Book.objects.get() == book


def test_the_values_may_come_as_text_as_some_clients_send_them(root):
    tag = Tag.objects.create(name="new")
    values = {"title": "Dune", "author": f'[{make_author().pk}, "Ursula"]', "isbn": 1, "price": "1"}
    values |= {"tags": f"[{tag.pk}]", "data": '{"a": 1}', "active": "false", "pages": "7", "reading_time": "01:30:00"}
    call(CREATE, root, **BOOK, values=json.dumps(values))
    book = Book.objects.get()
    assert (book.data, book.active, book.pages, list(book.tags.all())) == ({"a": 1}, False, 7, [tag])
    assert str(book.reading_time) == "1:30:00"


def test_a_relation_may_be_named_by_its_column(root):
    call(CREATE, root, **BOOK, values={"title": "Dune", "author_id": make_author().pk, "isbn": "1", "price": "1"})
    assert Book.objects.get().author.name == "Ursula"


def test_a_primary_key_that_people_choose_can_be_given_to_a_new_row_alone(root):
    created = call(CREATE, root, model="testapp.shelf", values={"code": "50 %"})
    assert Shelf.objects.get().code == "50 %"
    assert created["created"]
    assert "'code'" in refusal(UPDATE, root, model="testapp.shelf", pk="50 %", values={"code": "A/1"})
    assert [shelf.code for shelf in Shelf.objects.all()] == ["50 %"]


def test_G124_only_rows_that_the_caller_sees_can_be_referred_to():
    hidden, mine = make_book(owner=make_superuser()), None
    user = make_user("seller", "testapp.view_book", "testapp.add_loan", "testapp.view_loan", "testapp.change_loan")
    mine = make_book(owner=user)
    request = request_of(user)
    values = {"borrower": "Ann", "due": "2030-01-02T03:04:05Z"}
    texts = {
        refusal(CREATE, request, model="testapp.loan", values={**values, "book": pk})
        for pk in (hidden.pk, 10**6, f"0{mine.pk}", "x")
    }
    assert texts == {"Nothing was saved:\nbook: No testapp.book has this primary key."}
    call(CREATE, request, model="testapp.loan", values={**values, "book": mine.pk})
    assert Loan.objects.get().due == datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_G131_a_model_that_is_not_exposed_is_reached_as_in_the_form_alone(root):
    kind = ContentType.objects.get_for_model(User)
    call(CREATE, root, model="testapp.note", values={"content_type": kind.pk, "object_id": "1", "text": "x"})
    assert Note.objects.get().content_type == kind


# Updating


def test_only_the_named_fields_change(root):
    moment = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    tag = Tag.objects.create(name="old")
    hidden = {"address": "::1", "opens": "08:00", "blob": b"\0"}
    book = make_book(" spaced ", rating=1.5, data={"a": None}, cover="covers/x.png", active=False, **hidden)
    book.tags.add(tag)
    loan = Loan.objects.create(book=book, borrower=" Ann ", due=moment)
    before = Book.objects.filter(pk=book.pk).values().get()
    changed = call(UPDATE, root, **BOOK, pk=book.pk, values={"pages": 3})
    assert changed["changed"] == ["pages"]
    assert Book.objects.filter(pk=book.pk).values().get() == {**before, "pages": 3}
    assert list(book.tags.all()) == [tag]
    call(UPDATE, root, model="testapp.loan", pk=loan.pk, values={"borrower": "Bob"})
    loan.refresh_from_db()
    assert (loan.borrower, loan.due) == ("Bob", moment)


@pytest.mark.parametrize(
    ("name", "given", "stored"),
    [
        ("published", "2030-01-02", "2030-01-02"),
        ("published", None, None),
        ("rating", 1.25, 1.25),
        ("price", "12.50", Decimal("12.50")),
        ("price", 7, Decimal("7.00")),
        ("active", False, False),
        ("active", True, True),
        ("data", {"x": {"y": [None, True, 1.5, "ü"]}}, {"x": {"y": [None, True, 1.5, "ü"]}}),
        ("data", "text", "text"),
        ("data", [], []),
        ("data", 5, 5),
        ("title", "<b>“quoted” & 'co'</b>", "<b>“quoted” & 'co'</b>"),
        ("title", "'; DROP TABLE testapp_book; --", "'; DROP TABLE testapp_book; --"),
        ("owner", None, None),
        ("status", "withdrawn", "withdrawn"),
    ],
)
def test_values_of_every_type_are_stored_as_given(root, name, given, stored):
    book = make_book(owner=root.user)
    call(UPDATE, root, **BOOK, pk=book.pk, values={name: given})
    found = Book.objects.filter(pk=book.pk).values_list(name, flat=True).get()
    assert (str(found) if name == "published" and found else found) == stored


def test_many_to_many_values_are_replaced_and_emptied(root):
    book = make_book()
    one, two = (Tag.objects.create(name=name) for name in ("one", "two"))
    book.tags.add(one)
    call(UPDATE, root, **BOOK, pk=book.pk, values={"tags": [{"pk": two.pk, "label": "two"}]})
    assert list(book.tags.all()) == [two]
    call(UPDATE, root, **BOOK, pk=book.pk, values={"tags": []})
    assert not book.tags.exists()


def test_times_keep_their_microseconds_and_are_read_in_their_own_zone(root, settings):
    settings.TIME_ZONE = "America/New_York"
    loan = Loan.objects.create(book=make_book(), borrower="Ann", due=datetime(2030, 1, 1, tzinfo=UTC))
    call(UPDATE, root, model="testapp.loan", pk=loan.pk, values={"due": "2030-07-02T03:04:05.678901Z"})
    loan.refresh_from_db()
    assert loan.due == datetime(2030, 7, 2, 3, 4, 5, 678901, tzinfo=UTC)
    for due in ("tomorrow", "2030-02-30T00:00Z"):
        assert "due: Enter a valid" in refusal(UPDATE, root, model="testapp.loan", pk=loan.pk, values={"due": due})


def test_an_update_that_changes_nothing_says_so(root):
    book = make_book("Dune", data={"a": 1})
    values = {"title": "Dune", "price": "9.90", "data": {"a": 1}, "author": book.author_id, "active": True}
    assert call(UPDATE, root, **BOOK, pk=book.pk, values=values)["changed"] == []


def test_a_relation_to_a_row_that_the_caller_does_not_see_stays_while_it_is_not_named():
    owner = make_superuser()
    user = make_user("seller", "testapp.view_loan", "testapp.change_loan", "testapp.view_book")
    loan = Loan.objects.create(book=make_book(owner=owner), borrower="Ann", due=datetime(2030, 1, 1, tzinfo=UTC))
    call(UPDATE, request_of(user), model="testapp.loan", pk=loan.pk, values={"borrower": "Bob"})
    loan.refresh_from_db()
    assert (loan.borrower, loan.book.owner) == ("Bob", owner)


def test_who_may_view_but_not_change_a_row_is_told_so():
    request = seller()
    shared = make_book(owner=None)
    text = refusal(UPDATE, request, **BOOK, pk=shared.pk, values={"pages": 1})
    assert text == "You may view but not change this row of testapp.book. Nothing was changed."
    assert Book.objects.get().pages == 0


def test_a_row_that_is_hidden_is_not_there():
    request = seller()
    hidden = make_book(owner=make_superuser())
    pks = (hidden.pk, 10**9, "x", f"0{hidden.pk}")
    texts = {refusal(UPDATE, request, **BOOK, pk=pk, values={"pages": 1}) for pk in pks}
    texts |= {refusal(DELETE, request, **BOOK, pk=pk) for pk in (hidden.pk, 10**9)}
    assert texts == {RowFinder.NOT_FOUND}


def test_a_model_that_is_hidden_is_not_there():
    request = seller("change")
    texts = {refusal(UPDATE, request, model=label, pk=1, values={}) for label in ("testapp.tag", "testapp.xyz")}
    assert len({text.partition("Valid")[2] for text in texts}) == 1
    assert not any("tag" in text for text in texts)


def test_a_row_that_leaves_the_callers_sight_is_saved_but_not_shown(monkeypatch):
    request = seller()
    book = make_book(owner=request.user)

    def give_away(self, request, obj, form, change):
        obj.owner = make_superuser()
        obj.save()

    monkeypatch.setattr(type(admin.site.get_model_admin(Book)), "save_model", give_away)
    updated = call(UPDATE, request, **BOOK, pk=book.pk, values={"title": "Gone"})
    assert updated.pop("change")
    assert updated == {
        "updated": True,
        "changed": ["title"],
        "model": "testapp.book",
        "pk": book.pk,
        "note": "It was saved, but is not among the rows that you can see.",
    }


def test_H150_the_row_is_read_within_the_transaction_that_changes_it(root):
    book = make_book()
    with CaptureQueriesContext(connection) as queries:
        call(UPDATE, root, **BOOK, pk=book.pk, values={"pages": 1})
    kinds = [query["sql"].partition(" ")[0] for query in queries]
    table = connection.ops.quote_name("testapp_book")
    reads = [number for number, query in enumerate(queries) if f"FROM {table}" in query["sql"]]
    assert kinds.index("SAVEPOINT") < reads[0] < kinds.index("UPDATE") < kinds.index("INSERT")


@pytest.mark.skipif(not connection.features.has_select_for_update, reason="the database locks no rows")
def test_H150_the_row_is_locked_while_it_is_changed(root):
    book = make_book()
    with CaptureQueriesContext(connection) as queries:
        call(UPDATE, root, **BOOK, pk=book.pk, values={"pages": 1})
    locking = [query["sql"] for query in queries if "FOR UPDATE" in query["sql"]]
    # The others read what the write may touch.
    assert "testapp_book" in locking[0]
    assert str(book.pk) in locking[0]


@pytest.mark.skipif(not connection.features.has_select_for_update, reason="the database locks no rows")
@pytest.mark.django_db(transaction=True)
def test_H150_of_concurrent_updates_none_is_lost(root):
    book = make_book()
    fields = ["pages", "rating", "price", "title"]
    ready = threading.Barrier(len(fields))

    def update(name):
        try:
            for number in range(1, 6):
                ready.wait()
                call(UPDATE, root, **BOOK, pk=book.pk, values={name: number})
                found = Book.objects.values_list(name, flat=True).get()
                assert str(found).removesuffix(".00").removesuffix(".0") == str(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(len(fields)) as pool:
        list(pool.map(update, fields))
    assert Book.objects.values_list(*fields).get() == (5, 5.0, Decimal(5), "5")


# History


def test_H142_writes_are_in_the_admins_history_with_client_and_tool(root, client):
    author = make_author()
    call(CREATE, root, model="testapp.tag", values={"name": "new"})
    tag = Tag.objects.get()
    call(UPDATE, root, model="testapp.tag", pk=tag.pk, values={"name": "newer"})
    book = make_book(author=author)
    call(UPDATE, root, **BOOK, pk=book.pk, values={"price": 1, "data": {"b": 1}})
    entries = LogEntry.objects.order_by("pk")
    assert [(entry.action_flag, entry.object_id, entry.user_id) for entry in entries] == [
        (ADDITION, str(tag.pk), root.user.pk),
        (CHANGE, str(tag.pk), root.user.pk),
        (CHANGE, str(book.pk), root.user.pk),
    ]
    page = history_page(client, root.user, tag)
    assert "Added. Added via MCP “Claude (client-1), create_record”." in page
    assert "Changed Name. Changed via MCP: Claude (client-1), update_record." in page
    assert "Changed Price and Data. Changed via MCP" in history_page(client, root.user, book)


def test_H142_a_clients_name_cannot_break_the_history(client):
    user = make_superuser()
    request = request_of(user, client=Client("<script>{0}{x}%s%(a)s\r\n\x1b[0m" + "x" * 5000), client_id="[]")
    tag = Tag.objects.create(name="old")
    call(UPDATE, request, model="testapp.tag", pk=tag.pk, values={"name": "new"})
    page = history_page(client, user, tag)
    assert "Changed Name. Changed via MCP: &lt;script&gt;{0}{x}%s%(a)s[0mx" in page
    assert "<script>{0}" not in page
    assert len(LogEntry.objects.get().change_message) < 400


def test_H143_a_write_that_fails_half_way_leaves_nothing(root, monkeypatch):
    tag = Tag.objects.create(name="new")
    book = make_book("Dune")
    book_admin = type(admin.site.get_model_admin(Book))

    def fail(*args, **kwargs):
        raise RuntimeError("half way")

    for hook in ("save_related", "log_change"):
        with monkeypatch.context() as patch:
            patch.setattr(book_admin, hook, fail)
            with pytest.raises(RuntimeError):
                UPDATE.call(root, {**BOOK, "pk": book.pk, "values": {"title": "New", "tags": [tag.pk]}})
        book.refresh_from_db()
        assert (book.title, book.tags.count(), LogEntry.objects.count()) == ("Dune", 0, 0)


def test_without_a_user_there_is_no_history_but_the_write_is_done():
    class Open(ModelExposure):
        fields = ["name"]

        def has_permission(self, request, action, obj=None):
            return True

    own = MCPSite("own")
    own.register(Tag, Open)
    call(CREATE, request_of(AnonymousUser(), own), model="testapp.tag", values={"name": "new"})
    assert Tag.objects.count() == 1
    assert not LogEntry.objects.exists()


# Deleting


def test_H141_the_first_call_shows_what_would_be_deleted_and_deletes_nothing(root):
    book = make_book("Dune")
    for name in ("Ann", "Bob"):
        Loan.objects.create(book=book, borrower=name, due=datetime(2030, 1, 1, tzinfo=UTC))
    preview = call(DELETE, root, **BOOK, pk=book.pk)
    assert preview["confirmation_required"] is True
    assert preview["deletes"] == {"books": 1, "loans": 2}
    assert (preview["label"], preview["pk"]) == ("Dune", book.pk)
    assert Book.objects.count() == 1
    deleted = call(DELETE, root, **BOOK, pk=str(book.pk), confirm_token=preview["confirm_token"])
    assert deleted["deleted"] is True
    assert deleted["deletes"] == {"books": 1, "loans": 2}
    assert not Book.objects.exists()
    assert not Loan.all_objects.exists()


def test_H142_a_deletion_is_in_the_history(root):
    book = make_book("Dune")
    preview = call(DELETE, root, **BOOK, pk=book.pk)
    assert not LogEntry.objects.exists()
    call(DELETE, root, **BOOK, pk=book.pk, confirm_token=preview["confirm_token"])
    entry = LogEntry.objects.get()
    assert (entry.action_flag, entry.object_id, entry.object_repr) == (DELETION, str(book.pk), "Dune")
    assert entry.user == root.user
    assert entry.get_change_message() == "Deleted via MCP “Claude (client-1), delete_record”."


def test_D74_a_deletion_whose_extent_changed_is_refused(root):
    book = make_book()
    token = call(DELETE, root, **BOOK, pk=book.pk)["confirm_token"]
    Loan.objects.create(book=book, borrower="Ann", due=datetime(2030, 1, 1, tzinfo=UTC))
    assert refusal(DELETE, root, **BOOK, pk=book.pk, confirm_token=token) == REFUSED
    assert Book.objects.count() == 1
    assert not LogEntry.objects.exists()


def test_D74_a_token_deletes_no_other_row(root):
    one, two = make_book(), make_book()
    token = call(DELETE, root, **BOOK, pk=one.pk)["confirm_token"]
    assert refusal(DELETE, root, **BOOK, pk=two.pk, confirm_token=token) == REFUSED
    assert refusal(DELETE, root, model="testapp.publishedbook", pk=one.pk, confirm_token=token)
    assert Book.objects.count() == 2


def test_D77_a_deletion_is_never_confirmed_by_anything_but_its_token(root):
    book = make_book()
    tokens: list[Any] = ["yes", "true", True, 1, {"a": 1}, ["yes"]]
    for token in tokens:
        assert refusal(DELETE, root, **BOOK, pk=book.pk, confirm_token=token) == REFUSED
    for empty in (None, "", {}, []):
        assert call(DELETE, root, **BOOK, pk=book.pk, confirm_token=empty)["confirmation_required"]
    assert Book.objects.count() == 1


def test_H150_of_two_deletions_one_finds_nothing(root):
    book = make_book()
    tokens = [call(DELETE, root, **BOOK, pk=book.pk)["confirm_token"] for _ in range(2)]
    call(DELETE, root, **BOOK, pk=book.pk, confirm_token=tokens[0])
    assert refusal(DELETE, root, **BOOK, pk=book.pk, confirm_token=tokens[1]) == RowFinder.NOT_FOUND
    assert LogEntry.objects.count() == 1


def test_H137_a_permission_lost_between_preview_and_confirmation_is_missed():
    request = seller()
    book = make_book(owner=request.user)
    token = call(DELETE, request, **BOOK, pk=book.pk)["confirm_token"]
    Book.objects.update(status=Book.Status.PUBLISHED)
    again = request_of(User.objects.get(pk=request.user.pk))
    text = refusal(DELETE, again, **BOOK, pk=book.pk, confirm_token=token)
    assert text == "You may view but not delete this row of testapp.book. Nothing was changed."
    assert Book.objects.count() == 1


def test_H141_a_protected_row_is_refused_with_the_admins_reasons(root):
    author = make_author("Ada")
    book = make_book("Notes", author=author)
    text = refusal(DELETE, root, model="testapp.author", pk=author.pk)
    assert text == (
        "This row of testapp.author cannot be deleted, because rows that refer to it are protected: 1 book "
        f"(such as testapp.book {book.pk}: Notes). Nothing was deleted. Change or delete those first."
    )


def test_G124_a_protecting_row_that_the_caller_does_not_see_is_counted_but_not_named():
    author = make_author("Ada")
    make_book("Hidden", author=author, owner=make_superuser())
    user = make_user("seller", "testapp.view_author", "testapp.delete_author", "testapp.view_book")
    text = refusal(DELETE, request_of(user), model="testapp.author", pk=author.pk)
    assert "protected: 1 book. Nothing" in text
    assert "Hidden" not in text


def test_H141_a_cascade_into_what_the_caller_may_not_delete_is_refused():
    request = seller()
    book = make_book(owner=request.user)
    Loan.objects.create(book=book, borrower="Ann", due=datetime(2030, 1, 1, tzinfo=UTC))
    text = refusal(DELETE, request, **BOOK, pk=book.pk)
    assert "rows that you may not delete: loan. Nothing was deleted." in text
    assert Book.objects.count() == 1


def test_H141_delete_model_of_the_admin_is_used(root, monkeypatch):
    def soft(self, request, obj):
        Loan.objects.filter(pk=obj.pk).update(deleted=datetime(2030, 1, 1, tzinfo=UTC))

    monkeypatch.setattr(type(admin.site.get_model_admin(Loan)), "delete_model", soft)
    loan = Loan.objects.create(book=make_book(), borrower="Ann", due=datetime(2030, 1, 1, tzinfo=UTC))
    preview = call(DELETE, root, model="testapp.loan", pk=loan.pk)
    own_way = "in the project's own way, which may only mark them as deleted."
    assert preview["message"] == f"This deletes 1 object {own_way} It can be taken back for 30 days."
    many = call(DELETE, root, model="testapp.loan", pks=[loan.pk])
    assert many["message"].startswith(f"This deletes 1 row of testapp.loan {own_way} In all: ")
    call(DELETE, root, model="testapp.loan", pk=loan.pk, confirm_token=preview["confirm_token"])
    assert Loan.all_objects.count() == 1
    assert not Loan.objects.exists()


def test_a_large_cascade_is_shown_in_short(root):
    root_section = Section.objects.create(name="root")
    Section.objects.bulk_create(Section(name=str(number), parent=root_section) for number in range(500))
    preview = call(DELETE, root, model="testapp.section", pk=str(root_section.pk))
    assert preview["deletes"] == {"sections": 501}
    assert len(json.dumps(preview)) < 1500
    call(DELETE, root, model="testapp.section", pk=str(root_section.pk), confirm_token=preview["confirm_token"])
    assert not Section.objects.exists()


def test_rows_of_models_that_are_not_exposed_are_deleted_as_in_the_admin(root):
    shelf = Shelf.objects.create(code="A/1")
    Placement.objects.create(shelf=shelf, book=make_book())
    preview = call(DELETE, root, model="testapp.shelf", pk="A/1")
    assert preview["deletes"] == {"shelfs": 1, "placements": 1}


def test_the_extent_of_a_deletion_by_a_plain_exposure_is_the_admins_too():
    class Plain(ModelExposure):
        fields = "__all__"

    own = MCPSite("own")
    own.register([Book, Loan, Author], Plain)
    user = make_user("seller", "testapp.view_book", "testapp.delete_book", staff=False)
    request = request_of(user, own)
    book = make_book("Dune")
    Loan.objects.create(book=book, borrower="Ann", due=datetime(2030, 1, 1, tzinfo=UTC))
    assert "rows that you may not delete: loan." in refusal(DELETE, request, **BOOK, pk=book.pk)
    Loan.objects.all().delete()
    token = call(DELETE, request, **BOOK, pk=book.pk)["confirm_token"]
    call(DELETE, request, **BOOK, pk=book.pk, confirm_token=token)
    assert not Book.objects.exists()
    assert LogEntry.objects.get().get_change_message() == "Deleted via MCP “Claude (client-1), delete_record”."


# Tools


def test_a_write_tool_is_for_those_who_may_write_something():
    tools = (CREATE, UPDATE, DELETE)
    viewer = request_of(make_user("viewer", "testapp.view_book"))
    editor = request_of(make_user("editor", "testapp.view_book", "testapp.change_book"))
    outsider = request_of(make_user("outsider", "testapp.view_book", "testapp.change_book", staff=False))
    assert [[tool.has_permission(request) for tool in tools] for request in (viewer, editor, outsider)] == [
        [False, False, False],
        [False, True, False],
        [False, False, False],
    ]


def test_H152_there_is_no_write_tool_in_read_only_mode(root, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "READ_ONLY": True}
    assert not any(tool.has_permission(root) for tool in (CREATE, UPDATE, DELETE))


@pytest.mark.parametrize("tool", [CREATE, UPDATE, DELETE])
def test_D85_unknown_and_missing_arguments_are_refused(tool, root):
    book = make_book()
    arguments = {**BOOK, "pk": book.pk, "values": {"pages": 5}}
    known = {name: value for name, value in arguments.items() if name in tool.input_schema["properties"]}
    assert "Unknown argument 'force'" in refusal(tool, root, **known, force=True)
    for name in known:
        assert f"Missing argument: {name}" in refusal(tool, root, **{key: known[key] for key in known if key != name})
    if tool is not DELETE:
        assert "values must be an object" in refusal(tool, root, **{**known, "values": "pages=5"})
    assert Book.objects.get().pages == 0


def test_who_may_not_add_is_told_so():
    text = refusal(CREATE, seller("view", "change"), **BOOK, values={})
    assert text == "You may view but not add rows of testapp.book. Nothing was changed."


@pytest.mark.parametrize("tool", [CREATE, UPDATE, DELETE])
def test_H151_hints_of_writes(tool):
    hints = tool.definition()["annotations"]
    assert not hints["readOnlyHint"]
    assert hints["destructiveHint"] is (tool is not CREATE)
    # An update may add rows of an inline.
    assert not hints["idempotentHint"]


def test_H136_over_the_wire_a_tool_that_the_caller_lacks_is_unknown_and_a_preview_is_whole():
    book = make_book("Dune")
    root = MCPClient(make_superuser())
    preview = root.call("delete_record", **BOOK, pk=book.pk)
    assert json.loads(preview.text) == preview.structured
    deleted = root.call("delete_record", **BOOK, pk=book.pk, confirm_token=preview.structured["confirm_token"])
    assert deleted.structured["deleted"] is True
    viewer = MCPClient(make_user("viewer", "testapp.view_book"))
    assert "delete_record" not in {tool["name"] for tool in viewer.tools()}
    with pytest.raises(MCPError, match="Unknown tool: delete_record"):
        viewer.call("delete_record", **BOOK, pk=book.pk)
    with pytest.raises(MCPError, match="Unknown tool: delete_recorx"):
        viewer.call("delete_recorx", **BOOK, pk=book.pk)


# Asking the client's user


def test_77_a_deletion_asks_the_user_about_all_that_goes():
    book = make_book("Dune")
    Loan.objects.create(book=book, borrower="Ann", due=datetime(2030, 1, 1, tzinfo=UTC))
    client, params = MCPClient(make_superuser(), capabilities=ELICITS), calling("delete_record", **BOOK, pk=book.pk)
    asked = send(client, params)
    _, question = only(asked)
    assert question["message"] == (
        "This deletes 2 objects. It can be taken back for 30 days.\n\n"
        "book “Dune” deleted; loan “Ann, until 2030-01-01” deleted\n\n"
        "With all that goes with it: books (1), loans (1).\n"
        f"testapp.book “{book.pk}”: “Dune”"
    )
    assert question["requestedSchema"]["required"] == ["_confirm"]
    assert Book.objects.count() == 1
    assert again(client, params, asked, YES)["structuredContent"]["deleted"] is True
    assert not Book.objects.exists()
    assert LogEntry.objects.get().object_repr == "Dune"
    with pytest.raises(MCPError, match="requestState is not valid"):
        again(client, calling("delete_record", **BOOK, pk=make_book().pk), asked, YES)


@pytest.mark.parametrize("answer", [DECLINE, CANCEL], ids=["decline", "cancel"])
def test_78_a_declined_deletion_deletes_nothing(answer):
    book = make_book("Dune")
    client, params = MCPClient(make_superuser(), capabilities=ELICITS), calling("delete_record", **BOOK, pk=book.pk)
    assert again(client, params, send(client, params), answer)["isError"]
    assert Book.objects.count() == 1
    assert not LogEntry.objects.exists()


def test_78_what_was_added_since_the_question_is_asked_about_again():
    book = make_book("Dune")
    client, params = MCPClient(make_superuser(), capabilities=ELICITS), calling("delete_record", **BOOK, pk=book.pk)
    asked = send(client, params)
    Loan.objects.create(book=book, borrower="Ann", due=datetime(2030, 1, 1, tzinfo=UTC))
    second = again(client, params, asked, YES)
    assert only(second)[1]["message"].startswith("What you were asked about has changed.\n\nThis deletes 2 objects")
    assert Book.objects.count() == 1
    assert again(client, params, second, YES)["structuredContent"]["deleted"] is True


def test_156_consent_deletes_one_row_once():
    book = make_book("Dune")
    client, params = MCPClient(make_superuser(), capabilities=ELICITS), calling("delete_record", **BOOK, pk=book.pk)
    asked = send(client, params)
    again(client, params, asked, YES)
    created = book.created
    Book.objects.bulk_create([book])
    Book.objects.update(created=created)
    with pytest.raises(MCPError, match="requestState is not valid"):
        again(client, params, asked, YES)
    assert Book.objects.count() == 1


def test_an_update_answers_what_was_named_and_what_hooks_have_changed(root, monkeypatch):
    def save_model(self, request, obj, form, change):
        obj.pages += 1
        obj.save()

    monkeypatch.setattr(type(admin.site.get_model_admin(Book)), "save_model", save_model)
    book = make_book("Dune", pages=7, rating=3)
    made = call(UPDATE, root, **BOOK, pk=book.pk, values={"price": "2.50", "rating": 3, "author_id": book.author_id})
    version = call(GetRecord(), root, **BOOK, pk=book.pk)["version"]
    assert made.pop("change")
    assert made == {
        "updated": True,
        "changed": ["price"],
        "model": "testapp.book",
        "pk": book.pk,
        "uri": f"django://testapp/book/{book.pk}",
        "label": "Dune",
        "version": version,
        "fields": {"author": [book.author_id, book.author.name], "price": "2.50", "pages": 8, "rating": 3.0},
    }
    untouched = call(UPDATE, root, **BOOK, pk=book.pk, values={})
    assert (untouched["changed"], untouched["fields"]) == ([], {"pages": 9})


def test_the_result_of_a_write_has_no_long_texts_and_get_record_has():
    root = request_of(make_superuser(), site_with(Author, Profile, fields=["name", "author", "biography"]))
    values = {"author": make_author("Ada").pk, "biography": "x" * 5_000}
    made = call(CREATE, root, model="testapp.profile", values=values)
    values = {"author": make_author("Bob").pk, "biography": "y" * 5_000}
    done = call(UPDATE, root, model="testapp.profile", pk=made["pk"], values=values)
    for result in (made, done):
        assert len(result["fields"]["biography"]) < 500
    whole = call(GetRecord(), root, model="testapp.profile", pk=made["pk"])
    assert len(whole["fields"]["biography"]) == 5_000
    # What was cut takes no part in the version.
    assert whole["version"] == done["version"]
