"""The admin from which the endpoint takes what it exposes."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from .models import Article, Author, Event, Visit


@admin.register(Article)
class ArticleAdmin(admin.ModelAdmin):
    """Plain, but for one action."""

    list_filter = ("status", "published")
    actions = ("publish",)

    @admin.action(description="Publish the selected articles", permissions=("change",))
    def publish(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Set the status."""
        queryset.update(status=Article.Status.PUBLISHED)


admin.site.register([Author, Event, Visit])
