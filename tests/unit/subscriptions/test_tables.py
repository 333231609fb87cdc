from mcp_django.subscriptions.signals import ends_of, relations_of, same_rows
from tests.testapp.models import AudioBook, Author, Book, Placement, PublishedBook, Shelf, Tag


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
