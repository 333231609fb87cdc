"""What a call does to the rows of each model."""

import pytest

from mcp_django.differences.trials import Trial
from mcp_django.differences.writes import RowDeletion, RowUpdate
from mcp_django.differences.written_rows import WrittenRows
from mcp_django.orm.access import access_of
from tests.factories import make_author, make_book, make_superuser
from tests.testapp.models import AudioBook, Book, Tag
from tests.tool_calls import request_of

pytestmark = pytest.mark.django_db


def written(label, make, *given):
    """Return what a write does that is tried."""
    model = access_of(request_of(make_superuser())).get_model(label)
    return WrittenRows.of_difference(Trial(lambda: make(model, "tool", *given)).stored)


def test_a_link_is_a_part_of_the_row_that_has_the_field():
    book = make_book("Dune")
    tag = Tag.objects.create(name="new")
    found = written("testapp.book", RowUpdate, str(book.pk), None, {"tags": [tag.pk]})
    assert found.of_model(Book) == {(book.pk,): WrittenRows.CHANGED}
    assert found.of_model(Tag) == {}


def test_what_goes_with_a_deleted_row_counts():
    book = make_book("Dune")
    book.tags.add(Tag.objects.create(name="new"))
    found = written("testapp.book", RowDeletion, str(book.pk))
    assert found.of_model(Book) == {(book.pk,): WrittenRows.DELETED}
    assert found.keys_before()["testapp.book"] == [str(book.pk)]


def test_the_parts_of_a_row_in_several_tables_count_for_each_other():
    audio = AudioBook.objects.create(title="Dune", isbn="1", price=1, author=make_author(), narrator="X")
    picked = WrittenRows.of_instances(AudioBook, [audio], "action", "default")
    assert picked.of_model(AudioBook) == picked.of_model(Book) == {(audio.pk,): "action"}
    other = make_book("Emma")
    picked = WrittenRows.of_instances(Book, [audio, other], "action", "default")
    assert picked.of_model(AudioBook) == {(audio.pk,): WrittenRows.CHANGED}
