"""The admin's history as a model of its own, to be read: ``admin.logentry``, who changed what and when.

No registration is needed. A caller reads entries of those rows whose history page the admin shows them, and of these
what ``get_record`` tells of one row's history (:mod:`mcp_django.exposures.history`). What became of rows that are not
theirs to see, or no longer there, is not told. A project that registers ``LogEntry`` itself exposes it as it says.
"""

import dis
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import CO_VARARGS, CO_VARKEYWORDS
from operator import attrgetter
from typing import Any, Final

from django.apps import apps
from django.apps.registry import Apps
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db import connections, models
from django.db.models import Case, Exists, F, Model, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Cast, Greatest, Left, Length, Replace, Reverse, Right, StrIndex, Substr
from django.db.models.lookups import EndsWith, Exact, GreaterThan

from ..context.request import Exposure, MCPRequest, Registry
from ..exceptions import ToolError
from ..orm.access import may_view, visible_fields
from ..orm.derived import derived
from ..orm.filters import searched
from ..orm.kinds import kind_of, stored_field
from ..orm.lookups import NamedFilter, Offer
from ..orm.managers import filterable
from ..orm.relations import labels_by_text
from ..orm.wording import alternatives
from ..runtime.hooks import asked
from ..schema.jsonable import clean_text
from .history import (
    MAX_REPR,
    changed_fields,
    has_history,
    hidden_names,
    is_about,
    logged_fields,
    names_in_log,
    told,
    told_parts,
)
from .model import ModelExposure

LABEL: Final = "admin.logentry"
ACTIONS: Final = {1: "added", 2: "changed", 3: "deleted"}
# By these a project can decide for single rows who sees them. The histories of such rows are on their pages alone.
ROW_HOOKS: Final = (
    "has_view_permission",
    "has_view_or_change_permission",
    "has_permission",
    "get_object",
)
# What stands before and behind the client and the tool in a message. Quotes within values are escaped.
MARKS: Final = (
    ('{"changed": {"fields": ["via MCP: ', '"]}}]'),
    ('{"added": {"name": "via MCP", "object": "', '"}}]'),
    ('{"deleted": {"name": "via MCP", "object": "', '"}}]'),
)
# Keys as texts, in the spelling that the history has.
INTEGERS: Final = r"^(0|-?[1-9][0-9]{0,17})$"
UUIDS: Final = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
TEXT: Final = models.TextField()


# In no registry of the project, so that the model is nobody else's.
REGISTRY: Final = Apps()
REGISTRY.app_configs = apps.app_configs


class EscapedField(models.TextField):  # type: ignore[type-arg]
    """A text within JSON, as its escapes write it."""

    def get_prep_value(self, value: Any) -> Any:
        """Return the text as JSON writes it."""
        return json.dumps(value)[1:-1] if isinstance(value, str) else value

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        """Return the text."""
        try:
            return json.loads(f'"{value}"') if value is not None else None
        except ValueError:
            return value


class LogEntry(models.Model):
    """An entry of the history as callers read it; ``stored`` is its message as the table holds it."""

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


@dataclass(frozen=True, slots=True)
class Source:
    """A model whose history the caller may read: its exposure, and the ``ModelAdmin`` that shows it."""

    exposure: Any
    model_admin: Any

    def rows(self, request: MCPRequest) -> list[QuerySet[Any]]:
        """Return the querysets that a row has to be in: the exposure's, and the admin's if that is another one."""
        own = self.exposure.get_queryset(request)
        if getattr(self.exposure, "model_admin", None) is self.model_admin:
            return [own]
        hook = self.model_admin.get_queryset
        none = self.exposure.model._default_manager.none()
        return [own, filterable(asked(self.exposure.label, "get_queryset", hook, request, default=none))]


