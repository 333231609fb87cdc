import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from django.contrib.admin.models import LogEntry
from django.db.models.signals import post_save

from mcp_django import ModelExposure
from mcp_django.models import Change
from mcp_django.testing import MCPClient
from mcp_django.tools.write_tools import WriteRecords
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author, Book, Loan, Section, Tag
from tests.tool_calls import call, refusal, request_of, site_with

pytestmark = pytest.mark.django_db

WRITE = WriteRecords()
NEW = {"title": "New", "isbn": "9", "price": "1"}


@pytest.fixture
def root():
    return request_of(make_superuser())


def test_several_writes_are_made_in_order(root):
    author, book = make_author("Ada"), make_book("Dune", price="5.00")
    writes = [
        {"op": "create", "model": "testapp.book", "values": {**NEW, "author": author.pk}},
        {"op": "update", "model": "testapp.book", "pk": book.pk, "values": {"price": "6.00"}},
        {"op": "update", "model": "testapp.book", "by": "isbn", "rows": [{"isbn": "9", "pages": 7}]},
    ]
    done = call(WRITE, root, writes=writes)
    assert done["written"] == 3
    assert Book.objects.get(isbn="9").pages == 7
    book.refresh_from_db()
    assert book.price == Decimal("6.00")
    change = Change.objects.get()
    assert (change.pk, change.rows, change.tool) == (done["change"], 3, "write_records")
    assert LogEntry.objects.count() == 3


def test_a_new_row_is_named_by_its_ref_in_relations(root):
    tag = Tag.objects.create(name="old")
    writes = [
        {"op": "create", "model": "testapp.tag", "ref": "tag", "values": {"name": "fresh"}},
        {"op": "create", "model": "testapp.author", "ref": "ada", "values": {"name": "Ada"}},
        {
            "op": "create",
            "model": "testapp.book",
            "values": {**NEW, "author": {"ref": "ada"}, "tags": [{"ref": "tag"}, tag.pk]},
        },
    ]
    call(WRITE, root, writes=writes)
    book = Book.objects.get()
    assert book.author.name == "Ada"
    assert {tag.name for tag in book.tags.all()} == {"old", "fresh"}


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"author": {"ref": "bob"}}, "no write before this one has the ref 'bob'. refs so far: tag."),
        ({"author": {"ref": "tag"}}, "the row 'tag' is no testapp.author."),
        ({"author": {"ref": ["tag"]}}, "no write before this one has the ref"),
        ({"title": {"ref": "tag"}}, "title: Give one value, not a list or an object."),
    ],
)
def test_a_ref_is_for_relations_to_its_row_alone(root, values, text):
    writes = [
        {"op": "create", "model": "testapp.tag", "ref": "tag", "values": {"name": "fresh"}},
        {"op": "create", "model": "testapp.book", "values": {**NEW, "author": make_author().pk, **values}},
    ]
    answer = refusal(WRITE, root, writes=writes)
    assert answer.startswith("Write 2 of 2: ")
    assert text in answer
    assert not Tag.objects.exists()
    assert not Book.objects.exists()
    assert not LogEntry.objects.exists()


def test_an_object_in_a_json_field_stays_what_it_is(root):
    values = {**NEW, "author": make_author().pk, "data": {"ref": "tag"}}
    call(WRITE, root, writes=[{"op": "create", "model": "testapp.book", "values": values}])
    assert Book.objects.get().data == {"ref": "tag"}


def test_all_is_written_or_nothing(root):
    book = make_book("Dune")
    writes = [
        {"op": "update", "model": "testapp.book", "pk": book.pk, "values": {"pages": 7}},
        {"op": "create", "model": "testapp.tag", "values": {"name": ""}},
    ]
    assert refusal(WRITE, root, writes=writes) == ("Write 2 of 2: Nothing was saved:\nname: This field is required.")
    book.refresh_from_db()
    assert book.pages == 0
    assert not Change.objects.exists()


def test_the_merge_of_two_rows_is_one_call_with_one_confirmation():
    good, bad = make_author("Ada Evans"), make_author("Ada Ibarra")
    for number in range(5):
        make_book(f"B{number}", author=bad)
    client = MCPClient(make_superuser(), capabilities={})
    writes = [
        {"op": "update", "model": "testapp.book", "filters": {"author": bad.pk}, "values": {"author": good.pk}},
        {"op": "delete", "model": "testapp.author", "pk": bad.pk},
    ]
    asked = client.call("write_records", writes=writes).structured
    assert asked["confirmation_required"] is True
    assert asked["difference"]["summary"] == "5 books: author Ada Ibarra -> Ada Evans; author Ada Ibarra deleted"
    assert asked["difference"]["counts"] == {"testapp.book": {"changed": 5}, "testapp.author": {"deleted": 1}}
    assert Author.objects.count() == 2
    # A row that changes meanwhile is shown anew.
    Book.objects.filter(title="B0").update(pages=3)
    again = client.call("write_records", writes=writes, confirm_token=asked["confirm_token"]).structured
    assert again["confirmation_required"] is True
    done = client.call("write_records", writes=writes, confirm_token=again["confirm_token"]).structured
    assert done["written"] == 2
    assert Book.objects.filter(author=good).count() == 5
    assert list(Author.objects.all()) == [good]


