"""The filters of the admin's sidebar that are code: ``SimpleListFilter`` and custom ``FieldListFilter`` classes.

They are created and applied as the admin's ``ChangeList`` does, with the caller's request. Django's own field filters
are left out: callers filter by the field itself instead.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlencode

from django.contrib.admin import filters
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import get_fields_from_path
from django.contrib.admin.views.main import ALL_VAR
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import Model, QuerySet
from django.http import QueryDict
from django.utils.inspect import func_supports_parameter

from ..exceptions import ToolError
from ..operating.query_comments import reading
from ..orm.access import ModelAccess
from ..orm.allowed_filters import AllowedFilter
from ..orm.named_filters import NamedFilter, Offer
from ..runtime.failing_hooks import call_hook

logger = logging.getLogger("mcp_django")

# Django's own filters, which do no more than the lookups of the field.
PLAIN: Final = frozenset(
    (
        filters.AllValuesFieldListFilter,
        filters.BooleanFieldListFilter,
        filters.ChoicesFieldListFilter,
        filters.DateFieldListFilter,
        filters.RelatedFieldListFilter,
        filters.RelatedOnlyFieldListFilter,
    )
)
# Maximum number of choices made of rows that are tried, each by a query: those that find no visible row are left out.
MAX_TRIED: Final = 50
WRONG_VALUE: Final = (IncorrectLookupParameters, ValidationError, ValueError)
T = TypeVar("T")
# Function that takes a parameter and its choices, and returns the choices to offer.
Among = Callable[[str, list[tuple[str, str]]], list[tuple[str, str]]]


def has_code(entry: Any) -> bool:
    """Return whether an entry of ``list_filter`` is a list filter with code, and not just a field."""
    return callable(entry) or (isinstance(entry, (list, tuple)) and entry[1] not in PLAIN)


class Sidebar:
    """The admin's sidebar of list filters (``list_filter``), for one caller."""

    def __init__(self, model: ModelAccess) -> None:
        self.model = model
        self.request = model.request
        self.exposure = model.exposure
        self.model_admin = model.exposure.model_admin

    def filters(self) -> "list[SidebarFilter]":
        """Return the list filters that are code. If the exposure declares its filters, only those that it names are
        returned."""
        exposure = self.exposure
        declared = exposure.get_filter_fields(self.request)
        if declared is None and exposure.fields is not None:
            return []
        hook = self.model_admin.get_list_filter
        entries = call_hook(exposure.label, "get_list_filter", hook, self.request, default=())
        made = (self._filter(entry) for entry in entries)
        found = [item for item in made if item is not None]
        if declared is not None:
            found = [item for item in found if any(name in declared for name in item.names())]
        return found

    def _filter(self, entry: Any) -> "SidebarFilter | None":
        if callable(entry):
            name = getattr(entry, "parameter_name", None) if issubclass(entry, filters.SimpleListFilter) else None
            return SidebarFilter(self, entry, name)
        path, filter_class = entry if isinstance(entry, (list, tuple)) else (entry, None)
        path = path if isinstance(path, str) else getattr(path, "name", "")
        try:
            field = get_fields_from_path(self.exposure.model, path)[-1]
        except FieldDoesNotExist:
            return None
        if filter_class is None:
            registered: Sequence[Any] = filters.FieldListFilter._field_list_filters  # type: ignore[attr-defined]
            filter_class = next(found for test, found in registered if test(field))
        if filter_class in PLAIN or not AllowedFilter.is_open(self.model, path):
            return None
        return SidebarFilter(self, filter_class, None, field, path)

    def allows(self, lookup: str, value: str) -> bool:
        """Return the verdict of the admin's ``lookup_allowed``."""
        verdict = self.model_admin.lookup_allowed
        # Before Django 6, an overridden lookup_allowed() may not take the request.
        with_request = func_supports_parameter(verdict, "request")
        return bool(verdict(lookup, value, self.request) if with_request else verdict(lookup, value))

    def listed(self, rows: Sequence[Model]) -> Sequence[Model]:
        """Return the rows from the changelist behind the list filters, as the admin's override prepares them: with what
        its columns need, for example."""
        keys = [str(row.pk) for row in rows]
        values = {} if any("," in key for key in keys) else {"pk__in": [",".join(keys)], ALL_VAR: [""]}
        listed = self.model_admin.get_changelist_instance(self.getting(values))
        found = {row.pk: row for row in listed.result_list}
        return [found.get(row.pk, row) for row in rows]

    def getting(self, values: Mapping[str, Sequence[str]]) -> Any:
        """Return a ``GET`` request for the admin's list with these parameters of list filters."""
        own: Any = copy(self.request)
        own.method = "GET"
        own.GET = QueryDict(mutable=True)
        for name, items in values.items():
            own.GET.setlist(name, list(items))
        return own


