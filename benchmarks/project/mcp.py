"""The articles exposed in three further ways, each read by another road than the compiled plan."""

from typing import Any

from django.db.models import QuerySet

import mcp_django as mcp
from mcp_django.context.request import MCPRequest

from .models import Article, ComputedArticle, OwnArticle, SerializedArticle
from .rows import PAGE_COLUMNS, minutes
from .serializers import ArticleSerializer


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
        return minutes(article)


@mcp.register(SerializedArticle)
class SerializedExposure(mcp.ModelExposure):
    """A serializer takes instances too."""

    serializer_class = ArticleSerializer
