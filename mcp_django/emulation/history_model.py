"""The admin's history as a model of its own, to be read: ``admin.logentry``, who changed what and when.

No registration is needed. A caller reads the entries of rows whose history page they can open in the admin, with the
same content as in ``get_record`` (:mod:`mcp_django.emulation.history`). Entries of hidden or deleted rows are left out.
If a project registers ``LogEntry`` itself, its registration is used instead.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from django.apps import apps
from django.apps.registry import Apps
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db import connections, models
from django.db.models import Case, Exists, F, Model, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Cast, Greatest, NullIf, Replace, StrIndex, Substr
from django.db.models.lookups import Exact, GreaterThan

from ..context.request import MCPRequest
from ..exceptions import ToolError
from ..exposures.model_exposure import ExposureOptions, Listing, ModelExposure, ReadOnlyExposure
from ..exposures.querysets import DerivedTable, filterable
from ..orm.access import access_of
from ..orm.fields import kind_of
from ..orm.labels import labels_by_text
from ..orm.named_filters import NamedFilter, Offer
from ..orm.nearest_names import alternatives
from ..orm.search import TextSearch
from ..runtime.failing_hooks import call_hook
from ..schema.secrets import clean_text
from .history import MAX_REPR, HistoryReader, changed_fields, has_history

LABEL: Final = "admin.logentry"
ACTIONS: Final = {1: "added", 2: "changed", 3: "deleted"}
# Hooks that can decide row by row who sees a row. If one is overridden, only get_record shows the history of the rows.
ROW_HOOKS: Final = ("has_view_permission", "has_view_or_change_permission", "has_permission", "get_object")
# Regular expressions for primary keys as the history stores them, as text.
INTEGERS: Final = r"^(0|-?[1-9][0-9]{0,17})$"
UUIDS: Final = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
TEXT: Final = models.TextField()


# A registry of its own keeps the model out of the project's app registry.
REGISTRY: Final = Apps()
REGISTRY.app_configs = apps.app_configs


class EscapedField(models.TextField):  # type: ignore[type-arg]
    """A field of the history model for text inside the JSON of a message, unescaped."""

    def get_prep_value(self, value: Any) -> Any:
        """Return the text as JSON writes it."""
        if isinstance(value, str):
            return json.dumps(value)[1:-1]
        return value

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        """Return the text."""
        try:
            if value is not None:
                return json.loads(f'"{value}"')
            return None
        except ValueError:
            return value


class LogEntry(models.Model):
    """The history model ``admin.logentry``: an entry of the admin's history as callers query it."""

    id = models.AutoField(primary_key=True)
    time = models.DateTimeField()
    user = models.CharField(max_length=200, db_column="username")
    action = models.CharField(max_length=10, choices=[(word, word) for word in ACTIONS.values()])
    model = models.CharField(max_length=200)
    object = models.TextField(help_text="The primary key of the record")
    client = EscapedField(null=True)
    tool = EscapedField(null=True)
    stored = models.TextField(db_column="change_message")

    class Meta:
        apps = REGISTRY
        app_label = "admin"
        db_table = "django_admin_log"
        managed = False
        verbose_name = "history entry"
        verbose_name_plural = "history entries"

    def __str__(self) -> str:
        return f"{self.action} {self.model} {self.object}"


class Source(NamedTuple):
    """A source of the history model: a model whose entries are shown, with its exposure and ``ModelAdmin``."""

    exposure: Any
    model_admin: Any

    def rows(self, request: MCPRequest) -> list[QuerySet[Any]]:
        """Return the querysets of rows whose entries the history model shows: the exposure's and the admin's."""
        own = self.exposure.get_queryset(request)
        if self.exposure.model_admin is self.model_admin:
            return [own]
        hook = self.model_admin.get_queryset
        none = self.exposure.model._default_manager.none()
        return [own, filterable(call_hook(self.exposure.label, "get_queryset", hook, request, default=none))]


class HistoryOptions(ExposureOptions):
    """The options of the history model: keys are found first, since client and tool cost more than the rows."""

    reads_keys_first = True

    def has_search(self, request: MCPRequest) -> bool:
        """Return True: the history model ``admin.logentry`` searches the rows whose history it is."""
        return True


class HistoryListing(Listing):
    """Lists a page of the history model, with the labels of rows and the messages without hidden fields."""

    def prepared(self, rows: Sequence[Any]) -> Sequence[Model]:
        from django.contrib.admin.models import LogEntry as Stored

        for label in {row.model for row in rows}:
            exposure: Any = self.exposure.site.exposures_by_label[label]
            model = access_of(self.request)[exposure]
            told = HistoryReader(model)
            mine = [row for row in rows if row.model == label]
            known = labels_by_text(model, {row.object for row in mine})
            for row in mine:
                row.mcp_label = known[row.object][1] if row.object in known else None
                row.mcp_changed = list(_changed(told, row.stored))
                row.mcp_message = told.text(Stored(change_message=row.stored))
        return rows


