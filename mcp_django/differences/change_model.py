"""The changes of a caller as a model of its own, to be read: ``mcp.change``, what became of their writes.

No registration is needed. Callers read their own changes, as :class:`~mcp_django.differences.kept_changes.Changes`
finds them, with the difference as it was shown to them. A change of a model that they can no longer view is left out.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from django.apps import apps
from django.apps.registry import Apps
from django.db import models
from django.db.models import Case, F, Model, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce, NullIf
from django.utils import timezone

from ..conf import settings
from ..context.request import MCPRequest
from ..exposures.model_exposure import Listing, ReadOnlyExposure
from ..exposures.querysets import DerivedTable
from ..models import Change as Stored
from ..orm.access import access_of
from ..scopes import Scope
from .kept_changes import Changes, KeptChange

LABEL: Final = "mcp.change"
WRITES: Final = ("change", "add", "delete")
STATES: Final = [(word, word) for word in Stored.State.values]
# A registry of its own keeps the model out of the project's app registry.
REGISTRY: Final = Apps()
REGISTRY.app_configs = {**apps.app_configs, "mcp": apps.get_app_config("mcp_django")}


class Change(models.Model):
    """A change as callers query it."""

    id = models.BigAutoField(primary_key=True)
    time = models.DateTimeField()
    state = models.CharField(
        max_length=9, db_column="state_now", choices=[(word, word) for word in Stored.State.values]
    )
    summary = models.CharField(max_length=160)
    tool = models.CharField(max_length=100)
    model = models.CharField(max_length=200)
    rows = models.PositiveIntegerField()
    client = models.CharField(max_length=255, null=True)
    can_undo = models.BooleanField()
    cannot_undo = models.CharField(max_length=200)
    expires = models.DateTimeField(null=True, help_text="Until when it can be decided, or be taken back")
    outcome = models.CharField(max_length=200, help_text="How it ended, in words")
    call = models.CharField(max_length=32)

    class Meta:
        apps = REGISTRY
        app_label = "mcp"
        db_table = Stored._meta.db_table
        managed = False
        verbose_name = "change"
        verbose_name_plural = "changes"

    def __str__(self) -> str:
        return f"change {self.pk}: {self.summary}"


class ChangeListing(Listing):
    """Lists a page of changes, whose differences are read together, once one of them is asked for."""

    def prepared(self, rows: Sequence[Model]) -> Sequence[Model]:
        """Return the rows, each with the function that reads the differences of all."""
        read = partial(self._differences, [row.pk for row in rows])
        found: dict[int, Any] = {}
        for row in rows:
            row.mcp_difference = partial(_once, found, read, row.pk)  # type: ignore[attr-defined]
        return rows

    def _differences(self, keys: Sequence[int]) -> dict[int, Any]:
        rows = Changes(self.request).rows.filter(pk__in=keys).defer(None).only("shown")
        return {row.pk: KeptChange(row).shown for row in rows}


def _once(found: dict[int, Any], read: Callable[[], dict[int, Any]], key: int) -> Any:
    """Return the difference of a change of a page, and read those of the page for the first of them."""
    if key not in found:
        found.update(read())
    return found.get(key)


class ChangeRows(ReadOnlyExposure):
    """The exposure of ``mcp.change``: the changes that the caller has made or asked for."""

    list_display = ("id", "time", "state", "summary", "tool", "client", "can_undo")
    fields = (
        *("id", "time", "state", "summary", "tool", "model", "rows", "client", "can_undo", "cannot_undo", "expires"),
        *("outcome", "call", "difference"),
    )
    search_fields = ("summary",)
    ordering = ("-time",)
    label_field = "summary"
    description = "Your own writes: what each did, whether it waits for a yes, and whether it can be taken back"

    def __init__(self, site: Any) -> None:
        super().__init__(Change, site)

    def get_computed(self, name: str) -> Callable[[Model], Any] | None:
        """Return the function for the column ``difference``, None for the columns of the table."""
        if name == "difference":
            return _difference
        return None

    def get_listing(self, request: MCPRequest) -> Listing:
        """Return the ``ChangeListing`` of this request."""
        return ChangeListing(request, self)

    # Rows

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        """Return the caller's own changes of models that they can view now."""
        changes = Changes(request)
        own = changes.rows.order_by()
        labels = filter(changes.may_see, own.values_list("labels", flat=True).distinct())
        now = timezone.now()
        can_undo = Q(state=Stored.State.DONE.value, cannot_undo="", expires__gt=now)
        return DerivedTable.queryset(
            Change,
            own.filter(labels__in=list(labels)).values(
                *("id", "time", "summary", "tool", "model", "rows", "cannot_undo", "expires", "outcome", "call"),
                state_now=Case(
                    When(state=Stored.State.WAITING.value, expires__lte=now, then=Value(Stored.State.EXPIRED.value)),
                    default=F("state"),
                ),
                client=Coalesce(NullIf("client_name", Value("")), NullIf("client_id", Value(""))),
                can_undo=Case(When(can_undo, then=Value(True)), default=Value(False)),
            ),
        )

    # Permissions

    def has_view_permission(self, request: MCPRequest, obj: Model | None = None) -> bool:
        """Return whether the caller may write anything with this token: without a query, nobody else has changes."""
        if settings.READ_ONLY or Scope.WRITE not in request.mcp.scopes:
            return False
        access = access_of(request)
        return any(access[exposure].may(deed) for exposure in self.site.exposures.values() for deed in WRITES)


def _difference(row: Any) -> Any:
    return row.mcp_difference()
