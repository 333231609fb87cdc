"""The articles exposed in three further ways, each read by another road than the compiled plan."""

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers

import mcp_django as mcp
from mcp_django.context import MCPRequest

from .models import Article, ComputedArticle, OwnArticle, SerializedArticle
from .rows import PAGE_COLUMNS

WORDS_PER_MINUTE = 200


@mcp.register(OwnArticle)
class OwnExposure(mcp.ModelExposure):
    """What the project's own queryset decides is compiled for each call."""

    fields = PAGE_COLUMNS

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        """Return what may be read, and has something to read."""
        return super().get_queryset(request).filter(words__gt=0)


@mcp.register(ComputedArticle)
class ComputedExposure(mcp.ModelExposure):
    """A column that Python computes takes instances."""

    fields = (*PAGE_COLUMNS, "minutes")
    readonly_fields = ("minutes",)

    def minutes(self, article: Article) -> int:
        """Return how long it takes to read."""
        return -(-article.words // WORDS_PER_MINUTE)


class ArticleSerializer(serializers.ModelSerializer[Article]):
    """As an API would write an article, with what is not a column of its table."""

    author = serializers.SerializerMethodField()
    minutes = serializers.SerializerMethodField()

    class Meta:
        model = SerializedArticle
        fields = (*PAGE_COLUMNS, "minutes")

    def get_author(self, article: Article) -> list[Any]:
        """Return who wrote it: key and label."""
        return [article.author_id, str(article.author)]

    def get_minutes(self, article: Article) -> int:
        """Return how long it takes to read."""
        return -(-article.words // WORDS_PER_MINUTE)


@mcp.register(SerializedArticle)
class SerializedExposure(mcp.ModelExposure):
    """A serializer takes instances too."""

    serializer_class = ArticleSerializer
