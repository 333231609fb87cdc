"""Many rows changed or deleted by one call."""

import json

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mcp_django import MCPSite, ModelExposure, site
from mcp_django.context.confirmation import Confirmation
from mcp_django.exceptions import Cancelled
from mcp_django.models import Change
from mcp_django.orm.row_finder import RowFinder
from mcp_django.testing import MCPClient
from mcp_django.tools.write_tools import DeleteRecord, UpdateRecord
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.admin import NamedAdmin
from tests.testapp.models import Author, Book, Loan, Note, Tag
from tests.tool_calls import call, history_page, refusal, request_of, result_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

UPDATE, DELETE = UpdateRecord(), DeleteRecord()
BOOK = {"model": "testapp.book"}
LEGACY, MODERN = "2025-06-18", "2026-07-28"


@pytest.fixture
def root():
    return request_of(make_superuser())


def seller(*permissions):
    names = permissions or ("view", "add", "change", "delete")
    return make_user("seller", *(f"testapp.{name}_book" for name in names), "testapp.view_author")


def confirmed(tool, request, **arguments):
    """Call the tool, and again with the token of its preview."""
    token = call(tool, request, **arguments)["confirm_token"]
    return call(tool, request, **arguments, confirm_token=token)


def statuses():
    return list(Book.objects.order_by("pk").values_list("status", flat=True))


# Changing


def test_the_first_call_shows_the_rows_and_what_would_change(root):
    make_book("One", pages=1)
    make_book("Two", pages=2)
    make_book("Three", pages=2)
    arguments = {**BOOK, "filters": {"pages": 2}, "values": {"status": "published", "rating": 4.5}}
    preview = call(UPDATE, root, **arguments)
    assert preview["confirmation_required"] is True
    assert preview["message"] == (
        "This changes 2 rows of testapp.book: status = “published”, rating = “4.5”. It can be taken back for 30 days."
    )
    assert (preview["rows"], preview["objects"]) == (2, ["Two", "Three"])
    assert preview["values"] == {"status": "published", "rating": "4.5"}
    assert statuses() == ["draft"] * 3
    assert not LogEntry.objects.exists()
    done = call(UPDATE, root, **arguments, confirm_token=preview["confirm_token"])
    assert done["updated"] is True
    assert (done["rows"], done["changed_rows"], done["changed"]) == (2, 2, ["status", "rating"])
    assert statuses() == ["draft", "published", "published"]


# What the message of a preview ends with.
KEPT = " It can be taken back for 30 days."


def test_a_preview_names_the_rows_and_choices_that_the_values_mean(root, monkeypatch):
    ada, tag = make_author("Ada"), Tag.objects.create(name="red")
    book = make_book("One")

    def message(**values):
        return call(UPDATE, root, **BOOK, pks=[book.pk], values=values)["message"].partition(": ")[2].removesuffix(KEPT)

    assert message(author=ada.pk) == f"author = “{ada.pk}” (“Ada”)."
    assert message(author="Ada") == "author = “Ada”."
    assert message(tags=[tag.pk]) == f"tags = “[{tag.pk}]” (“red”)."
    assert message(status="withdrawn") == "status = “withdrawn”."
    monkeypatch.setattr(Book._meta.get_field("status"), "choices", [("withdrawn", "Taken back")])
    assert message(status="withdrawn") == "status = “withdrawn” (“Taken back”)."
    hidden = Tag.objects.create(name="hidden")
    book.tags.add(hidden)
    monkeypatch.setattr(NamedAdmin, "get_queryset", lambda self, request: self.model.objects.exclude(name="hidden"))
    assert message(tags=[tag.pk]) == f"tags = “[{tag.pk}]” (“red”)."
    # The user's model is not exposed.
    assert message(owner=root.user.pk) == f"owner = “{root.user.pk}”."


