"""The same rows by the ORM with instances, as a project would write it, for the SDK's tools and the bare views."""

from typing import Any

from .models import Article, Author

COLUMNS = [field.name for field in Article._meta.concrete_fields]


def page(status: str, limit: int) -> dict[str, Any]:
    """Return the newest articles of a status: ``columns`` and ``rows``, the author with pk and label."""
    articles = Article.objects.filter(status=status).select_related("author").order_by("-published", "-pk")[:limit]
    rows = [values(article) for article in articles]
    return {"model": "bench.article", "returned": len(rows), "columns": COLUMNS, "rows": rows}


def record(pk: int) -> dict[str, Any]:
    """Return one article by field name.

    Raises:
        Article.DoesNotExist: there is none.
    """
    article = Article.objects.select_related("author").get(pk=pk)
    fields = dict(zip(COLUMNS, values(article), strict=True))
    return {"model": "bench.article", "pk": article.pk, "label": str(article), "fields": fields}


def values(article: Article) -> list[Any]:
    """Return the values of a row in the order of ``COLUMNS``: exact decimals and ISO dates, as text."""
    return [
        article.pk,
        article.title,
        article.slug,
        article.summary,
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


def change(pk: int, fields: dict[str, Any]) -> None:
    """Set fields of an author.

    Raises:
        Author.DoesNotExist: there is none.
    """
    author = Author.objects.get(pk=pk)
    for name, value in fields.items():
        setattr(author, name, value)
    author.save()