class HistoryRows(ModelExposure):
    """The entries of the history of all rows that the caller may see."""

    fields = ("id", "time", "user", "action", "model", "object", "label", "changed", "client", "tool", "message")
    list_display = fields[:-1]
    ordering = ("-time",)
    description = "Who changed what and when: the admin's history of records that you may view"
    # Clients and tools are taken from messages, which costs more than to find the entries.
    reads_keys_first = True

    def __init__(self, site: Registry) -> None:
        super().__init__(LogEntry, site)

    @property
    def admin_site(self) -> Any:
        """The admin whose history it is."""
        return self.site.admin_site or admin.site

    def get_computed(self, name: str) -> Callable[[Model], Any] | None:
        """Return what was worked out for all rows of a page together."""
        return attrgetter(f"mcp_{name}") if name in ("label", "changed", "message") else None

    def get_listed_rows(self, request: MCPRequest, rows: Sequence[Any]) -> Sequence[Model]:
        """Return the entries with the labels of their rows, and with what their messages tell this caller."""
        from django.contrib.admin.models import LogEntry as Stored

        for label in {row.model for row in rows}:
            exposure: Any = self.site.exposures_by_label[label]
            hidden = hidden_names(request, exposure, None)
            names = {name.lower() for field in logged_fields(exposure) for name in names_in_log(exposure, field)}
            mine = [row for row in rows if row.model == label]
            known = labels_by_text(request, exposure, {row.object for row in mine})
            for row in mine:
                row.mcp_label = known[row.object][1] if row.object in known else None
                row.mcp_changed = list(_changed(told_parts(row.stored, hidden) or [], names))
                row.mcp_message = told(Stored(change_message=row.stored), hidden)
        return rows

    # Rows

    def sources(self, request: MCPRequest) -> Iterator[Source]:
        """Yield the models whose history the caller may read."""
        admin_site = self.admin_site
        if not has_history(request) or not asked(
            admin_site.name, "has_permission", admin_site.has_permission, request, default=False
        ):
            return
        for model, exposure in self.site.exposures.items():
            if model is not LogEntry and admin_site.is_registered(model) and may_view(request, exposure):
                model_admin = admin_site.get_model_admin(model)
                owners: list[Any] = [type(exposure), type(model_admin)]
                hook = model_admin.has_view_permission
                may = asked(exposure.label, "has_view_permission", hook, request, default=False)
                if may and not any(map(decides_by_row, owners)):
                    yield Source(exposure, model_admin)

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        """Return the entries of rows that the caller may see."""
        return derived(LogEntry, self._entries(request, lambda source, rows: rows))

    def _entries(
        self, request: MCPRequest, narrow: Callable[[Source, QuerySet[Any]], QuerySet[Any] | None]
    ) -> QuerySet[Any]:
        """Return the columns of the entries of those rows that ``narrow`` leaves of the rows of a model."""
        from django.contrib.admin.models import LogEntry as Stored
        from django.contrib.contenttypes.models import ContentType

        entries: QuerySet[Any] = Stored.objects.order_by()
        keys, shown, labels = _keys_in(entries.db), Q(pk__in=[]), []
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

    def has_search(self, request: MCPRequest) -> bool:
        """Return True: the rows are searched whose history it is."""
        return True

    def get_search_results(
        self, request: MCPRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Return the entries of rows that the searches of their models find."""

        def narrow(source: Source, rows: QuerySet[Any]) -> QuerySet[Any] | None:
            return (
                searched(request, source.exposure, rows, search_term) if source.exposure.has_search(request) else None
            )

        found = self._entries(request, narrow)
        return queryset.filter(pk__in=found.order_by().values("id")), False

    # Permissions

    def has_view_permission(self, request: MCPRequest, obj: Model | None = None) -> bool:
        """Return whether there is a model whose history the caller may read."""
        narrowing = request.mcp.narrowing
        if narrowing is not None and not narrowing.admits(self.model):
            return False
        return any(True for _ in self.sources(request))

    def has_add_permission(self, request: MCPRequest) -> bool:
        """Return False: entries come of what they tell."""
        return False

    def has_change_permission(self, request: MCPRequest, obj: Model | None = None) -> bool:
        """Return False: entries come of what they tell."""
        return False

    def has_delete_permission(self, request: MCPRequest, obj: Model | None = None) -> bool:
        """Return False: entries come of what they tell."""
        return False


class ChangedFilter(NamedFilter):
    """The entries that say that a field was changed, which the caller sees."""

    def __init__(self, request: MCPRequest, exposure: HistoryRows) -> None:
        self.request, self.exposure = request, exposure

    def names(self) -> Sequence[str]:
        """See :meth:`NamedFilter.names`."""
        return ("changed",)

    def comes_first(self, name: str, value: Any) -> bool:
        """See :meth:`NamedFilter.comes_first`."""
        return name in self.names()

    def offers(self) -> Sequence[Offer]:
        """See :meth:`NamedFilter.offers`."""
        return [Offer("changed", "name of a changed field, such as email")]

    def narrow(self, queryset: QuerySet[Any], values: Mapping[str, tuple[str, ...]]) -> QuerySet[Any]:
        """Return the entries that name one of the fields.

        Raises:
            ToolError: the caller sees no such field of any model.
        """
        missing = {_plain(text): text for text in values["changed"]}
        wanted, found, known = set(missing), Q(pk__in=[]), dict[str, None]()
        for source in self.exposure.sources(self.request):
            exposure, texts = source.exposure, set[str]()
            seen = visible_fields(self.request, exposure)
            for field in logged_fields(exposure):
                names = names_in_log(exposure, field) if field.name in seen else set()
                known |= {field.name: None} if names else {}
                meant = {_plain(name) for name in names} & wanted
                texts |= names if meant else set()
                missing = {plain: text for plain, text in missing.items() if plain not in meant}
            hidden = hidden_names(self.request, exposure, None)
            if told := [text for text in texts if not is_about(text.lower(), hidden)]:
                found |= Q(model=exposure.label, stored__regex=_pattern(told))
        for text in missing.values():
            raise ToolError(f"The history tells of no field {text[:60]!r}. {alternatives(text, known)}")
        return queryset.filter(found)


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()


def _pattern(names: Sequence[str]) -> str:
    """Return the expression of messages that say that one of these fields of the row itself was changed."""
    texts = "|".join(re.escape(json.dumps(name)[1:-1]) for name in sorted(names))
    return rf'\{{"changed": \{{"fields": \[("([^"\\]|\\.)*", )*"({texts})("|: )'


def _changed(parts: Sequence[Any], names: set[str]) -> Iterator[str]:
    """Yield the names of changed fields, without what became of their values."""
    for text in (str(text) for part in parts for text in changed_fields(part) or ()):
        name = text.partition(": ")[0]
        if not text.startswith("via MCP: "):
            yield clean_text(name if name.lower() in names else text, MAX_REPR)


@lru_cache(maxsize=1024)
def decides_by_row(owner: type[Any]) -> bool:
    """Return whether code of the project's own decides for single rows who may see them and their history."""
    hooks = (getattr(owner, name, None) for name in ROW_HOOKS)
    return any(hook is not None and not _is_known(hook) and _takes_row(hook) for hook in hooks)


def _is_known(hook: Any) -> bool:
    return getattr(hook, "__module__", "").startswith(("django.", "mcp_django."))


def _takes_row(hook: Any) -> bool:
    """Return whether a function does anything with its last argument, the row."""
    code = getattr(hook, "__code__", None)
    if code is None or code.co_flags & (CO_VARARGS | CO_VARKEYWORDS) or hook.__name__ == "get_object":
        return True
    row = code.co_varnames[code.co_argcount - 1]
    used = (item.argval for item in dis.get_instructions(code))
    return any(row in item if isinstance(item, tuple) else row == item for item in used)


# Expressions of the admin's table


def _kind_of_key(exposure: Exposure) -> str:
    """Return how keys of the model are written in the history, "" where that is not known."""
    pk: Any = exposure.opts.pk
    if exposure.opts.is_composite_pk or hasattr(stored_field(pk), "from_db_value"):
        return ""
    return kind_of(pk).word


def _keys_in(using: str) -> dict[str, Any]:
    """Return what gives keys of each kind as their columns hold them, NULL for what is no such key."""
    if connections[using].features.has_native_uuid_field:
        uuid: Any = Cast("object_id", models.UUIDField())
    else:
        uuid = Replace("object_id", Value("-"), Value(""), output_field=models.CharField())
    integer = Cast("object_id", models.BigIntegerField())
    is_integer: Any = Q(object_id__regex=INTEGERS)
    if connections[using].vendor == "sqlite":
        # Whose expressions are Python's, and which makes a number of any text.
        is_integer = Exact(Cast(integer, TEXT), F("object_id"))
    return {
        "integer": Case(When(is_integer, then=integer)),
        "text": F("object_id"),
        "uuid": Case(When(object_id__regex=UUIDS, then=uuid)),
    }


def _columns(labels: Sequence[When]) -> dict[str, Any]:
    """Return the columns of entries, by their names; ``labels`` are the names of the models."""
    user: Any = get_user_model()
    name: Any = F(f"user__{user.USERNAME_FIELD}")
    if not isinstance(user._meta.get_field(user.USERNAME_FIELD), models.CharField):
        name = Cast(name, models.CharField())
    words = [When(action_flag=flag, then=Value(word)) for flag, word in ACTIONS.items()]
    client, tool = _client_and_tool()
    return {
        "time": F("action_time"),
        "username": name,
        "action": Case(*words, default=Value(ACTIONS[3]), output_field=models.CharField()),
        "model": Case(*labels, default=Value(""), output_field=models.CharField()),
        "object": F("object_id"),
        "client": client,
        "tool": tool,
    }


def _client_and_tool() -> tuple[Any, Any]:
    """Return the name of the client and the tool that a message is marked with: see ``author``."""
    author = Case(*map(_marked_by, MARKS), output_field=TEXT)
    comma = StrIndex(Reverse(author), Value(" ,"))
    tool = Case(When(GreaterThan(comma, 0), then=Right(author, comma - 1)), default=author, output_field=TEXT)
    client = Left(author, Length(author) - comma - 1)
    # Without the id that it signed in with.
    bracket = StrIndex(Reverse(client), Value("( "))
    has_id = GreaterThan(bracket, 0) & EndsWith(client, ")")
    name = Case(When(has_id, then=Left(client, Length(client) - bracket - 1)), default=client, output_field=TEXT)
    return Case(When(GreaterThan(comma, 0), then=name), output_field=TEXT), tool


def _marked_by(mark: tuple[str, str]) -> When:
    begin, end = mark
    at = StrIndex("change_message", Value(begin))
    length = Greatest(Length("change_message") - at - (len(begin) + len(end) - 1), Value(0))
    marked = GreaterThan(at, 0) & Q(change_message__endswith=end)
    return When(marked, then=Substr("change_message", at + len(begin), length))
