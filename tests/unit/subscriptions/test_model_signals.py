import gc
import json
import threading

import pytest
from django.contrib.auth.models import Permission
from django.core import serializers
from django.db import DatabaseError, connections, transaction
from django.db.backends.signals import connection_created

from mcp_django import MCPSite, ModelExposure
from mcp_django.signals import rows_changed
from mcp_django.subscriptions import model_signals
from mcp_django.subscriptions.bus import bus
from mcp_django.subscriptions.changes import CHANGES, MAX_ROWS, Changes
from mcp_django.subscriptions.model_signals import (
    after_commit,
    ends_of,
    notify_changed,
    notify_list_changed,
    relations_of,
    same_rows,
)
from tests.factories import make_author, make_book, make_superuser
from tests.subscribers import Recorder, rolled_back
from tests.testapp.models import AudioBook, Author, Book, Placement, Profile, PublishedBook, Section, Shelf, Tag
from tests.tool_calls import call, request_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def recorder(monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr("mcp_django.subscriptions.bus.bus.put", recorder.put)
    return recorder


@pytest.fixture
def told(recorder, django_capture_on_commit_callbacks):
    """What is told of work that is committed, but for the history, which a site of another test may have exposed."""

    def run(work):
        recorder.messages.clear()
        with django_capture_on_commit_callbacks(execute=True):
            work()
        return {label: keys for label, keys in recorder.rows().items() if label != "admin.logentry"}

    return run


def pk(row):
    return [str(row.pk)]


# Which rows are one row


def test_a_model_by_itself_has_its_own_rows():
    assert same_rows(Author) == ((Author, "pk"),)


def test_rows_of_proxies_and_children_are_rows_of_the_model():
    expected = {Book: "pk", PublishedBook: "pk", AudioBook: "id"}
    assert dict(same_rows(Book)) == expected
    assert dict(same_rows(PublishedBook)) == expected


def test_rows_of_a_child_are_rows_of_its_parent_and_of_the_parents_proxies():
    assert dict(same_rows(AudioBook)) == {Book: "id", PublishedBook: "id", AudioBook: "pk"}


def test_the_tables_of_relations_are_found_from_both_ends():
    assert set(relations_of(Book)) == {Book.tags.through, Placement}
    assert set(relations_of(Tag)) == {Book.tags.through}
    assert set(relations_of(Shelf)) == {Placement}
    assert set(relations_of(Author)) == set()


def test_a_relation_with_a_model_of_its_own_has_two_ends():
    assert dict(ends_of(Placement)) == {Shelf: "shelf_id", Book: "book_id"}
    assert dict(ends_of(Book.tags.through)) == {Book: "book_id", Tag: "tag_id"}
    assert ends_of(Book) == ()


# Signals


def test_105_a_row_that_is_made_saved_or_deleted_is_told(told):
    author = make_author()
    key = pk(author)
    assert told(lambda: Author(pk=77, name="New").save()) == {"testapp.author": ["77"]}
    assert told(author.save) == {"testapp.author": key}
    assert told(lambda: author.save(update_fields=["name"])) == {"testapp.author": key}
    assert told(author.delete) == {"testapp.author": key}


def test_105_what_a_cascade_takes_is_told_too(told):
    author = make_author()
    profile = Profile.objects.create(author=author)
    site = MCPSite()
    site.register(Profile, ModelExposure)
    model_signals.connect_models()
    key = pk(profile)
    assert told(Author.objects.filter(pk=author.pk).delete)["testapp.profile"] == key


def test_105_a_change_of_the_proxy_or_the_child_is_one_of_the_table(told):
    audio = AudioBook.objects.create(title="Heard", author=make_author(), isbn="x", price=5, narrator="N")
    everywhere = dict.fromkeys(["testapp.audiobook", "testapp.book", "testapp.publishedbook"], pk(audio))
    assert told(audio.save) == everywhere
    assert told(Book.objects.get().save) == everywhere
    assert told(PublishedBook._base_manager.get().save) == everywhere
    assert told(audio.delete) == everywhere


def test_105_many_to_many_changes_are_told_at_both_ends(told):
    book, tags = make_book(), [Tag.objects.create(name=f"{i}") for i in range(2)]
    both = {
        **dict.fromkeys(["testapp.audiobook", "testapp.book", "testapp.publishedbook"], pk(book)),
        "testapp.tag": pk(tags[0]),
    }
    assert told(lambda: book.tags.add(tags[0])) == both
    assert told(lambda: book.tags.add(tags[0])) == {}
    assert told(lambda: book.tags.remove(tags[0])) == both
    assert told(lambda: tags[0].books.add(book)) == both
    assert told(lambda: book.tags.set(tags))["testapp.tag"] == pk(tags[1])
    # Which tags a book had is not asked for: any of them.
    assert told(book.tags.clear) == {**both, "testapp.tag": None}


def test_105_a_row_of_the_relations_own_table_is_a_change_of_both_ends(told):
    book, shelf = make_book(), Shelf.objects.create(code="A/1 ?")
    found = told(lambda: Placement.objects.create(book=book, shelf=shelf))
    assert (found["testapp.book"], found["testapp.shelf"]) == (pk(book), ["A/1 ?"])
    assert told(Placement.objects.all().delete)["testapp.shelf"] == ["A/1 ?"]


def test_105_bulk_operations_are_not_told(told):
    author = make_author()
    assert told(lambda: Author.objects.update(name="x")) == {}
    assert told(lambda: Author.objects.bulk_create([Author(name="y")])) == {}
    assert told(lambda: Author.objects.bulk_update([author], ["name"])) == {}


def test_fixtures_are_told(told):
    data = json.dumps([{"model": "testapp.author", "pk": 5, "fields": {"name": "From a file"}}])

    def load():
        for item in serializers.deserialize("json", data):
            item.save()

    assert told(load) == {"testapp.author": ["5"]}


def test_a_key_has_one_spelling_whatever_the_code_left_in_the_attribute(told):
    section = Section.objects.create(name="s")
    key, section.pk = str(section.pk), section.pk.hex.upper()
    assert told(section.save) == {"testapp.section": [key]}
    assert told(Author(pk="0012", name="n").save) == {"testapp.author": ["12"]}


def test_the_apps_own_writes_are_told(told):
    from mcp_django.tools.write_tools import CreateRecord

    request = request_of(make_superuser(), scopes=frozenset({"mcp:read", "mcp:write"}))
    work = lambda: call(CreateRecord(), request, model="testapp.tag", values={"name": "made"})  # noqa: E731
    assert told(work) == {"testapp.tag": pk(Tag.objects.get(name="made"))}


def test_105_rows_that_a_tool_changed_without_signals_are_told(told, monkeypatch, caplog):
    authors = [make_author() for _ in range(2)]
    work = lambda: rows_changed.send(sender=Author, rows=authors)  # noqa: E731
    assert told(work) == {"testapp.author": sorted(str(author.pk) for author in authors)}
    assert told(lambda: rows_changed.send(sender=Author, rows=[])) == {}
    assert told(lambda: rows_changed.send(sender=Author, rows=["?"])) == {}
    assert "could not be announced" in caplog.text


def test_104_nothing_is_told_of_a_save_that_is_rolled_back(told, recorder):
    def work():
        with rolled_back():
            make_author()

    assert told(work) == {}


# Who is listened to


def test_a_model_of_a_closed_app_is_listened_to_when_a_project_registers_it(told):
    site = MCPSite()
    site.register(Permission, ModelExposure)
    model_signals.connect_models()
    permission = Permission.objects.first()
    assert told(permission.save) == {"auth.permission": pk(permission)}


def test_no_registry_is_built_for_it(monkeypatch):
    def fail(self):
        raise AssertionError

    monkeypatch.setattr(MCPSite, "_build", fail)
    site = MCPSite()
    site.register(Profile, ModelExposure)
    assert Profile in model_signals._exposed
    assert "_exposures" not in vars(site)


def test_a_registry_that_fails_does_not_fail_the_connection(monkeypatch, caplog):
    monkeypatch.setattr(model_signals, "_sites", [None])
    connection_created.connect(model_signals._first_used, dispatch_uid="mcp_django")
    for _ in range(2):
        connection_created.send(sender=None, connection=connections["default"])
    # The registry is looked at once: not with every connection.
    assert caplog.text.count("not listened to") == 1


def test_turned_off_nothing_is_told(told, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "EVENTS": False}
    author = make_author()

    def work():
        author.save()
        notify_changed(author, Author, "shop://x")
        notify_list_changed()

    assert told(work) == {}


def test_211_what_goes_wrong_in_telling_does_not_fail_the_save(told, monkeypatch, caplog):
    def fail(*args, **kwargs):
        raise ZeroDivisionError

    author = make_author()
    monkeypatch.setattr(model_signals, "same_rows", fail)
    assert told(author.save) == {}
    assert "could not be announced" in caplog.text


# What the project tells


def test_105_instances_lists_models_and_querysets_can_be_told(told):
    authors = [make_author() for _ in range(3)]
    keys = sorted(str(author.pk) for author in authors)
    first = Author.objects.order_by("pk")[:1]
    assert told(lambda: notify_changed(authors[0])) == {"testapp.author": pk(authors[0])}
    assert told(lambda: notify_changed(authors)) == {"testapp.author": keys}
    assert told(lambda: notify_changed(tuple(authors), [])) == {"testapp.author": keys}
    assert told(lambda: notify_changed(Author)) == {"testapp.author": None}
    assert told(lambda: notify_changed(Author.objects.order_by("-pk"))) == {"testapp.author": keys}
    assert told(lambda: notify_changed(first)) == {"testapp.author": pk(authors[0])}


def test_a_queryset_is_one_of_all_models_of_its_table(told):
    book = make_book()
    expected = dict.fromkeys(["testapp.audiobook", "testapp.book", "testapp.publishedbook"], pk(book))
    assert told(lambda: notify_changed(Book.objects.all())) == expected


def test_a_queryset_whose_rows_do_not_match_any_more_stands_for_any_rows(told):
    author = make_author("old")
    old = Author.objects.filter(name="old")

    def late():
        old.update(name="new")
        notify_changed(old)

    def early():
        notify_changed(old)
        old.update(name="newer")

    assert told(late) == {"testapp.author": None}
    author.save()
    assert told(early) == {"testapp.author": pk(author)}


def test_a_queryset_of_very_many_rows_stands_for_any_rows(told, django_assert_num_queries):
    Author.objects.bulk_create(Author(name="x") for _ in range(MAX_ROWS + 1))

    def work():
        with django_assert_num_queries(1):
            notify_changed(Author.objects.all())

    assert told(work) == {"testapp.author": None}


def test_uris_are_told_as_rows_or_as_they_are(told, recorder):
    uris = ["shop://x", "django://testapp/tag", "django://testapp/tag/schema"]
    assert told(lambda: notify_changed("django://testapp/book/5", "django://testapp/book/6/cover", *uris)) == {
        "testapp.book": ["5", "6"]
    }
    assert sorted(uri for _, payload in recorder.messages for uri in payload.get("uris", [])) == sorted(uris)


@pytest.mark.parametrize("target", [5, None, ["text"], object, {}], ids=repr)
def test_anything_else_is_an_error(target):
    with pytest.raises(TypeError, match="is not a row"):
        notify_changed(target)


def test_104_what_the_project_tells_waits_for_the_commit(recorder, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        notify_changed("shop://x")
        notify_list_changed("tools")
        assert recorder.messages == []
    assert dict(recorder.messages) == {"changes": {"uris": ["shop://x"]}, "lists": [["tools", None]]}


def test_lists_are_told_by_kind_and_site(told, recorder):
    with transaction.atomic():
        told(lambda: (notify_list_changed("tools", site=MCPSite("staff")), notify_list_changed("prompts")))
    assert recorder.messages == [("lists", [["prompts", None], ["tools", "staff"]])]
    told(notify_list_changed)
    assert recorder.messages == [("lists", [["prompts", None], ["resources", None], ["tools", None]])]


def test_a_list_that_is_none_is_an_error():
    with pytest.raises(ValueError, match="Unknown list: toys"):
        notify_list_changed("toys")


# Transactions


@pytest.fixture
def committed(recorder):
    return lambda: recorder.rows().get("a.b", [])


def change(pk, using="default", **options):
    after_commit(using, Changes(rows={"a.b": {pk}}), **options)


@pytest.mark.django_db(transaction=True)
def test_without_a_transaction_a_change_is_told_at_once(committed):
    change("1")
    assert committed() == ["1"]


@pytest.mark.django_db(transaction=True)
def test_104_a_change_is_told_when_it_is_committed_and_once(committed):
    with transaction.atomic():
        change("1")
        change("1")
        with transaction.atomic():
            change("2")
        assert committed() == []
    assert committed() == ["1", "2"]
    with transaction.atomic():
        change("3")
    assert committed() == ["1", "2", "3"]


@pytest.mark.django_db(transaction=True)
def test_104_a_rolled_back_change_tells_nobody(committed):
    with rolled_back():
        change("1")
    assert committed() == []
    with transaction.atomic():
        change("2")
    assert committed() == ["2"]


@pytest.mark.django_db(transaction=True)
def test_104_a_savepoint_that_is_rolled_back_tells_nobody_of_what_was_within(committed):
    with transaction.atomic():
        change("before")
        for number in range(2):
            with rolled_back():
                change(f"within {number}")
                with transaction.atomic():
                    change(f"deeper {number}")
            change(f"after {number}")
        with transaction.atomic():
            change("kept")
    assert committed() == ["after 0", "after 1", "before", "kept"]


@pytest.mark.django_db(transaction=True)
def test_104_a_block_without_a_savepoint_shares_the_fate_of_the_transaction(committed):
    with rolled_back(), transaction.atomic(savepoint=False):
        change("1")
    with transaction.atomic():
        with transaction.atomic(savepoint=False):
            change("2")
        with transaction.atomic(savepoint=False):
            change("3")
    assert committed() == ["2", "3"]


@pytest.mark.django_db(transaction=True)
def test_many_changes_of_one_transaction_take_one_place_in_it(committed):
    connection = transaction.get_connection()
    with transaction.atomic():
        for number in range(5000):
            change(str(number))
        assert len(connection.run_on_commit) == 1
    assert committed() is None


@pytest.mark.django_db(transaction=True)
def test_nothing_is_left_of_a_transaction_that_was_rolled_back(committed):
    with rolled_back():
        change("1")
    gc.collect()
    assert not [item for item in gc.get_objects() if isinstance(item, model_signals._Batch)]


@pytest.mark.django_db
def test_callbacks_that_a_test_runs_itself_tell_as_a_commit_does(committed, django_capture_on_commit_callbacks):
    for number in range(2):
        with django_capture_on_commit_callbacks(execute=True) as callbacks:
            change(str(number))
        assert len(callbacks) == 1
    assert committed() == ["0", "1"]


@pytest.mark.django_db(transaction=True)
def test_with_autocommit_turned_off_by_hand_only_the_project_itself_tells(committed):
    transaction.set_autocommit(False)
    try:
        change("1")
        change("2", explicit=True)
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert committed() == ["2"]


@pytest.mark.django_db(transaction=True)
async def test_a_coroutine_tells_at_once(committed):
    change("1", explicit=True)
    assert committed() == ["1"]


def test_a_database_that_is_not_there_has_no_transaction(committed, monkeypatch):
    def fail(*args, **kwargs):
        raise DatabaseError

    monkeypatch.setattr(transaction, "on_commit", fail)
    change("1")
    assert committed() == ["1"]


@pytest.mark.django_db(transaction=True)
def test_a_hub_that_fails_does_not_fail_the_commit(committed, monkeypatch, caplog):
    def fail(*args):
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr("mcp_django.subscriptions.bus.bus.put", fail)
        with transaction.atomic():
            change("1")
    assert "on_commit" in caplog.text
    change("2")
    assert committed() == ["2"]


@pytest.mark.django_db(transaction=True)
def test_what_a_hub_that_cannot_start_did_not_tell_is_told_later(monkeypatch):
    def fail(self):
        raise RuntimeError("can't start new thread")

    heard = []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        unsubscribe = bus.subscribe(CHANGES, lambda changes: heard.append(changes.rows))
        with transaction.atomic():
            change("1")
    change("2")
    bus.close()
    unsubscribe()
    assert heard == [{"a.b": {"1", "2"}}]