def test_H142_each_row_is_saved_as_the_admin_saves_it(root, client, monkeypatch):
    books = [make_book("One"), make_book("Two", status="published")]
    saved = []
    admin = site.exposures[Book].model_admin
    save_model = type(admin).save_model
    monkeypatch.setattr(
        type(admin),
        "save_model",
        lambda self, request, obj, *rest: saved.append(obj.pk) or save_model(self, request, obj, *rest),
    )
    pks = [book.pk for book in books]
    done = confirmed(UPDATE, root, **BOOK, pks=pks, values={"status": "published"})
    assert (done["rows"], done["changed_rows"]) == (2, 1)
    # The preview tries them first.
    assert saved == [*pks, *pks]
    # A row that has the value already is saved, and has nothing to tell.
    assert [entry.object_id for entry in LogEntry.objects.filter(action_flag=CHANGE)] == [str(pks[0])]
    assert "Changed via MCP: Claude (client-1), update_record." in history_page(client, root.user, books[0])


def test_H143_one_refused_row_stops_all_and_is_named_with_the_reason(root):
    books = [make_book("One"), make_book("Two"), make_book("Three")]
    pks = [book.pk for book in books]
    # A number may be there once.
    text = refusal(UPDATE, root, **BOOK, pks=pks, values={"isbn": "7"})
    assert text.startswith("Nothing was saved, because rows of testapp.book are refused.\nTwo, Three: isbn: ")
    assert not Book.objects.filter(isbn="7").exists()
    assert not LogEntry.objects.exists()


def test_a_value_that_no_page_can_take_is_refused_before_anyone_is_asked(root):
    book = make_book("One")
    assert "title: Give one value" in refusal(UPDATE, root, **BOOK, pks=[book.pk], values={"title": ["x"]})
    wrong = {"price": "cheap", "pages": -1, "status": "lost"}
    text = refusal(UPDATE, root, **BOOK, pks=[book.pk], values=wrong)
    assert "price: Enter a number.\n" in text
    assert "pages: Ensure this value is greater than or equal to 0." in text
    assert "status: Select a valid choice. lost is not one of the available choices. (valid: draft, " in text
    # What is wrong with the row itself does not hinder the others.
    Book.objects.filter(pk=book.pk).update(title="")
    assert call(UPDATE, root, **BOOK, pks=[book.pk], values={"price": "2.00"})["confirm_token"]


def test_what_the_projects_hooks_say_comes_back_once(root, monkeypatch):
    pks = [make_book("One").pk, make_book("Two").pk]
    admin = type(site.exposures[Book].model_admin)
    save_model, delete_queryset = admin.save_model, admin.delete_queryset

    def saying(self, request, *rest):
        self.message_user(request, "Told the shop.")
        save_model(self, request, *rest)

    def deleting(self, request, queryset):
        self.message_user(request, ",".join(request.POST.getlist("_selected_action")))
        delete_queryset(self, request, queryset)

    monkeypatch.setattr(admin, "save_model", saying)
    monkeypatch.setattr(admin, "delete_queryset", deleting)
    done = confirmed(UPDATE, root, **BOOK, pks=pks, values={"pages": 1})
    assert done["messages"] == [{"level": "info", "text": "Told the shop."}]
    done = confirmed(DELETE, root, **BOOK, pks=pks)
    assert done["messages"] == [{"level": "info", "text": f"{pks[0]},{pks[1]}"}]


def test_the_report_of_refused_rows_is_bounded(root):
    pks = [make_book(f"Book with a long name {number} {'x' * 150}").pk for number in range(30)]
    # All but the first of them are refused.
    text = refusal(UPDATE, root, **BOOK, pks=pks, values={"isbn": "7"})
    assert text.count("Book with a long name") == 5
    assert "isbn: " in text


def test_H143_what_only_the_database_refuses_of_one_row_undoes_all(root, monkeypatch):
    pks = [make_book("One").pk, make_book("Two").pk]
    monkeypatch.setattr(Book, "validate_unique", lambda *args, **more: None)
    text = refusal(UPDATE, root, **BOOK, pks=pks, values={"isbn": "7"})
    assert "Two: " in text
    assert "UNIQUE" not in text
    assert not Book.objects.filter(isbn="7").exists()


def test_H137_one_row_that_the_caller_may_not_change_stops_all():
    user = seller()
    mine, shared = make_book("Mine", owner=user), make_book("Shared")
    request = request_of(user)
    text = refusal(UPDATE, request, **BOOK, filters={"pages": 0}, values={"pages": 1})
    assert text.startswith(f"You may not change 1 of these rows of testapp.book: “{shared.pk}: Shared”. Nothing was")
    assert confirmed(UPDATE, request, **BOOK, pks=[mine.pk], values={"pages": 1})["rows"] == 1
    assert Book.objects.get(pk=shared.pk).pages == 0


