"""Rows of one write that a hook of an earlier row has changed: what it wrote stays, and all of it can be taken back."""

import pytest
from django.db import connection
from django.db.models.signals import post_save
from django.test.utils import CaptureQueriesContext

from mcp_django.testing import MCPClient
from tests.factories import make_author, make_book, make_superuser
from tests.testapp.models import Author, Book, Tag

pytestmark = pytest.mark.django_db


@pytest.fixture
def hooked(request):
    """Have the saving of the first author change the second one."""

    def change_second(sender, instance, **kwargs):
        if instance.name == "first!" and not instance.secret_token:
            Author.objects.filter(secret_token="second").update(**request.param)

    post_save.connect(change_second, sender=Author)
    yield request.param
    post_save.disconnect(change_second, sender=Author)


@pytest.fixture
def client():
    return MCPClient(make_superuser(), capabilities={})


def stored():
    return list(Author.objects.order_by("pk").values())


def update(pk, **values):
    return {"op": "update", "model": "testapp.author", "pk": pk, "values": values}


def calls(one, two):
    """Return calls that save both rows, one after the other."""
    rows = [{"pk": one, "name": "first!"}, {"pk": two, "name": "second!"}]
    return {
        "steps": ("write_records", {"writes": [update(one, name="first!"), update(two, name="second!")]}),
        "rows": ("update_record", {"model": "testapp.author", "rows": rows}),
        "bulk": ("update_record", {"model": "testapp.author", "pks": [one, two], "values": {"name": "first!"}}),
    }


@pytest.mark.parametrize("kind", ["steps", "rows", "bulk"])
@pytest.mark.parametrize("hooked", [{"email": "h@example.com"}, {"name": "hooked"}], indirect=True)
def test_what_a_hook_wrote_to_a_later_row_stays_and_is_shown_and_taken_back(client, hooked, kind):
    one, two = make_author("first"), make_author("second", secret_token="second")
    before = stored()
    tool, arguments = calls(one.pk, two.pk)[kind]
    shown = client.call(tool, **arguments, dry_run=True).structured
    assert stored() == before
    done = client.call(tool, **arguments).structured
    if token := done.get("confirm_token"):
        done = client.call(tool, **arguments, confirm_token=token).structured
    two.refresh_from_db()
    name = "first!" if kind == "bulk" else "second!"
    assert (two.name, two.email) == (name, hooked.get("email", ""))

    second = shown["changed"]["testapp.author"][1]
    assert second["columns"]["name"] == ["second", name]
    assert second["columns"].get("email") == (["", "h@example.com"] if "email" in hooked else None)
    assert "also_written" not in shown
    undone = client.call("undo_change", change=done["change"])
    assert not undone.is_error, undone.text
    assert stored() == before


@pytest.mark.parametrize("hooked", [{"email": "h@example.com"}], indirect=True)
def test_rows_are_read_again_only_if_a_hook_may_have_changed_them(client, hooked):
    queries = []
    for names in (("one", "two", "three"), ("first!", "two", "three")):
        pks = [make_author("x").pk for _ in names]
        rows = [{"pk": pk, "name": name} for pk, name in zip(pks, names, strict=True)]
        with CaptureQueriesContext(connection) as asked:
            client.call("update_record", model="testapp.author", rows=rows)
        queries.append(len(asked))
    # The statement of the hook, and each of the two rows after it once more.
    assert queries[1] == queries[0] + 3


def test_a_row_that_a_hook_has_deleted_is_refused(client):
    one, two = make_author("first"), make_author("second")

    def delete_second(sender, instance, **kwargs):
        Author.objects.filter(name="second").delete()

    post_save.connect(delete_second, sender=Author)
    try:
        rows = [{"pk": one.pk, "name": "first!"}, {"pk": two.pk, "name": "second!"}]
        refused = client.call("update_record", model="testapp.author", rows=rows)
    finally:
        post_save.disconnect(delete_second, sender=Author)
    assert refused.is_error
    assert "The project's code has deleted it when it saved the rows before." in refused.text
    assert Author.objects.filter(name="second").exists()


def test_an_expression_is_computed_from_what_a_hook_wrote(client):
    one, two = make_book("one", pages=1), make_book("two", pages=1)

    def add_pages(sender, instance, **kwargs):
        if instance.pk == one.pk:
            Book.objects.filter(pk=two.pk).update(pages=10)

    post_save.connect(add_pages, sender=Book)
    try:
        values = {"pages": {"field": "pages+1"}}
        given = {"model": "testapp.book", "pks": [one.pk, two.pk], "values": values}
        token = client.call("update_record", **given).structured["confirm_token"]
        done = client.call("update_record", **given, confirm_token=token)
    finally:
        post_save.disconnect(add_pages, sender=Book)
    assert not done.is_error, done.text
    assert list(Book.objects.order_by("pk").values_list("pages", flat=True)) == [2, 11]


def test_a_deletion_after_a_hook_brings_back_what_was_there_before_it(client):
    """The hook of the first step changes what the second step deletes."""
    author = make_author("gone")
    tag = Tag.objects.create(name="tag")

    def rename(sender, instance, **kwargs):
        Author.objects.filter(pk=author.pk).update(name="hooked")

    post_save.connect(rename, sender=Tag)
    try:
        writes = [
            {"op": "update", "model": "testapp.tag", "pk": tag.pk, "values": {"name": "new"}},
            {"op": "delete", "model": "testapp.author", "pk": author.pk},
        ]
        asked = client.call("write_records", writes=writes).structured
        done = client.call("write_records", writes=writes, confirm_token=asked["confirm_token"]).structured
    finally:
        post_save.disconnect(rename, sender=Tag)
    assert asked["difference"]["deleted"] == {"testapp.author": [[author.pk, "gone"]]}
    assert not Author.objects.exists()
    assert not client.call("undo_change", change=done["change"]).is_error
    assert Author.objects.get().name == "gone"
