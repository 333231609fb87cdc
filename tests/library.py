"""Rows to read, and sites that show them in the ways that tests compare."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from unittest.mock import patch

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.orm.access import access_of
from mcp_django.orm.cells import Page
from mcp_django.orm.columns import Column
from mcp_django.orm.ordering import Orderings
from mcp_django.orm.pagination import PageQuery
from mcp_django.orm.row_reading import read_instances, read_tuples
from tests.factories import new_book
from tests.testapp.models import AudioBook, Author, Book, Loan, Note, Placement, Profile, Section, Shelf, Tag
from tests.tool_calls import request_of

SCOPES = frozenset({"mcp:read", "mcp:write"})
MODELS = (AudioBook, Author, Book, Loan, Note, Placement, Profile, Section, Shelf, Tag)


def site_with(*models: Any, **options: Any) -> MCPSite:
    """Return a site that shows every field of the models, or what the options say."""
    site = MCPSite()
    for model in models:
        many = [field.name for field in model._meta.many_to_many]
        plain = [field.name for field in model._meta.concrete_fields if field.name != "secret_token"]
        site.register(model, ModelExposure, **{"fields": [*plain, *many], **options})
    return site


def reader(user: Any, site: MCPSite) -> MCPRequest:
    return request_of(user, site, scopes=SCOPES)


def make_library(number: int = 5, owner: Any = None) -> list[Book]:
    """Make rows of each model, with empty and odd values among them."""
    tags = Tag.objects.bulk_create(Tag(name=f"tag {i}") for i in range(3))
    authors = Author.objects.bulk_create(Author(name=f"Author {i}", secret_token="hidden value") for i in range(number))
    books = Book.objects.bulk_create(
        new_book(
            title=f"Bøøk {i % 3}",
            author=authors[i],
            owner=owner if i % 2 else None,
            pages=i,
            rating=None if i % 2 else i / 3,
            published=date(2024, 1, 1 + i % 28) if i % 3 else None,
            reading_time=timedelta(hours=i) if i % 2 else None,
            address="::1" if i % 2 else None,
            data={"ünï": [i, None, 1.5]},
            blob=b"\0\1",
            cover="covers/a.txt" if i % 2 else "",
        )
        for i in range(number)
    )
    tagged = Book.tags.through
    tagged.objects.bulk_create(tagged(book=book, tag=tag) for i, book in enumerate(books) for tag in tags[: i % 4])
    Profile.objects.bulk_create(
        Profile(author=author, biography="x" * (400 * (i % 2))) for i, author in enumerate(authors)
    )
    Loan.objects.bulk_create(
        Loan(book=book, borrower=f"Reader {i}", due=datetime(2024, 1, 1 + i % 28, tzinfo=UTC))
        for i, book in enumerate(books)
    )
    shelves = Shelf.objects.bulk_create(Shelf(code=f"A/{i} ?") for i in range(number))
    Placement.objects.bulk_create(Placement(shelf=shelf, book=books[i], position=i) for i, shelf in enumerate(shelves))
    first = Section.objects.create(name="Section 0")
    sections = [first, *(Section(name=f"Section {i}", parent=first if i % 2 else None) for i in range(1, number))]
    Section.objects.bulk_create(sections[1:])
    Note.objects.bulk_create(Note(target=section, text=f"note {i}") for i, section in enumerate(sections))
    AudioBook.objects.create(title="Heard", author=books[0].author, isbn="x", price=5, narrator="N")
    return books


def query_of(
    request: MCPRequest, exposure: ModelExposure, names: Iterable[str] | None = None, **options: Any
) -> PageQuery:
    """Return a query of the first page, of all visible columns where none is named."""
    columns = Column.all(exposure, access_of(request)[exposure].fields if names is None else names)
    ordering = options.pop("ordering", None) or Orderings(access_of(request)[exposure]).default().keys
    return PageQuery(access_of(request)[exposure], columns, ordering, options.pop("limit", 50), **options)


def read(query: PageQuery, road: str) -> Page:
    """Read a page as instances, or as tuples from a "plan", or as "tuples" by SQL that is compiled for it."""
    if road == "instances":
        return read_instances(query)
    if road == "plan":
        return read_tuples(query)
    key = PageQuery.compiled_key
    with patch.object(PageQuery, "compiled_key", lambda query, using: (None, key(query, using)[1])):
        return read_tuples(query)


def shown(page: Page) -> Any:
    return page.names, page.rows, page.keys, page.more
