"""The same rows by the ORM with instances, as a project would write it, for the SDK's tools and the bare views."""

from typing import Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.db import transaction
from django.db.models import Count, QuerySet, Sum
from django.db.models.functions import TruncMonth

from .models import Article, Author, OwnArticle

WORDS_PER_MINUTE = 200
# Of a page: its long text is left to a single article, as the endpoint leaves it.
PAGE_COLUMNS = [field.name for field in Article._meta.concrete_fields if field.name != "summary"]
TOTALS_COLUMNS = ["status", "month", "count", "sum"]


def newest(articles: QuerySet[Article], status: str, limit: int) -> QuerySet[Article]:
    """Return the newest of the articles of a status, with their authors."""
    return articles.filter(status=status).select_related("author").order_by("-published", "-pk")[:limit]


def page(status: str, limit: int) -> dict[str, Any]:
    """Return the newest articles of a status: ``columns`` and ``rows``, the author with pk and label."""
    return shown_page([values(article) for article in newest(Article.objects.all(), status, limit)])


def own_page(status: str, limit: int) -> dict[str, Any]:
    """Return the same of what the exposure with an own queryset lets through."""
    articles: Any = OwnArticle.objects.filter(words__gt=0)
    return shown_page([values(article) for article in newest(articles, status, limit)])


def computed_page(status: str, limit: int) -> dict[str, Any]:
    """Return the same with what Python computes of each article."""
    articles = newest(Article.objects.all(), status, limit)
    return shown_page([[*values(article), minutes(article)] for article in articles], "minutes")


def serialized_page(status: str, limit: int) -> dict[str, Any]:
    """Return the same as the serializer of REST framework writes it."""
    from .serializers import ArticleSerializer

    found = ArticleSerializer(newest(Article.objects.all(), status, limit), many=True).data
    return shown_page([list(article.values()) for article in found], "minutes")


def shown_page(rows: list[list[Any]], *more: str) -> dict[str, Any]:
    """Return rows with the names of their columns."""
    return {"model": "bench.article", "returned": len(rows), "columns": [*PAGE_COLUMNS, *more], "rows": rows}


def minutes(article: Article) -> int:
    """Return how long it takes to read."""
    return -(-article.words // WORDS_PER_MINUTE)


def record(pk: int) -> dict[str, Any]:
    """Return one article by field name.

    Raises:
        Article.DoesNotExist: there is none.
    """
    return shown(Article.objects.select_related("author").get(pk=pk))


def shown(article: Article) -> dict[str, Any]:
    """Return all of an article."""
    fields = dict(zip(PAGE_COLUMNS, values(article), strict=True)) | {"summary": article.summary}
    return {"model": "bench.article", "pk": article.pk, "label": str(article), "fields": fields}


def values(article: Article) -> list[Any]:
    """Return the values of a row in the order of ``PAGE_COLUMNS``: exact decimals and ISO dates, as text."""
    return [
        article.pk,
        article.title,
        article.slug,
        [article.author_id, str(article.author)],
        article.status,
        article.language,
        str(article.price),
        article.words,
        article.rating,
        article.featured,
        article.published.isoformat(),
        article.modified.isoformat(),
    ]


def totals(since: str) -> dict[str, Any]:
    """Return how many articles were published since a day, and what they cost, by status and month."""
    grouped = (
        Article.objects.filter(published__gte=f"{since}T00:00Z")
        .annotate(month=TruncMonth("published"))
        .values_list("status", "month")
        .annotate(count=Count("pk"), total=Sum("price"))
        .order_by("status", "month")
    )
    rows = [[status, f"{month:%Y-%m}", count, f"{total:.2f}"] for status, month, count, total in grouped]
    return {"model": "bench.article", "returned": len(rows), "columns": TOTALS_COLUMNS, "rows": rows}


def change_article(user_pk: int, pk: int, fields: dict[str, Any]) -> dict[str, Any]:
    """Set fields of an article, validated and with the entry of the admin's history; return it as it is then.

    Raises:
        Article.DoesNotExist: there is none.
        ValidationError: a value is none that its field takes.
    """
    with transaction.atomic():
        article = Article.objects.select_for_update(of=("self",)).select_related("author").get(pk=pk)
        for name, value in fields.items():
            setattr(article, name, value)
        article.full_clean()
        article.save()
        message = [{"changed": {"fields": list(fields)}}]
        LogEntry.objects.log_actions(user_pk, [article], CHANGE, message, single_object=True)
    return shown(article)


def change_author(pk: int, fields: dict[str, Any]) -> dict[str, Any]:
    """Set fields of an author; return which one.

    Raises:
        Author.DoesNotExist: there is none.
    """
    author = Author.objects.get(pk=pk)
    for name, value in fields.items():
        setattr(author, name, value)
    author.save()
    return {"model": "bench.author", "pk": pk}