def test_H137_a_permission_lost_between_preview_and_confirmation_is_missed():
    user = seller()
    arguments = {**BOOK, "pks": [make_book("Mine", owner=user).pk], "values": {"pages": 1}}
    token = call(UPDATE, request_of(user), **arguments)["confirm_token"]
    user.user_permissions.remove(Permission.objects.get(codename="change_book"))
    again = request_of(User.objects.get(pk=user.pk))
    assert "You may not change" in refusal(UPDATE, again, **arguments, confirm_token=token)
    assert Book.objects.get().pages == 0


def test_H121_rows_that_the_caller_does_not_see_are_not_touched():
    user = seller()
    mine, theirs = make_book("Mine", owner=user), make_book("Theirs", owner=make_superuser())
    request = request_of(user)
    assert refusal(UPDATE, request, **BOOK, pks=[mine.pk, theirs.pk], values={"pages": 1}) == RowFinder.NOT_FOUND
    assert refusal(DELETE, request, **BOOK, pks=[theirs.pk]) == RowFinder.NOT_FOUND
    assert confirmed(UPDATE, request, **BOOK, filters={"pages": 0}, values={"pages": 1})["objects"] == ["Mine"]
    assert Book.objects.get(pk=theirs.pk).pages == 0


def test_H147_a_name_that_is_not_writable_is_refused_for_every_row(root):
    author = make_author(secret_token="s3cret")
    arguments = {"model": "testapp.author", "pks": [author.pk], "values": {"secret_token": "x"}}
    assert "You cannot write 'secret_token'" in refusal(UPDATE, root, **arguments)
    author.refresh_from_db()
    assert author.secret_token == "s3cret"


def test_D74_a_confirmation_is_for_these_rows_and_these_values(root):
    one, two = make_book("One", pages=1), make_book("Two", pages=2)
    arguments = {**BOOK, "filters": {"pages": 1}, "values": {"status": "published"}}
    token = call(UPDATE, root, **arguments)["confirm_token"]
    Book.objects.update(pages=1)
    for changed in (
        arguments,
        {**arguments, "values": {"status": "withdrawn"}},
        {**BOOK, "pks": [two.pk], "values": arguments["values"]},
    ):
        again = result_of(UPDATE, root, **changed, confirm_token=token)
        assert again.is_error
        assert again.structured["errors"] == [Confirmation.CHANGED]
    assert statuses() == ["draft", "draft"]
    fresh = result_of(UPDATE, root, **arguments, confirm_token=token).structured
    assert fresh["objects"] == ["One", "Two"]
    assert call(UPDATE, root, **arguments, confirm_token=fresh["confirm_token"])["rows"] == 2
    # Used up.
    assert result_of(UPDATE, root, **arguments, confirm_token=fresh["confirm_token"]).is_error
    assert one.pk


@pytest.mark.parametrize("tool", [UPDATE, DELETE], ids=["update", "delete"])
def test_D85_one_way_to_pick_rows_at_a_time(tool, root):
    pk = make_book().pk
    values = {"values": {"pages": 1}} if tool is UPDATE else {}
    assert "not both" in refusal(tool, root, **BOOK, pk=pk, pks=[pk], **values)
    assert "not both" in refusal(tool, root, **BOOK, pk=pk, search="x", **values)
    assert "Missing argument: pk" in refusal(tool, root, **BOOK, **values)
    assert "Missing argument: pk" in refusal(tool, root, **BOOK, filters={}, pks=[], search="", **values)
    assert "Unknown argument 'all'" in refusal(tool, root, **BOOK, all=True, **values)
    assert "version" in refusal(tool, root, **BOOK, pks=[pk], version="x", **values)
    assert "values is empty" in refusal(UPDATE, root, **BOOK, pks=[pk], values={})
    assert Book.objects.get().pages == 0


