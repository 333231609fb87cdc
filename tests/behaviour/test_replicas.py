"""A project that reads from a replica which is behind: what a call writes comes from the database that it writes to."""

from contextlib import contextmanager

import pytest
from django.apps import apps

if not apps.is_installed("tests.databases_project.store"):
    pytest.skip("needs the settings of the project with several databases", allow_module_level=True)

from django.conf import settings as django_settings
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connections, router
from django.test.utils import CaptureQueriesContext

from mcp_django import ModelExposure
from mcp_django.testing import MCPClient
from mcp_django.tools.query_records import QueryRecords
from tests.databases_project.store.models import Depot
from tests.databases_project.store.routers import StoreRouter, reads_from
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author, Book, Loan, Profile, Tag
from tests.tool_calls import call, request_of, site_with

pytestmark = pytest.mark.django_db(databases=["default", "other", "behind"])
AUTHOR, BOOK = "testapp.author", "testapp.book"


def replicate(*rows):
    """Let the replica have rows as they are now."""
    for row in rows:
        type(row)(**{field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}).save(
            using="behind", force_insert=True
        )


@pytest.fixture
def author():
    """An author whose change, profile and second book the replica does not have yet."""
    author = make_author("Ursula", email="old@example.com")
    book = make_book("First", author=author, pages=100)
    replicate(author, book)
    Author.objects.filter(pk=author.pk).update(email="new@example.com")
    Book.objects.filter(pk=book.pk).update(pages=200)
    Profile.objects.create(author=author, biography="Long")
    make_book("Second", author=author)
    token = reads_from.set("behind")
    yield author
    reads_from.reset(token)


@pytest.fixture
def client(author):
    return MCPClient(make_superuser())


def done(found):
    assert not found.is_error, found.text
    return found.structured


def stored(model, **lookups):
    return model._base_manager.using("default").get(**lookups)


@contextmanager
def unread():
    """Expect that nothing asks the replica."""
    with CaptureQueriesContext(connections["behind"]) as asked:
        yield
    assert [query["sql"] for query in asked] == []


def test_a_read_reads_the_replica(client, author):
    assert done(client.call("get_record", model=AUTHOR, pk=author.pk))["fields"]["email"] == "old@example.com"


def test_a_filter_leads_into_a_table_of_the_replica_that_is_otherwise_read_in_the_primary(author):
    site = site_with(Book)
    site.register(User, ModelExposure, fields=["username"])
    user = make_superuser("ann")
    replicate(user)
    Book.objects.using("behind").update(owner=user)
    found = call(
        QueryRecords(), request_of(user, site), model=BOOK, filters={"owner.username": "ann"}, fields=["title"]
    )
    assert [row[1] for row in found["rows"]] == ["First"]


def test_an_update_keeps_what_others_have_written(client, author):
    with unread():
        found = done(client.call("update_record", model=AUTHOR, pk=author.pk, values={"name": "U. K."}))
    assert found["fields"]["name"] == "U. K."
    assert stored(Author, pk=author.pk).email == "new@example.com"


def test_a_version_of_the_replica_is_an_old_one(client, author):
    version = done(client.call("get_record", model=AUTHOR, pk=author.pk))["version"]
    change = {"model": AUTHOR, "pk": author.pk, "values": {"name": "U. K."}}
    assert client.call("update_record", **change, version=version).is_error
    first = done(client.call("update_record", **change))
    with unread():
        done(client.call("update_record", **{**change, "values": {"name": "Ursula"}}, version=first["version"]))


def test_a_row_that_was_made_just_now_is_shown_changed_and_deleted(client, author):
    tag = Tag.objects.using("default").create(name="fresh")
    values = {"title": "New", "author": author.pk, "isbn": "9", "price": "1.00", "tags": [tag.pk], "status": "draft"}
    with unread():
        made = done(client.call("create_record", model=BOOK, values=values))
        assert (made["fields"]["title"], made["fields"]["tags"]) == ("New", [[tag.pk, "fresh"]])
        done(client.call("update_record", model=BOOK, pk=made["pk"], values={"pages": 3}))
        asked = done(client.call("delete_record", model=BOOK, pk=made["pk"]))
        done(client.call("delete_record", model=BOOK, pk=made["pk"], confirm_token=asked["confirm_token"]))
    assert not Book.objects.using("default").filter(pk=made["pk"]).exists()


def test_what_must_be_unique_is_compared_with_the_primary(client, author):
    isbn = stored(Book, title="Second").isbn
    values = {"title": "Third", "author": author.pk, "isbn": isbn, "price": "1.00", "status": "draft"}
    assert "ISBN already exists" in client.call("create_record", model=BOOK, values=values).text


def test_a_deletion_shows_all_that_goes(client, author):
    book = stored(Book, title="First")
    Loan.objects.using("default").create(book=book, borrower="Ann", due="2026-01-01T00:00:00Z")
    with unread():
        asked = done(client.call("delete_record", model=BOOK, pk=book.pk))
    assert asked["deletes"] == {"books": 1, "loans": 1}


def test_inlines_are_those_of_the_primary(client, author):
    profile = stored(Profile, author=author)
    values = {"profile": [{"pk": profile.pk, "website": "https://ursula.example"}]}
    with unread():
        done(client.call("update_record", model=AUTHOR, pk=author.pk, values=values))
    assert stored(Profile, author=author).biography == "Long"
    assert stored(Profile, author=author).website == "https://ursula.example"