def test_a_dry_run_shows_all_steps_together(root):
    book = make_book("Dune")
    writes = [
        {"op": "create", "model": "testapp.author", "ref": "new", "values": {"name": "Ada"}},
        {"op": "update", "model": "testapp.book", "pk": book.pk, "values": {"author": {"ref": "new"}}},
    ]
    shown = call(WRITE, root, writes=writes, dry_run=True)
    [row] = shown["changed"]["testapp.book"]
    assert row["columns"]["author"] == [[book.author_id, book.author.name], ["(set when written)", "Ada"]]
    assert Author.objects.count() == 1
    assert call(WRITE, root, writes=writes, version=shown["version"])["written"] == 2


def test_rights_are_checked_at_each_step():
    user = make_user("clerk", "testapp.view_book", "testapp.change_book", "testapp.view_author", "testapp.view_tag")
    book = make_book("Dune", owner=user)
    writes = [
        {"op": "update", "model": "testapp.book", "pk": book.pk, "values": {"pages": 7}},
        {"op": "create", "model": "testapp.tag", "values": {"name": "x"}},
    ]
    text = refusal(WRITE, request_of(user), writes=writes)
    assert text == "Write 2 of 2: You may view but not add rows of testapp.tag. Nothing was changed."
    assert not Tag.objects.exists()
    book.refresh_from_db()
    assert book.pages == 0


@pytest.mark.parametrize(
    ("writes", "text"),
    [
        ([], "writes must be a list of 1 to 20 objects"),
        ({"op": "create"}, "writes must be a list of 1 to 20 objects"),
        ([{"model": "testapp.tag"}], "Write 1 of 1: op must be one of create, update, delete"),
        ([{"op": "run", "model": "testapp.tag"}], "Write 1 of 1: op must be one of create, update, delete"),
        ([{"op": "create", "model": "testapp.nothing", "values": {}}], "Write 1 of 1: No such model."),
        (
            [{"op": "create", "model": "testapp.tag", "values": {}, "dry_run": True}],
            "Write 1 of 1: dry_run is for the whole call",
        ),
        ([{"op": "delete", "model": "testapp.tag", "pk": 1, "ref": "x"}], "Write 1 of 1: ref is a text that names"),
        (
            [{"op": "create", "model": "testapp.tag", "values": {"name": "a"}, "ref": "x"}] * 2,
            "Two writes have the ref",
        ),
        ([{"op": "create", "model": "testapp.tag", "values": {"name": "a"}}] * 21, "writes must be a list of 1 to 20"),
        ([{"op": "create", "model": "testapp.tag", "value": {}}], "Write 1 of 1: Unknown argument 'value'"),
    ],
)
def test_what_is_no_write_is_refused_before_anything_is_written(root, writes, text):
    assert refusal(WRITE, root, writes=writes).startswith(text)
    assert not Tag.objects.exists()


def test_more_rows_than_one_call_writes_are_refused(root, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "MAX_BULK_ROWS": 3}
    book = make_book("Dune")
    writes = [{"op": "update", "model": "testapp.book", "pk": book.pk, "values": {"pages": n}} for n in range(4)]
    assert "One call writes at most 3 rows." in refusal(WRITE, root, writes=writes)


def test_a_step_that_takes_more_along_than_can_be_shown_is_refused(root, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "MAX_BULK_ROWS": 1}
    parent = Section.objects.create(name="parent")
    for number in range(11):
        Section.objects.create(name=str(number), parent=parent)
    writes = [{"op": "delete", "model": "testapp.section", "pk": str(parent.pk)}]
    text = refusal(WRITE, root, writes=writes)
    assert text == (
        "Write 1 of 1: What this changes is too much to show row by row. Nothing was changed. Narrow it down."
    )
    assert Section.objects.count() == 12


