"""Nothing that a caller can ask tells of what is hidden from them: the answers are the same whatever it is.

The same calls are made twice, and between them all hidden values and rows become others: hidden fields, hidden rows of
the model itself, hidden rows that visible ones point to, or are linked with. Each answer has to be the same to the
byte: rows and their order, counts, sums, groups, suggestions, versions, errors.
"""

import datetime
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pytest
from django.db.models import QuerySet
from django.utils import timezone

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.exceptions import NotFound, ToolError
from mcp_django.orm.access import access_of
from mcp_django.orm.allowed_filters import AllowedFilter
from mcp_django.resources.completions import complete_field
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.base import Tool
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.list_models import ListModels
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import DeleteRecord, UpdateRecord
from tests.cases import SOME, some
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author, Book, Loan, Profile, Tag
from tests.tool_calls import request_of

pytestmark = [pytest.mark.walk, pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]

# What the hidden texts are in each of the two worlds; callers guess both.
WORDS = ("aardvark", "zyzzyva")
DATES = (datetime.date(1901, 1, 1), datetime.date(1999, 12, 31))
# Members of answers that no two calls have in common.
FRESH = frozenset({"confirm_token", "next_cursor"})


class Visible(ModelExposure):
    """Shows the rows whose keys are not among the hidden ones."""

    hidden: Collection[Any] = ()

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).exclude(pk__in=self.hidden)


PATHS = {
    "title": ["exact", "icontains"],
    "author": ["exact", "in", "isnull"],
    "author__name": ["exact", "icontains", "startswith", "gt", "in"],
    "author__born": ["exact", "gt", "lt", "isnull", "year"],
    "author__profile__biography": ["icontains"],
    "tags": ["exact", "in", "isnull"],
    "tags__name": ["exact", "icontains"],
    "published": ["exact"],
}


class World:
    """Some visible rows, and hidden ones that are others from one world to the other."""

    def __init__(self) -> None:
        self.seen, self.hidden = make_author("Seen", born=DATES[0]), make_author("x")
        Profile.objects.create(author=self.seen, biography="seen")
        self.profile = Profile.objects.create(author=self.hidden)
        self.tag, self.hidden_tag = Tag.objects.create(name="seen"), Tag.objects.create(name="x")
        self.books = [make_book(title, author=self.seen) for title in ("a", "b")]
        self.books += [make_book(title, author=self.hidden, pages=5) for title in ("c", "d")]
        self.other = make_book("x", author=self.seen)
        Loan.objects.create(book=self.books[0], borrower="x", due=timezone.now())

    def become(self, number: int) -> None:
        """Let everything that is hidden be what it is in the world of the number."""
        word, date = WORDS[number], DATES[number]
        Author.objects.filter(pk=self.hidden.pk).update(name=word, email=f"{word}@example.org", born=date)
        Author.objects.update(secret_token=word)
        Profile.objects.filter(pk=self.profile.pk).update(biography=word)
        Tag.objects.filter(pk=self.hidden_tag.pk).update(name=word)
        status, price = Book.Status.values[number], 7 + number
        others = Book.objects.filter(pk=self.other.pk)
        others.update(title=word, pages=10**number, price=price, published=date, status=status, rating=number)
        Loan.objects.update(borrower=word)
        self.hidden_tag.books.set([self.books[0], self.books[1 + number], self.other])
        self.tag.books.set([*self.books[::2], *[self.other] * number])

    def site(self, **options: Any) -> MCPSite:
        """Return a site that hides them; ``options`` are those of the exposure of books."""
        site = MCPSite()
        fields = ["title", "author", "tags", "pages", "price", "published", "status"]
        site.register(Author, Visible, hidden={self.hidden.pk}, fields=["name", "born", "books", "profile"])
        site.register(Tag, Visible, hidden={self.hidden_tag.pk}, fields=["name", "books"])
        site.register(Book, Visible, hidden={self.other.pk}, fields=fields, **options)
        return site