@pytest.mark.parametrize("picked", [{"pks": True}, {"filters": {"author__name": "Ursula"}}])
def test_many_rows_are_changed_as_they_are(client, author, picked):
    second = stored(Book, title="Second")
    if "pks" in picked:
        picked = {"pks": [second.pk, stored(Book, title="First").pk]}
    change = {"model": BOOK, **picked, "values": {"active": False}}
    with unread():
        asked = done(client.call("update_record", **change))
        done(client.call("update_record", **change, confirm_token=asked["confirm_token"]))
    assert {(book.pages, book.active) for book in Book.objects.using("default")} == {(200, False), (0, False)}


@pytest.mark.parametrize("picked", [{"pks": True}, {"filters": {"author__name": "Ursula"}}])
@pytest.mark.parametrize("tool", ["run_action", "publish_testapp_book"])
def test_an_action_has_the_rows_of_the_primary(client, author, tool, picked):
    second = stored(Book, title="Second")
    more = {"model": BOOK, "action": "publish"} if tool == "run_action" else {}
    arguments = {**more, **({"pks": [second.pk]} if "pks" in picked else picked)}
    with unread():
        found = done(client.call(tool, **arguments))
        if "confirm_token" in found:
            assert found["objects"] == ["First", "Second"]
            done(client.call(tool, **arguments, confirm_token=found["confirm_token"]))
    assert stored(Book, pk=second.pk).status == Book.Status.PUBLISHED


def test_a_repeated_call_gets_the_result_of_the_first(client, author):
    arguments = {"model": AUTHOR, "values": {"name": "Ann"}, "idempotency_key": "a"}
    change = {"model": BOOK, "pk": stored(Book, title="Second").pk, "values": {"pages": 9}, "idempotency_key": "b"}
    with unread():
        assert done(client.call("create_record", **arguments)) == done(client.call("create_record", **arguments))
        assert done(client.call("update_record", **change)) == done(client.call("update_record", **change))
    assert Author.objects.using("default").filter(name="Ann").count() == 1


def test_guards_look_at_the_row_of_the_primary(author):
    book = stored(Book, title="First")
    user = make_user("ann", "testapp.view_book", "testapp.change_book", "testapp.delete_book", "testapp.view_author")
    Book.objects.using("default").filter(pk=book.pk).update(owner=user, status=Book.Status.PUBLISHED)
    client = MCPClient(user)
    with unread():
        done(client.call("update_record", model=BOOK, pk=book.pk, values={"pages": 1}))
        assert "not delete this row" in client.call("delete_record", model=BOOK, pk=book.pk).text
    Book.objects.using("default").filter(pk=book.pk).update(owner=make_user("bob"))
    assert client.call("update_record", model=BOOK, pk=book.pk, values={"pages": 2}).is_error


def test_the_history_tells_what_has_changed_on_the_primary(client, author):
    change = {"email": "old@example.com", "name": "Ursula"}
    found = done(client.call("update_record", model=AUTHOR, pk=author.pk, values=change))
    assert found["changed"] == ["email"]
    assert "Email" in LogEntry.objects.get(object_id=str(author.pk)).get_change_message()


def test_a_queryset_that_names_its_database_is_read_there(client, author, monkeypatch):
    book_admin = type(admin.site.get_model_admin(Book))
    monkeypatch.setattr(book_admin, "get_queryset", lambda self, request: Book.objects.using("behind"))
    shown = client.call("update_record", model=BOOK, pk=stored(Book, title="Second").pk, values={"pages": 1})
    assert "No such record" in shown.text


class Silent:
    """Names where rows are read, and not where they are written."""

    def db_for_read(self, model, **hints):
        return StoreRouter().db_for_read(model)


class Refusing(Silent):
    def db_for_write(self, model, **hints):
        if model._meta.app_label == "store":
            raise RuntimeError("The store is another application's")


class Elsewhere(Silent):
    def allow_migrate(self, db, app_label, **hints):
        return (db == "other") == (app_label == "store")


@pytest.mark.parametrize("kind", [Refusing, Elsewhere])
def test_a_model_that_is_only_read_is_read_where_it_is(client, author, settings, monkeypatch, kind):
    def save_model(self, request, obj, form, change):
        obj.title = Depot.objects.get().name
        obj.save()

    Depot.objects.using("other").create(name="Far")
    settings.DATABASE_ROUTERS = [kind()]
    monkeypatch.setattr(type(admin.site.get_model_admin(Book)), "save_model", save_model)
    second = stored(Book, title="Second")
    with unread():
        done(client.call("update_record", model=BOOK, pk=second.pk, values={"pages": 1}))
    assert stored(Book, pk=second.pk).title == "Far"


def test_other_reads_of_the_process_stay_where_they_are(client, author):
    done(client.call("update_record", model=AUTHOR, pk=author.pk, values={"name": "U. K."}))
    assert router.db_for_read(Author) == "behind"
    assert Author.objects.get(pk=author.pk).email == "old@example.com"
    assert len(django_settings.DATABASE_ROUTERS) == 1
