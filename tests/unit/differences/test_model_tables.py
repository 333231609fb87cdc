"""The tables of models, and what statements do to them."""

import pytest

from mcp_django.differences.model_tables import ModelTables
from tests.factories import make_author, make_book
from tests.testapp.models import AudioBook, Author, Book, Loan, Tag

pytestmark = pytest.mark.django_db


def test_tables_are_those_of_the_model_its_parents_and_its_links():
    tables = ModelTables([AudioBook])
    assert tables.are_among(["testapp_audiobook"])
    assert tables.are_among(["testapp_book"])
    assert ModelTables([Book]).are_among([Book.tags.through._meta.db_table])
    assert not ModelTables([Tag]).are_among(["testapp_book"])
    assert ModelTables([]).are_among(["testapp_book"])


def test_rows_that_may_be_written_with_a_row():
    assert ModelTables([Loan]).may_go_with(Book)
    assert not ModelTables([Tag]).may_go_with(Loan)
    assert ModelTables([AudioBook]).may_hold(Book)
    assert ModelTables([Book]).hold_only(AudioBook)
    assert not ModelTables([Book, Author]).hold_only(Book)


def test_statements_are_told_before_they_write():
    words = []
    with ModelTables([Book]).watching(words.append):
        book = make_book("Dune", author=make_author())
        Book.objects.filter(pk=book.pk).update(title="Emma")
        book.delete()
        list(Book.objects.all())
    assert list(dict.fromkeys(words)) == ["INSERT", "UPDATE", "DELETE"]
