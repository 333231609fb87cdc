"""The filters of an exposure's ``filterset_class``: a ``FilterSet`` of django-filter, which is not imported here."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.forms import ChoiceField
from django.http import QueryDict

from ..context.request import MCPRequest
from ..exceptions import ToolError
from ..exposures.base import ModelExposure
from .access import access_of, has_every_row
from .lookups import MAX_CHOICES, NamedFilter, Offer


class FilterSetFilter(NamedFilter):
    """All filters of a ``FilterSet``: its form reads the values of one object of the expression together."""

    def __init__(self, request: MCPRequest, exposure: ModelExposure, filterset_class: Any) -> None:
        self.request = request
        self.exposure = exposure
        self.filterset_class = filterset_class

    def names(self) -> Sequence[str]:
        """See :meth:`NamedFilter.names`."""
        return self._names

    def comes_first(self, name: str, value: Any) -> bool:
        """See :meth:`NamedFilter.comes_first`."""
        return name in self.names()

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(name for key, item in self._empty.filters.items() for name in _names(key, item))

    @cached_property
    def _empty(self) -> Any:
        # An instance, as asking the class for its form fields would change what other instances show.
        return self._filterset(self.exposure.model._default_manager.none(), None)

    def _filterset(self, queryset: QuerySet[Any], data: QueryDict | None) -> Any:
        made = self.filterset_class(data=data, queryset=queryset, request=self.request)
        for field in made.form.fields.values():
            rows = getattr(field, "queryset", None)
            if rows is not None and rows.model in self.request.mcp.site.exposures:
                field.queryset = self._visible(rows)
        return made

    def _visible(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return those of the rows that a relation may be compared with that the caller may view."""
        related = access_of(self.request).exposure_of(rows.model)
        if related is None:
            return rows.none()
        visible = related.get_queryset(self.request).order_by()
        return rows if has_every_row(related) else rows.filter(pk__in=visible.values("pk"))

    def offers(self) -> Sequence[Offer]:
        """See :meth:`NamedFilter.offers`."""
        made = self._empty
        return [
            Offer(name, _title(made.form.fields[key], key), tuple(_choices(made.form.fields[key])))
            for key, item in made.filters.items()
            for name in _names(key, item)
        ]

    def narrow(self, queryset: QuerySet[Any], values: Mapping[str, tuple[str, ...]]) -> QuerySet[Any]:
        """See :meth:`NamedFilter.narrow`."""
        items = self._empty.filters
        data = QueryDict(mutable=True)
        for name, given in values.items():
            data.setlist(name, [",".join(given)] if name in items and _is_csv(items[name]) else list(given))
        made = self._filterset(queryset, data)
        if not made.is_valid():
            name, errors = next(iter(made.form.errors.items()))
            raise ToolError(f"The filter {name!r}: {' '.join(map(str, errors))[:300]}")
        try:
            found: QuerySet[Any] = made.qs
        except (ValidationError, ValueError):
            raise ToolError(f"The filter {next(iter(values))!r} does not take this value.") from None
        return found


def _names(key: str, item: Any) -> Iterator[str]:
    """Yield the parameters of a filter: its name, or those of the ends of a range."""
    widget = item.field.widget
    for suffix in getattr(widget, "suffixes", None) or [None]:
        yield widget.suffixed(key, suffix) if suffix else key


def _title(field: Any, key: str) -> str:
    # What django-filter says of a filter that is a method and has no label.
    return key if field.label in (None, "", "[invalid name]") else str(field.label)


def _is_csv(item: Any) -> bool:
    """Return whether the filter takes a list as one text with commas."""
    return any(base.__name__ == "BaseCSVWidget" for base in type(item.field.widget).__mro__)


def _choices(field: Any) -> Iterator[tuple[str, str]]:
    # The choices of a relation are rows: they are not listed.
    if not isinstance(field, ChoiceField) or hasattr(field, "queryset"):
        return
    choices: Any = field.choices
    flat = (pair for value, label in choices for pair in (label if isinstance(label, list) else [(value, label)]))
    for value, label in islice(flat, MAX_CHOICES):
        if value not in ("", None):
            yield str(value), str(label)