def test_a_row_that_a_hook_makes_for_a_later_step_is_shown_as_a_new_one():
    """Each time that it is tried it has another key, which does not keep anybody from confirming the call."""
    author = make_author("Ada")
    client = MCPClient(make_superuser(), capabilities={})
    writes = [
        {"op": "update", "model": "testapp.author", "pk": author.pk, "values": {"name": "Eve"}},
        {"op": "update", "model": "testapp.tag", "filters": {"name": "made"}, "values": {"name": "renamed"}},
    ]

    def make_tag(sender, instance, **kwargs):
        Tag.objects.create(name="made")

    post_save.connect(make_tag, sender=Author)
    try:
        shown = client.call("write_records", writes=writes, dry_run=True).structured
        asked = client.call("write_records", writes=writes, version=shown["version"]).structured
        done = client.call("write_records", writes=writes, confirm_token=asked["confirm_token"]).structured
    finally:
        post_save.disconnect(make_tag, sender=Author)
    assert shown["counts"] == {"testapp.author": {"changed": 1}, "testapp.tag": {"added": 1}}
    assert shown["added"] == {"testapp.tag": [{"label": "renamed", "columns": {"name": "renamed"}}]}
    # The hook has made it, so it stays.
    assert shown["also_written"] == ["testapp_tag"]
    assert not client.call("undo_change", change=done["change"]).is_error
    assert [tag.name for tag in Tag.objects.all()] == ["made"]
    author.refresh_from_db()
    assert author.name == "Ada"


def test_a_hidden_row_is_no_row_of_a_step(root):
    user = make_user("clerk", *(f"testapp.{name}_book" for name in ("view", "change")), "testapp.view_author")
    book = make_book("Dune", owner=root.user)
    texts = []
    for pk in (book.pk, 987654):
        step = {"op": "update", "model": "testapp.book", "pk": pk, "values": {"pages": 1}}
        texts.append(refusal(WRITE, request_of(user), writes=[step]))
    assert texts[0] == texts[1]


def test_what_goes_with_a_deletion_is_in_the_one_difference():
    book = make_book("Dune")
    Loan.objects.create(book=book, borrower="Ann", due=datetime(2030, 1, 1, tzinfo=UTC))
    client = MCPClient(make_superuser(), capabilities={})
    writes = [{"op": "delete", "model": "testapp.book", "pk": book.pk}]
    asked = client.call("write_records", writes=writes).structured
    assert asked["difference"]["counts"] == {"testapp.book": {"deleted": 1}, "testapp.loan": {"deleted": 1}}
    done = client.call("write_records", writes=writes, confirm_token=asked["confirm_token"]).structured
    assert done["written"] == 1
    assert not Book.objects.exists()


def test_a_model_whose_hooks_must_not_be_tried_is_written_alone(root):
    class Exposure(ModelExposure):
        fields = "__all__"
        dry_run = False

    site = site_with(Tag)
    site.register(Book, Exposure)
    book = make_book("Dune")
    writes = [
        {"op": "create", "model": "testapp.tag", "values": {"name": "a"}},
        {"op": "update", "model": "testapp.book", "pk": book.pk, "values": {"pages": 1}},
    ]
    for dry_run in (True, False):
        text = refusal(WRITE, request_of(root.user, site), writes=writes, dry_run=dry_run)
        assert text.startswith("testapp.book cannot be written together with others")
    assert not Tag.objects.exists()


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ({"model": "testapp.bok"}, {"model": "testapp.book"}),
        ({"filters": {"pagess": 5}}, {"filters": {"pages": 5}}),
        ({"values": {"prise": "2"}}, {"values": {"price": "2"}}),
        ({"values": {"price": {"field": "prise*2"}}}, {"values": {"price": {"field": "price*2"}}}),
    ],
)
def test_the_call_that_is_meant_differs_only_in_the_write_that_is_wrong(wrong, right):
    make_book("Dune", pages=5)
    client = MCPClient(user=make_superuser())
    first = {"op": "create", "model": "testapp.tag", "values": {"name": "new"}}
    meant = {"op": "update", "model": "testapp.book", "filters": {"pages": 5}, "values": {"price": "1"}}
    refused = client.call("write_records", writes=[first, {**meant, **wrong}])
    assert refused.is_error
    assert refused.text.startswith("Write 2 of 2: ")
    told = json.loads(refused.text.partition("\nnext: ")[2])
    assert told == {"tool": "write_records", "arguments": {"writes": [first, {**meant, **right}]}}


def test_a_ref_in_place_of_a_key_is_told_apart_from_a_row_that_is_not_there(root):
    writes = [
        {"op": "create", "model": "testapp.author", "ref": "ada", "values": {"name": "Ada"}},
        {"op": "update", "model": "testapp.author", "pk": {"ref": "ada"}, "values": {"name": "Ada Evans"}},
    ]
    told = refusal(WRITE, root, writes=writes)
    assert told.startswith("Write 2 of 2: pk takes no ref")
    assert not Author.objects.exists()