def test_H154_a_client_that_goes_half_way_undoes_all(root):
    pks = [make_book().pk for _ in range(3)]
    arguments = {**BOOK, "pks": pks, "values": {"pages": 1}}
    token = call(UPDATE, root, **arguments)["confirm_token"]
    sent = []

    def notify(method, params):
        sent.append((params["progress"], params["total"]))
        root.mcp.cancelled = True

    root.mcp.notify, root.mcp.progress_token = notify, "t"
    with pytest.raises(Cancelled):
        UPDATE.call(root, {**arguments, "confirm_token": token})
    assert sent == [(1, 3)]
    assert not Book.objects.exclude(pages=0).exists()
    assert not LogEntry.objects.exists()


def test_H154_a_call_whose_time_is_over_is_not_committed(root, monkeypatch):
    pk = make_book().pk
    save = Book.save
    monkeypatch.setattr(
        Book, "save", lambda self, *args, **more: setattr(root.mcp, "cancelled", True) or save(self, *args, **more)
    )
    with pytest.raises(Cancelled):
        UPDATE.call(root, {**BOOK, "pk": pk, "values": {"pages": 1}})
    assert Book.objects.get().pages == 0


@pytest.mark.skipif(not connection.features.has_select_for_update, reason="locks rows by locking the database")
def test_H150_the_rows_are_locked_while_they_are_changed(root):
    pks = [make_book().pk for _ in range(3)]
    with CaptureQueriesContext(connection) as queries:
        call(UPDATE, root, **BOOK, pks=pks, values={"pages": 1})
    locking = [query["sql"] for query in queries if "FOR UPDATE" in query["sql"]]
    # The others read what the write may touch.
    assert "testapp_book" in locking[0]
    assert all(str(pk) in locking[0] for pk in pks)


# Deleting


def test_H141_rows_are_deleted_as_delete_selected_does(root, monkeypatch, client):
    pks = [make_book("One").pk, make_book("Two").pk]
    Loan.objects.create(book_id=pks[0], borrower="Ada", due=timezone.now())
    deleted = []
    admin = site.exposures[Book].model_admin
    delete_queryset = type(admin).delete_queryset
    monkeypatch.setattr(
        type(admin),
        "delete_queryset",
        lambda self, request, rows: deleted.append(len(rows)) or delete_queryset(self, request, rows),
    )
    preview = call(DELETE, root, **BOOK, pks=pks)
    assert preview["message"].startswith(
        "This deletes 2 rows of testapp.book in the project's own way, which may only mark them as deleted. In all: "
    )
    assert (preview["rows"], preview["objects"], preview["deletes"]) == (2, ["One", "Two"], {"books": 2, "loans": 1})
    assert Book.objects.count() == 2
    done = call(DELETE, root, **BOOK, pks=pks, confirm_token=preview["confirm_token"])
    assert (done["deleted"], done["rows"]) == (True, 2)
    # The preview tries it first.
    assert deleted == [2, 2]
    assert not Book.objects.exists()
    entries = LogEntry.objects.filter(action_flag=DELETION)
    assert {entry.object_id for entry in entries} == {str(pk) for pk in pks}
    assert all("via MCP" in entry.change_message for entry in entries)


def test_H141_a_protected_row_stops_all_with_the_admins_reasons(root):
    free, used = make_author("Free"), make_book("Dune").author
    text = refusal(DELETE, root, model="testapp.author", pks=[free.pk, used.pk])
    assert text.startswith("Some of these rows of testapp.author cannot be deleted")
    assert "1 book (such as testapp.book" in text
    assert Author.objects.count() == 2


def test_H141_a_cascade_into_what_the_caller_may_not_delete_is_refused():
    user = seller()
    pks = [make_book(owner=user).pk, make_book(owner=user).pk]
    Loan.objects.create(book_id=pks[0], borrower="Ada", due=timezone.now())
    text = refusal(DELETE, request_of(user), **BOOK, pks=pks)
    assert "rows that you may not delete: loan" in text
    assert Book.objects.count() == 2


def test_H141_one_row_that_the_caller_may_not_delete_stops_all():
    user = seller()
    make_book("Draft", owner=user)
    out = make_book("Out", owner=user, status="published")
    text = refusal(DELETE, request_of(user), **BOOK, filters={"pages": 0})
    assert text.startswith(f"You may not delete 1 of these rows of testapp.book: “{out.pk}: Out”.")
    assert Book.objects.count() == 2


