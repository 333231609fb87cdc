"""The serializer of REST framework that the endpoint and the SDK's tool share."""

from typing import Any

from rest_framework import serializers

from .models import Article, SerializedArticle
from .rows import PAGE_COLUMNS, minutes


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
        return minutes(article)
