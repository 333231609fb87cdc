"""Conditions of approval rules on what the caller does not see: they apply all the same, and tell nothing."""

from typing import Any

import pytest
from django.utils import timezone, translation

from mcp_django import ModelExposure, site
from mcp_django.approvals.rules import rule_book
from mcp_django.models import ApprovalRule
from mcp_django.testing import MCPClient
from tests.approval_rules import make_manager, make_rule
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author, Book, Loan

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

BOOKS = {"labels": ["testapp.book"]}
# A caller who sees books and nothing else.
MAY = ("testapp.view_book", "testapp.change_book", "testapp.delete_book")


class TitlesOnly(ModelExposure):
    """Books of which callers see the title and the pages alone, and none of another person."""

    fields = ("title", "pages")

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).exclude(title="Hidden")


@pytest.fixture
def client(monkeypatch: Any) -> MCPClient:
    """A client whose user sees two columns of books and no other model."""
    make_manager()
    user = make_user("ada", *MAY)
    user.is_staff = True
    user.save()
    exposures = {Book: TitlesOnly(Book, site)}
    monkeypatch.setattr(type(site), "exposures", exposures)
    monkeypatch.setattr(site, "_labels", {"testapp.book": exposures[Book]})
    return MCPClient(user)


def update(client: MCPClient, book: Book, **values: Any) -> Any:
    return client.call("update_record", model="testapp.book", pk=str(book.pk), values=values or {"title": "New"})


def waits(call: Any) -> bool:
    assert call.is_error is False, call.text
    return bool(call.structured.get("state") == "waiting")


@pytest.mark.parametrize(
    "condition",
    [
        {"price__gt": 100},
        {"isbn__startswith": "978"},
        {"author__secret_token": "s3cret"},
        {"author": {"some": {"secret_token__startswith": "s3"}}},
        {"owner__username": "boss"},
        {"owner__is_superuser": True},
        {"loans__borrower__contains": "prison"},
        {"loans": {"count__gte": 1, "where": {"deleted__isnull": False}}},
        {"price": {"field": "pages+493"}},
        {"not": {"or": [{"price__lte": 100}, {"owner": None}]}},
        {"before": {"price__gt": 100}},
        {"after": {"price__gt": 100}},
    ],
)
def test_what_the_caller_does_not_see_counts(condition: dict[str, Any], client: MCPClient) -> None:
    make_rule(**BOOKS, condition=condition)
    author = make_author("Ann", secret_token="s3cret")
    boss = make_superuser("boss")
    meets = make_book("A", price="500.00", isbn="9780000000000", author=author, owner=boss, pages=7)
    Loan.all_objects.create(book=meets, borrower="a prison", due=timezone.now(), deleted=timezone.now())
    other = make_book("B", price="5.00", pages=7)
    found = update(client, meets)
    assert waits(found)
    assert not waits(update(client, other))
    # The answer has the name of the rule, and nothing of its condition or of what is hidden.
    for text in ("price", "isbn", "secret", "s3", "owner", "boss", "borrower", "prison", "500", "978", "loans"):
        assert text not in found.text


def test_the_same_is_told_whatever_the_condition_is_on(client: MCPClient) -> None:
    rule = make_rule(**BOOKS)
    book = make_book("A", price="500.00", author=make_author("Ann", secret_token="s3cret"))
    told = []
    for condition in ({}, {"pages": 0}, {"price__gt": 100}, {"author__secret_token": "s3cret"}, {"renamed": 1}):
        rule.condition = condition
        rule.save()
        found = client.call(
            "update_record", model="testapp.book", pk=str(book.pk), values={"title": f"New {len(told)}"}, dry_run=True
        )
        told.append({key: found.structured[key] for key in ("next", "dry_run")})
    assert len({str(item) for item in told}) == 1


@pytest.mark.parametrize(
    "condition",
    [
        {"renamed__gt": 100},
        {"author__renamed": 1},
        {"pages__gt": "many"},
        "text",
        [1],
        {"pages": 1, "before": {"a": 1}},
    ],
)
def test_a_condition_that_no_longer_fits_applies(condition: Any, client: MCPClient) -> None:
    make_rule(**BOOKS, condition=condition)
    assert waits(update(client, make_book("A", pages=3)))


def test_a_condition_that_no_longer_fits_blocks_where_the_rule_does(client: MCPClient) -> None:
    make_rule(**BOOKS, condition={"renamed": 1}, effect=ApprovalRule.Effect.BLOCK)
    book = make_book("A")
    found = update(client, book)
    assert found.is_error
    assert "Big books" in found.text
    assert "renamed" not in found.text
    book.refresh_from_db()
    assert book.title == "A"


def test_a_column_renamed_while_the_rule_stays_applies(client: MCPClient, monkeypatch: Any) -> None:
    make_rule(**BOOKS, condition={"pages__gt": 100})
    book = make_book("A", pages=3)
    assert not waits(update(client, book))
    ApprovalRule.objects.update(condition={"page_count__gt": 100})
    rule_book.expire()
    assert waits(update(client, book, title="Newer"))


def test_a_text_with_a_part_that_is_hidden_hides_nothing_from_a_rule(client: MCPClient) -> None:
    make_rule(**BOOKS, condition={"title__contains": "refund"})
    assert waits(update(client, make_book("A"), title='refund {"password": "x"}'))


def test_language_and_time_zone_of_the_caller_change_nothing(client: MCPClient) -> None:
    make_rule(**BOOKS, condition={"status": "Published", "published": "today"})
    book = make_book("A", status="published", published=timezone.localdate())
    with translation.override("de"), timezone.override("Pacific/Kiritimati"):
        assert waits(update(client, book))


def test_rows_that_go_with_a_deletion_count_too(client: MCPClient) -> None:
    make_rule(labels=["testapp.loan"], condition={"borrower": "Ada"})
    book = make_book("A")
    Loan.all_objects.create(book=book, borrower="Ada", due=timezone.now(), deleted=timezone.now())
    found = client.call("delete_record", model="testapp.book", pk=str(book.pk))
    assert Book.objects.filter(pk=book.pk).exists()
    assert "Ada" not in found.text


def test_a_hidden_row_is_not_found_whatever_the_rule(client: MCPClient) -> None:
    make_rule(**BOOKS)
    hidden = update(client, make_book("Hidden"))
    absent = update(client, Book(pk=999_999))
    assert hidden.is_error
    assert hidden.text == absent.text


def test_an_author_of_books_is_reached_by_a_rule_on_authors_alone(client: MCPClient) -> None:
    make_rule(labels=["testapp.author"], condition={"books__price__gt": 100})
    book = make_book("A", price="500.00")
    assert not waits(update(client, book))
    assert Author.objects.exists()