def test_D74_a_deletion_whose_extent_changed_is_shown_anew(root):
    pks = [make_book().pk, make_book().pk]
    token = call(DELETE, root, **BOOK, pks=pks)["confirm_token"]
    Loan.objects.create(book_id=pks[0], borrower="Ada", due=timezone.now())
    again = result_of(DELETE, root, **BOOK, pks=pks, confirm_token=token)
    assert again.is_error
    assert again.structured["deletes"] == {"books": 2, "loans": 1}
    assert Book.objects.count() == 2
    assert call(DELETE, root, **BOOK, pks=pks, confirm_token=again.structured["confirm_token"])["deleted"]


def test_the_history_of_many_deletions_is_marked_in_few_queries(root):
    def queries_for(count):
        Tag.objects.bulk_create(Tag(name=f"{count} {number}") for number in range(count))
        arguments = {"model": "testapp.tag", "search": f"{count} "}
        token = call(DELETE, root, **arguments)["confirm_token"]
        with CaptureQueriesContext(connection) as queries:
            call(DELETE, root, **arguments, confirm_token=token)
        return len(queries)

    queries_for(2)
    assert queries_for(30) == queries_for(31)
    assert LogEntry.objects.filter(action_flag=DELETION, change_message__contains="via MCP").count() == 63


def test_a_plain_exposure_deletes_by_one_query_and_can_decide_otherwise(root):
    seen = []

    class Own(ModelExposure):
        fields = ["name"]
        search_fields = ["name"]

        def delete_queryset(self, request, queryset):
            seen.append(queryset.count())
            super().delete_queryset(request, queryset)

    own = MCPSite("own")
    own.register(Tag, Own)
    for name in ("a", "b"):
        Tag.objects.create(name=name)
    request = request_of(root.user, own)
    assert confirmed(DELETE, request, model="testapp.tag", search="a")["deletes"] == {"tags": 1}
    assert (seen, [tag.name for tag in Tag.objects.all()]) == ([1, 1], ["b"])


def test_rows_of_a_model_without_a_foreign_key_are_deleted_too(root):
    author = make_author()
    note = Note.objects.create(target=author, text="x")
    assert confirmed(DELETE, root, model="testapp.note", pks=[note.pk])["deletes"] == {"notes": 1}


# Over the wire


@pytest.mark.parametrize("version", [LEGACY, MODERN])
def test_77_a_client_that_cannot_ask_confirms_with_a_token(version):
    for title in ("One", "Two"):
        make_book(title)
    client = MCPClient(make_superuser(), version=version)
    arguments = {**BOOK, "filters": {"status": "draft"}, "values": {"status": "withdrawn"}}
    preview = client.call("update_record", **arguments)
    assert json.loads(preview.text) == preview.structured
    done = client.call("update_record", **arguments, confirm_token=preview.structured["confirm_token"])
    assert done.structured["changed_rows"] == 2
    preview = client.call("delete_record", **BOOK, search="one").structured
    assert client.call("delete_record", **BOOK, search="one", confirm_token=preview["confirm_token"]).structured[
        "deleted"
    ]
    assert Book.objects.get().title == "Two"


def test_77_a_client_that_asks_its_user_needs_no_token():
    for title in ("One", "Two"):
        make_book(title)
    root = make_superuser()
    arguments = {**BOOK, "filters": {"status": "draft"}, "values": {"status": "withdrawn"}}
    assert MCPClient(root, answers={"_confirm": None}).call("update_record", **arguments).is_error
    assert statuses() == ["draft", "draft"]
    consenting = MCPClient(root, answers={"_confirm": True})
    assert consenting.call("update_record", **arguments).structured["changed_rows"] == 2
    assert consenting.call("delete_record", **BOOK, filters={"status": "withdrawn"}).structured["rows"] == 2
    assert not Book.objects.exists()


def test_a_change_is_summed_up_as_it_was_asked_for(root):
    make_book("One", price="10.00")
    ada = make_author("Ada")
    rise = {"price": {"field": "price*1.05", "round": "0.10"}, "author": ada.pk}
    number = confirmed(UPDATE, root, **BOOK, filters={"title": "One"}, values=rise)["change"]
    summary = Change.objects.get(pk=number).summary
    assert summary == f"1 row of testapp.book: author = “{ada.pk}” (“Ada”), price = “price*1.05, rounded to 0.10”"