class SidebarFilter(NamedFilter):
    """One entry of ``list_filter`` that is code."""

    def __init__(
        self, sidebar: Sidebar, filter_class: Any, name: str | None, field: Any = None, path: str = ""
    ) -> None:
        self.sidebar = sidebar
        self.request = sidebar.request
        self.exposure = sidebar.exposure
        self.filter_class = filter_class
        self.name = name
        self.field = field
        self.path = path
        self.takes_lists = name is None
        # Whether the choices were read from rows when they were last made.
        self.made_of_rows = False

    def names(self) -> Sequence[str]:
        return self._names if self.name is None else (self.name,)

    def comes_first(self, name: str, value: Any) -> bool:
        """Return whether a text is one of the list filter's choices, which comes before a field's value."""
        if name != self.name or not isinstance(value, str) or AllowedFilter.find(self.sidebar.model, name) is None:
            return False
        rows = self.exposure.get_queryset(self.request)

        def is_choice() -> bool:
            offers = self._offers(
                lambda name, pairs: [pair for pair in pairs if value in pair and self._finds(rows, name, pair[0])]
            )
            return any(offer.choices and offer.value_of(value) is not None for offer in offers)

        return self._tried(is_choice, default=False)

    def _tried(self, ask: Callable[[], T], *, default: T) -> T:
        """Try the code of a list filter; return ``default`` where it fails."""
        try:
            return ask()
        except Exception:
            logger.warning("A filter of the admin of %s failed", self.exposure.label, exc_info=True)
            return default

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return self._tried(lambda: tuple(self._made({}).expected_parameters()), default=())

    def _made(self, values: Mapping[str, Sequence[str]]) -> Any:
        """Return Django's filter object as the admin's list makes it for these parameters."""
        # Filters make choices of the ModelAdmin's rows. Give it the exposure's, which can be fewer.
        admin: Any = copy(self.exposure.model_admin)
        admin.get_queryset = self.exposure.get_queryset
        request = self.sidebar.getting(values)
        params = {name: list(items) for name, items in values.items()}
        if self.field is None:
            return self.filter_class(request, params, self.exposure.model, admin)
        return self.filter_class(self.field, request, params, self.exposure.model, admin, field_path=self.path)

    def narrows_by_itself(self) -> bool:
        """Return whether the list filter narrows the admin's list while nothing is chosen."""
        if not (self.name is not None or _is_own(self.filter_class, "queryset", "__init__")):
            return False
        rows = self.exposure.get_queryset(self.request)
        none: Any = rows
        found = self._tried(lambda: self._nothing_chosen(rows), default=none)
        query: Any = found.query if found is not None else rows.query
        if query.where == rows.query.where and not query.is_sliced and not query.combinator:
            return False
        made = self._made({})
        return made is not None and bool(made.has_output())

    def _nothing_chosen(self, rows: QuerySet[Any]) -> QuerySet[Any] | None:
        """Return the list filter's queryset while nothing is chosen, without making its choices if possible."""
        request = self.sidebar.getting({})
        if self.name is not None and not _is_own(self.filter_class, "__init__"):
            bare = self.filter_class.__new__(self.filter_class)
            bare.request = request
            bare.used_parameters = {}
            try:
                found: QuerySet[Any] | None = bare.queryset(request, rows)
            except AttributeError:
                pass
            else:
                return found
        made = self._made({})
        found = made.queryset(made.request, rows) if made is not None else None
        return found

    def offers(self) -> Sequence[Offer]:
        """Return the list filter's parameters with their choices, except choices made of rows."""
        return self._offers(lambda name, pairs: [])

    def described(self) -> Sequence[Offer]:
        """Return the list filter's choices, those made of rows only if they find rows of the caller's."""
        rows = self.exposure.get_queryset(self.request)
        return self._offers(
            lambda name, pairs: [pair for pair in pairs[:MAX_TRIED] if self._finds(rows, name, pair[0])]
        )

    def value_of(self, offer: Offer, text: str) -> str | None:
        """Return the list filter's choice for a text, None for one that finds nothing."""
        if not self.made_of_rows:
            return offer.value_of(text)
        if self._finds(self.exposure.get_queryset(self.request), offer.name, text):
            return text
        told = next((found for found in self.described() if found.name == offer.name), offer)
        return told.value_of(text) if told.choices else None

    def _offers(self, among: Among) -> Sequence[Offer]:
        with reading() as queries:
            made = self._made({})
            if made is None or not made.has_output():
                return ()
            pairs: dict[str, list[tuple[str, str]]] = (
                _choices(made) if self.name is None else {self.name: list(_pairs(made.lookup_choices))}
            )
        self.made_of_rows = bool(queries) and any(pairs.values())
        found = pairs
        if queries:
            found = {name: among(name, choices) for name, choices in pairs.items()}
        return [Offer(name, str(made.title), tuple(found.get(name, ()))) for name in self.names()]

    def _finds(self, rows: QuerySet[Any], name: str, value: str) -> bool:
        try:
            made = self._made({name: [value]})
            found = made.queryset(made.request, rows) if made is not None else None
            return found is not None and bool(found.exists())
        except WRONG_VALUE:
            return False

    def narrow(self, queryset: QuerySet[Any], values: Mapping[str, tuple[str, ...]]) -> QuerySet[Any]:
        name = next(iter(values), self.name)
        if not all(self.sidebar.allows(key, item) for key, items in values.items() for item in items):
            raise ToolError(f"The filter {name!r} is not allowed here.")
        try:
            made = self._made(values)
            found = made.queryset(made.request, queryset)
        except WRONG_VALUE:
            given = ", ".join(item for items in values.values() for item in items)
            raise ToolError(f"The filter {name!r} does not take {given[:60]!r}.") from None
        return queryset if found is None else found