class HistoryRows(ReadOnlyExposure):
    """The exposure of the history model ``admin.logentry``: the history entries of all rows that the caller can see."""

    fields = ("id", "time", "user", "action", "model", "object", "label", "changed", "client", "tool", "message")
    list_display = fields[:-1]
    ordering = ("-time",)
    description = "Who changed what and when: the admin's history of records that you may view"
    _options_class = HistoryOptions

    def __init__(self, site: Any) -> None:
        super().__init__(LogEntry, site)

    @property
    def admin_site(self) -> Any:
        """The admin whose history it is."""
        return self.site.admin_site or admin.site

    def get_computed(self, name: str) -> Callable[[Model], Any] | None:
        """Return the history model's column that was worked out for all entries of a page."""
        if name in ("label", "changed", "message"):
            return attrgetter(f"mcp_{name}")
        return None

    @staticmethod
    def leaves_out(owner: type[Any]) -> bool:
        """Return whether a project's hooks decide row by row who sees rows: the history model leaves such a model out.
        ``mcp_history = True`` says that it does not."""
        hooks = [getattr(owner, name) for name in ROW_HOOKS if hasattr(owner, name)]
        own = [hook for hook in hooks if not getattr(hook, "__module__", "").startswith(("django.", "mcp_django."))]
        return bool(own) and not getattr(owner, "mcp_history", False)

    def get_listing(self, request: MCPRequest) -> Listing:
        """Return the ``HistoryListing`` of this request."""
        return HistoryListing(request, self)

    # Rows

    def sources(self, request: MCPRequest) -> Iterator[Source]:
        """Yield the sources of the history model: models whose history entries the caller can read."""
        admin_site = self.admin_site
        if not has_history(request) or not access_of(request).admits(admin_site):
            return
        for model, exposure in self.site.exposures.items():
            if model is not LogEntry and admin_site.is_registered(model) and access_of(request)[exposure].is_there:
                model_admin = admin_site.get_model_admin(model)
                hook = model_admin.has_view_permission
                may = call_hook(exposure.label, "has_view_permission", hook, request, default=False)
                if may and not self.leaves_out(type(exposure)) and not self.leaves_out(type(model_admin)):
                    yield Source(exposure, model_admin)

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        """Return the rows of the history model: entries of rows that the caller can see."""
        return DerivedTable.queryset(LogEntry, self._entries(request, lambda source, rows: rows))

    def _entries(
        self, request: MCPRequest, narrow: Callable[[Source, QuerySet[Any]], QuerySet[Any] | None]
    ) -> QuerySet[Any]:
        """Return the rows of the history model that belong to the rows which ``narrow`` leaves of each model."""
        from django.contrib.admin.models import LogEntry as Stored
        from django.contrib.contenttypes.models import ContentType

        entries: QuerySet[Any] = Stored.objects.order_by()
        keys = _keys_in(entries.db)
        shown = Q(pk__in=[])
        labels = []
        sources = list(self.sources(request))
        known_models = (source.exposure.model for source in sources)
        types = ContentType.objects.get_for_models(*known_models, for_concrete_models=False)
        for source in sources:
            kind = _kind_of_key(source.exposure)
            rows = [narrow(source, rows) for rows in source.rows(request)] if kind in keys else [None]
            if all(found is not None and found.db == entries.db for found in rows):
                type_id = types[source.exposure.model].pk
                labels.append(When(content_type_id=type_id, then=Value(source.exposure.label)))
                known = [
                    Exists(found.order_by().filter(pk=OuterRef(f"mcp_{kind}"))) for found in rows if found is not None
                ]
                shown |= Q(*known, content_type_id=type_id)
        entries = entries.alias(**{f"mcp_{kind}": key for kind, key in keys.items()}).filter(shown)
        return entries.values("id", "change_message", **_columns(labels))

    # Filters

    def get_named_filters(self, request: MCPRequest) -> Sequence[NamedFilter]:
        """Return the filter by changed fields."""
        return [ChangedFilter(request, self)]

    def get_search_results(
        self, request: MCPRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search the history model: return the entries of rows that the searches of their models find."""

        def narrow(source: Source, rows: QuerySet[Any]) -> QuerySet[Any] | None:
            has_search = source.exposure.options.has_search(request)
            if has_search:
                return TextSearch(access_of(request)[source.exposure]).found_in(rows, search_term)
            return None

        found = self._entries(request, narrow)
        return queryset.filter(pk__in=found.order_by().values("id")), False

    # Permissions

    def has_view_permission(self, request: MCPRequest, obj: Model | None = None) -> bool:
        """Return whether the caller can view the history model: any model has history entries for them to read."""
        return any(True for _ in self.sources(request))


class ChangedFilter(NamedFilter):
    """Filters the history model ``admin.logentry`` by a changed field that the caller sees."""

    def __init__(self, request: MCPRequest, exposure: HistoryRows) -> None:
        self.request = request
        self.exposure = exposure

    def names(self) -> Sequence[str]:
        return ("changed",)

    def comes_first(self, name: str, value: Any) -> bool:
        return name in self.names()

    def offers(self) -> Sequence[Offer]:
        return [Offer("changed", "name of a changed field, such as email")]

    def narrow(self, queryset: QuerySet[Any], values: Mapping[str, tuple[str, ...]]) -> QuerySet[Any]:
        """Narrow the history model to entries that name one of the changed fields."""
        missing = {_plain(text): text for text in values["changed"]}
        wanted = set(missing)
        found = Q(pk__in=[])
        known = dict[str, None]()
        for source in self.exposure.sources(self.request):
            told = HistoryReader(access_of(self.request)[source.exposure])
            texts = set[str]()
            known |= dict.fromkeys(told.visible)
            for names in told.visible.values():
                meant = {_plain(name) for name in names} & wanted
                texts |= names if meant else set()
                missing = {plain: text for plain, text in missing.items() if plain not in meant}
            if shown := [text for text in texts if not told.is_hidden(text)]:
                found |= Q(model=source.exposure.label, stored__regex=_pattern(shown))
        if missing:
            text = next(iter(missing.values()))
            raise ToolError(f"The history has no field {text[:60]!r}. {alternatives(text, known)}")
        return queryset.filter(found)


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()


def _pattern(names: Sequence[str]) -> str:
    """Return a regular expression that finds, in the history model, messages that name one of these changed fields."""
    texts = "|".join(re.escape(json.dumps(name)[1:-1]) for name in sorted(names))
    return rf'\{{"changed": \{{"fields": \[("([^"\\]|\\.)*", )*"({texts})("|: )'


def _changed(told: HistoryReader, message: str) -> Iterator[str]:
    """Yield the changed fields that the history model ``admin.logentry`` finds in a message."""
    names = {*told.hidden, *(text.lower() for texts in told.visible.values() for text in texts)}
    for text in (str(text) for part in told.parts(message) or () for text in changed_fields(part) or ()):
        name = text.partition(": ")[0]
        if not text.startswith("via MCP: "):
            yield clean_text(name if name.lower() in names else text, MAX_REPR)


# Expressions of the admin's table


def _kind_of_key(exposure: ModelExposure) -> str:
    """Return the kind of primary key by which the history model finds a model's rows, "" if the kind is unknown."""
    pk: Any = exposure.opts.pk
    if exposure.opts.is_composite_pk or kind_of(pk).is_custom:
        return ""
    return kind_of(pk).word


def _keys_in(using: str) -> dict[str, Any]:
    """Return the history model's SQL expressions for the primary keys of the rows, by their kind."""
    if connections[using].features.has_native_uuid_field:
        uuid: Any = Cast("object_id", models.UUIDField())
    else:
        uuid = Replace("object_id", Value("-"), Value(""), output_field=models.CharField())
    integer = Cast("object_id", models.BigIntegerField())
    is_integer: Any = Q(object_id__regex=INTEGERS)
    if connections[using].vendor == "sqlite":
        # SQLite evaluates regular expressions in Python, and casts any text to a number.
        is_integer = Exact(Cast(integer, TEXT), F("object_id"))
    return {
        "integer": Case(When(is_integer, then=integer)),
        "text": F("object_id"),
        "uuid": Case(When(object_id__regex=UUIDS, then=uuid)),
    }


def _columns(labels: Sequence[When]) -> dict[str, Any]:
    """Return the SQL expressions for the columns of the history model ``admin.logentry``, by name."""
    user: Any = get_user_model()
    name: Any = F(f"user__{user.USERNAME_FIELD}")
    if not isinstance(user._meta.get_field(user.USERNAME_FIELD), models.CharField):
        name = Cast(name, models.CharField())
    words = [When(action_flag=flag, then=Value(word)) for flag, word in ACTIONS.items()]
    return {
        "time": F("action_time"),
        "username": name,
        "action": Case(*words, default=Value(ACTIONS[3]), output_field=models.CharField()),
        "model": Case(*labels, default=Value(""), output_field=models.CharField()),
        "object": F("object_id"),
        # The keys stand in this order in the last part of a message, see ``Journal`` in ``history``.
        "client": _between('", "client": "', '", "client_id": "'),
        "tool": _between('", "tool": "', '", "client": "'),
    }


def _between(begin: str, end: str) -> Any:
    """Return the history model's SQL expression for the text between two marks in a message."""
    first = StrIndex("change_message", Value(begin))
    last = StrIndex("change_message", Value(end))
    length = Greatest(last - first - len(begin), Value(0))
    text = NullIf(Substr("change_message", first + len(begin), length), Value(""))
    return Case(When(GreaterThan(first, 0) & GreaterThan(last, 0), then=text), output_field=TEXT)
