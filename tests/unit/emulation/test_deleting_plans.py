from datetime import UTC, datetime

import pytest
from django.contrib import admin

from mcp_django import MCPSite, ModelExposure, ToolError, site
from mcp_django.emulation.deleting import Deleting
from mcp_django.orm.access import access_of
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import AudioBook, Author, Book, Loan, Placement, Profile, Section, Shelf, Tag
from tests.tool_calls import request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

DUE = datetime(2030, 1, 1, tzinfo=UTC)


def plan(row, user=None, own=site):
    model = access_of(request_of(user or make_superuser(), own))[own.exposures[type(row)]]
    return Deleting(model, [row], "delete_record")


def refused(row, user=None, own=site):
    with pytest.raises(ToolError) as error:
        plan(row, user, own)
    return error.value.message


def test_every_object_that_goes_is_found_and_counted():
    book = make_book()
    loans = [Loan.objects.create(book=book, borrower=name, due=DUE) for name in "ab"]
    shelf = Shelf.objects.create(code="A/1")
    place = Placement.objects.create(shelf=shelf, book=book)
    book.tags.add(Tag.objects.create(name="t"))
    deletion = plan(book)
    through = Book.tags.through.objects.get()
    assert set(deletion.affected) == {book, *loans, place, through}
    assert deletion.counts == {"books": 1, "loans": 2, "placements": 1, "book-tag relationships": 1}


def test_rows_that_a_manager_hides_go_too():
    loan = Loan.all_objects.create(book=make_book(), borrower="a", due=DUE, deleted=DUE)
    assert loan in plan(loan.book).affected


def test_parent_rows_and_trees_go_too():
    book = AudioBook.objects.create(title="x", author=make_author(), isbn="1", price=1, narrator="y")
    user = make_superuser()
    assert {type(obj) for obj in plan(book, user).affected} == {AudioBook, Book}
    root = Section.objects.create(name="root")
    child = Section.objects.create(name="child", parent=root)
    assert set(plan(root, user).affected) == {root, child}


def test_H141_protection_names_what_the_caller_sees_and_counts_the_rest():
    author = make_author("Ada")
    user = make_user("seller", "testapp.view_author", "testapp.delete_author", "testapp.view_book")
    mine = make_book("Mine", author=author, owner=user)
    make_book("Hidden", author=author, owner=make_superuser("other"))
    text = refused(author, user)
    assert f"protected: 2 books (such as testapp.book {mine.pk}: Mine). Nothing was deleted." in text
    assert "Hidden" not in text
    blind = make_user("blind", "testapp.view_author", "testapp.delete_author")
    assert "protected: 2 books. Nothing was deleted." in refused(author, blind)


def test_H141_a_kind_that_the_caller_may_not_delete_is_named():
    user = make_user("seller", "testapp.view_book", "testapp.delete_book")
    book = make_book(owner=user)
    assert plan(book, user).counts == {"books": 1}
    Loan.objects.create(book=book, borrower="a", due=DUE)
    assert refused(book, user).endswith("would also delete rows that you may not delete: loan. Nothing was deleted.")


def test_a_project_may_say_more_than_the_database(monkeypatch):
    monkeypatch.setattr(
        admin.site.get_model_admin(Tag), "get_deleted_objects", lambda objs, request: ([], {}, set(), ["Needed."])
    )
    assert "are protected: other rows. Nothing was deleted." in refused(Tag.objects.create(name="t"))


def test_exposures_decide_for_their_models_and_the_admin_for_the_others():
    class Plain(ModelExposure):
        fields = "__all__"

    class Kept(Plain):
        def has_delete_permission(self, request, obj=None):
            return False

    own = MCPSite("own")
    own.register([Author, Book], Plain)
    own.register(Profile, Kept)
    author = make_author()
    user = make_user("seller", "testapp.delete_author", "testapp.delete_book", staff=False)
    assert plan(author, user, own).counts == {"authors": 1}
    Profile.objects.create(author=author)
    assert "you may not delete: profile." in refused(author, user, own)
    book = make_book()
    Loan.objects.create(book=book, borrower="a", due=DUE)
    assert "you may not delete: loan." in refused(book, user, own)