def _is_own(filter_class: Any, *names: str) -> bool:
    """Return whether a list filter's class overrides one of these methods of Django's."""
    return any(getattr(filter_class, name).__module__ != filters.__name__ for name in names)


def _pairs(choices: Any) -> Iterator[tuple[str, str]]:
    """Yield values and labels of a list filter's choices."""
    for choice in list(choices)[: NamedFilter.MAX_CHOICES]:
        if isinstance(choice, (list, tuple)) and len(choice) == 2 and choice[0] is not None:
            yield str(choice[0]), str(choice[1])


def _choices(made: Any) -> dict[str, list[tuple[str, str]]]:
    """Return the choices of a field's list filter by parameter, if each choice sets one parameter. Relations are left
    out, because the admin lists rows there that the caller may not see."""
    field = getattr(made, "field", None)
    if field is None or field.is_relation or "__" in str(getattr(made, "field_path", "")):
        return {}
    found: dict[str, list[tuple[str, str]]] = {}
    try:
        for choice in made.choices(_Links()):
            pairs = parse_qsl(str(choice["query_string"])[1:], keep_blank_values=True)
            if len(pairs) > 1:
                return {}
            for name, value in pairs:
                found.setdefault(name, []).append((value, str(choice["display"])))
    except Exception:
        # The filter needs a real changelist. Without known choices, callers can try any value.
        return {}
    return found if sum(map(len, found.values())) <= NamedFilter.MAX_CHOICES else {}


class _Links:
    """Lets a list filter write the links of its choices without a changelist."""

    add_facets = is_facets_optional = False

    def get_query_string(self, new_params: Mapping[str, Any] | None = None, remove: Any = None) -> str:
        """Return the parameters that the choice sets."""
        return "?" + urlencode(
            {name: value for name, value in (new_params or {}).items() if value is not None}, doseq=True
        )