def conditions(request: MCPRequest, model: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a filter for each field and lookup, with what a caller may guess."""
    guesses = [WORDS[0], WORDS[1][:3], "seen", str(DATES[1]), 1901, 10, None, True, list(range(1, 8))]
    for name, (_, lookups) in AllowedFilter.all(access_of(request)[request.mcp.site.exposures[model]]):
        for lookup in lookups:
            for guess in guesses:
                given = [guess] if lookup == "in" and not isinstance(guess, list) else guess
                yield {f"{name}__{lookup}": given}
                yield {"not": {f"{name}__{lookup}": given}}
    yield {"or": [{"author__name": WORDS[0]}, {"title": "b"}]}


def reads(request: MCPRequest, world: World) -> Iterator[tuple[Tool, dict[str, Any]]]:
    """Yield calls by which something could be told."""
    query, aggregate = QueryRecords(), AggregateRecords()
    for label, model in (("testapp.book", Book), ("testapp.author", Author), ("testapp.tag", Tag)):
        about = {"model": label}
        names = (*access_of(request)[request.mcp.site.exposures[model]].fields, *PATHS, "author__email", "secret_token")
        yield query, {**about, "count": True}
        yield DescribeModel(), {**about, "detail": True}
        yield query, {**about, "search": "e"}
        for word in (*WORDS, "aard", "zyz", "seen"):
            yield query, {**about, "search": word, "count": True}
            yield aggregate, {**about, "aggregates": ["count"], "search": word}
        for condition in conditions(request, model):
            yield query, {**about, "filters": condition, "fields": ["pk"], "count": True}
        for name in names:
            yield query, {**about, "ordering": [name], "fields": ["pk"]}
            yield query, {**about, "ordering": [f"-{name}:nulls_last"], "fields": ["pk"], "limit": 1}
            yield aggregate, {**about, "aggregates": ["count"], "group_by": [name], "top": 1}
            yield aggregate, {**about, "aggregates": ["count"], "group_by": [f"{name}:year"]}
            for function in ("count_distinct", "sum", "max"):
                measures = [f"{function}:{name}"]
                yield aggregate, {**about, "aggregates": measures}
                yield aggregate, {**about, "aggregates": measures, "group_by": ["pk"], "ordering": measures}
                yield aggregate, {**about, "aggregates": measures, "having": {measures[0]: {"gte": "1950-01-01"}}}
        yield from related_reads(about)
        yield from computed_reads(about)
        for row in model.objects.order_by("pk"):
            yield GetRecord(), {**about, "pk": row.pk, "history": True}


RELATIONS = ("author", "books", "tags", "profile", "loans", "audiobook")


def related_reads(about: Mapping[str, Any]) -> Iterator[tuple[Tool, dict[str, Any]]]:
    """Yield calls that ask for what is behind relations."""
    query = QueryRecords()
    inner: list[dict[str, Any]] = [{}, {"pages__gte": 6}, {"price": 8}, {"born": str(DATES[1])}, {"tags__name": "seen"}]
    inner += [{field: word} for word in WORDS for field in ("name", "title", "biography", "borrower", "secret_token")]
    for name in RELATIONS:
        for filters in inner:
            for asked in (
                *({word: filters} for word in ("some", "none", "every")),
                *({"count": count, "where": filters} for count in (0, 1, 2)),
                {"some": {"author": filters}},
                {"every": {"books": {"none": filters}}},
                {"tags": {"count__gte": 2, "where": filters}},
            ):
                yield query, {**about, "filters": {name: asked}, "fields": ["pk"]}
                yield query, {**about, "filters": {"not": {name: asked}}, "fields": ["pk"]}
        for field in ("name", "title", "born", "pages", "author", "author.born", "biography", "email", "secret_token"):
            path = f"{name}.{field}"
            yield query, {**about, "fields": [path], "ordering": ["pk"]}
            yield query, {**about, "fields": ["pk"], "ordering": [path]}
            yield query, {**about, "fields": ["pk"], "ordering": [f"-{path}"], "limit": 1}
            yield query, {**about, "filters": {path: WORDS[0]}, "fields": ["pk"]}
            yield GetRecord(), {**about, "pk": 1, "fields": [path]}


def computed_reads(about: Mapping[str, Any]) -> Iterator[tuple[Tool, dict[str, Any]]]:
    """Yield calls whose answers are computed: of conditions, of several fields, of related rows, of other results."""
    aggregate = AggregateRecords()
    fields = ("pages", "price", "born", "published", "author.born", "books.pages", "books.price", "tags", "tags.name")
    fields += ("author.secret_token", "loans", "loans.borrower", "profile.biography", "books.author.name", "email")
    for field in fields:
        for measure in (
            *(f"{function}:{field}" for function in ("median", "stddev", "percentile", "count", "sum", "max")),
            *(f"sum:{field}*{other}" for other in fields[:8]),
            *(f"max:{field}-{other}" for other in fields[:8]),
            f"min:{field}/{field}",
            f"percentile:{field}:0.9",
        ):
            yield aggregate, {**about, "aggregates": [measure]}
        grouped = {**about, "aggregates": [f"sum:{field}", "count"], "group_by": [field]}
        yield aggregate, {**grouped, "group_by": [f"{field}:10"]}
        yield aggregate, {**grouped, "group_by": [f"{field}:month_of_year"]}
        yield aggregate, {**grouped, "group_by": [f"{field}:year"], "fill": True}
        yield aggregate, {**grouped, "group_by": ["pk"], "per": field, "top": 1}
        for word in (*WORDS, str(DATES[1]), 5, 8, "seen"):
            counted = {"function": "count", "where": {field: word}, "as": "some"}
            of_all = {"percent_of_total": "some"}
            yield aggregate, {**about, "aggregates": [counted, "count", "ratio:some/count"]}
            yield aggregate, {**about, "aggregates": [counted, of_all], "group_by": ["pk"], "ordering": ["-some"]}


def writes(world: World) -> Iterator[tuple[Tool, dict[str, Any]]]:
    """Yield calls that are refused, or only show what they would do."""
    book, author = {"model": "testapp.book"}, {"model": "testapp.author"}
    for pk in (world.other.pk, 999):
        yield UpdateRecord(), {**book, "pk": pk, "values": {"title": "x"}}
        yield UpdateRecord(), {**book, "pks": [world.books[0].pk, pk], "values": {"title": "x"}}
        yield DeleteRecord(), {**book, "pk": pk}
    for pk in (world.hidden.pk, 999):
        yield UpdateRecord(), {**book, "pk": world.books[0].pk, "values": {"author": pk}}
        yield DeleteRecord(), {**author, "pk": pk}
    for pk in (world.hidden_tag.pk, 999):
        yield UpdateRecord(), {**book, "pk": world.books[0].pk, "values": {"tags": [pk]}}
    for word in WORDS:
        yield UpdateRecord(), {**book, "filters": {"title": word}, "values": {"pages": 1}}
        yield DeleteRecord(), {**book, "search": word}
    yield UpdateRecord(), {**book, "filters": {"pages__gte": 0}, "values": {"pages": 1}}
    yield DeleteRecord(), {**book, "filters": {"pages__gte": 0}}
    yield DeleteRecord(), {**book, "pk": world.books[0].pk}
    yield DeleteRecord(), {**author, "pk": world.seen.pk}


def answer(request: MCPRequest, tool: Tool, arguments: dict[str, Any]) -> str:
    try:
        result = tool.call(request, dict(arguments))
    except (ToolError, NotFound) as error:
        return f"{type(error).__name__}: {error}"
    assert result.structured is not None
    return json.dumps({name: value for name, value in result.structured.items() if name not in FRESH})


def answers(user: Any, site: MCPSite, world: World) -> dict[str, str]:
    """Return the answers by what was asked, each call on a request of its own."""
    given = [(ListModels(), {}), *some(reads(request_of(user, site), world), 7), *writes(world)]
    found = {f"{tool.name} {arguments}": answer(request_of(user, site), tool, arguments) for tool, arguments in given}
    for label in ("testapp.book", "testapp.author", "testapp.tag", "testapp.profile"):
        for name in ("pk", "title", "name", "born", "author", "tags", "books", "price", "email", *PATHS):
            for text in ("", "a", "z", WORDS[0], "1", "seen"):
                completion = complete_field(request_of(user, site), label, name, text)
                found[f"complete {label} {name} {text}"] = str(completion)
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"search_fields": ["title"]},
        {
            "filter_fields": PATHS,
            "search_fields": ["title", "author__name", "tags__name", "=author__profile__biography"],
        },
    ],
    ids=["plain", "declared"],
)
@pytest.mark.parametrize("sees", ["all", "books"])
def test_rows_112_121_125_135_no_answer_depends_on_what_is_hidden(options: Any, sees: str) -> None:
    world = World()
    site = world.site(**options)
    verbs = ("view", "change", "delete")
    user = make_superuser() if sees == "all" else make_user("u", *(f"testapp.{verb}_book" for verb in verbs))
    world.become(0)
    first = answers(user, site, world)
    world.become(1)
    second = answers(user, site, world)
    told = {asked: (first[asked], second[asked]) for asked in first if first[asked] != second[asked]}
    assert not told, json.dumps(told, indent=1)[:6_000]
    # The calls do find something.
    assert sum('"rows": [[' in text for text in first.values()) > (5 if SOME else 50)
