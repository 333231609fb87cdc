"""Filters that a project wrote, known by their names: the admin's sidebar, and a ``FilterSet`` of django-filter.

They run unchanged. django-filter is not imported here.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.forms import ChoiceField
from django.http import QueryDict

from ..exceptions import ToolError
from ..schema.value_types import choice_of
from .access import ModelAccess

logger = logging.getLogger("mcp_django")

# Titles that say nothing; the last is django-filter's label for a filter with a method and without a label.
_UNTITLED: Final = (None, "", "[invalid name]")


@dataclass(frozen=True, slots=True)
class Offer:
    """What a named filter offers to callers: its title and its choices; without choices it takes any text."""

    name: str
    title: str
    choices: tuple[tuple[str, str], ...] = ()

    def value_of(self, text: str) -> str | None:
        """Return the choice of a named filter that a client means by its value or title, None if it is no choice."""
        if not self.choices:
            return text
        found: str | None = choice_of(self.choices, text)
        return found


class NamedFilter(ABC):
    """A named filter that the project wrote, such as one in the admin's sidebar, with the names that select it."""

    # Maximum number of choices that are offered.
    MAX_CHOICES: ClassVar = 200
    # Whether a name takes more than one value.
    takes_lists = True

    @staticmethod
    def offers_of(model: ModelAccess, *, described: bool = False) -> list[Offer]:
        """Return what the model's named filters offer the caller, without those whose code fails.

        With ``described``, each has the choices that a description shows.
        """
        found: dict[str, Offer] = {}
        for item in model.exposure.get_named_filters(model.request):
            try:
                for offer in item.described() if described else item.offers():
                    found.setdefault(offer.name, offer)
            except Exception:
                names = ", ".join(item.names())
                logger.warning("A filter of %s failed: %s", model.exposure.label, names, exc_info=True)
        return list(found.values())

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Return the names of the named filter, without a query of the database."""

    def comes_first(self, name: str, value: Any) -> bool:
        """Return whether the name and value mean this named filter, though a field has the same name."""
        return False

    @abstractmethod
    def offers(self) -> Sequence[Offer]:
        """Return what this named filter offers the caller now; nothing if the admin would not show it."""

    def described(self) -> Sequence[Offer]:
        """Return what this named filter offers in a description, with only rows that the caller sees as choices."""
        return self.offers()

    def value_of(self, offer: Offer, text: str) -> str | None:
        """Return the choice of a named filter that a client means, None if the caller may not know of it."""
        return offer.value_of(text)

    @abstractmethod
    def narrow(self, queryset: QuerySet[Any], values: Mapping[str, tuple[str, ...]]) -> QuerySet[Any]:
        """Return the rows that pass the named filter."""


class Narrowed(NamedFilter):
    """A ``NamedFilter`` of this app, made from a function that narrows rows. Clients have no name for it."""

    def __init__(self, function: Callable[[QuerySet[Any]], QuerySet[Any]]) -> None:
        self.function = function

    def names(self) -> Sequence[str]:
        return ()

    def offers(self) -> Sequence[Offer]:
        return ()

    def narrow(self, queryset: QuerySet[Any], values: Mapping[str, tuple[str, ...]]) -> QuerySet[Any]:
        return self.function(queryset)


class FilterSetFilter(NamedFilter):
    """The named filters of a ``FilterSet`` of django-filter, whose form reads their values together."""

    def __init__(self, model: ModelAccess, filterset_class: Any) -> None:
        self.model = model
        self.filterset_class = filterset_class

    def names(self) -> Sequence[str]:
        return self._names

    def comes_first(self, name: str, value: Any) -> bool:
        return name in self.names()

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(name for key, item in self._empty.filters.items() for name in _names(key, item))

    @cached_property
    def _empty(self) -> Any:
        # Use an instance: asking the class for its form fields would change those of other instances.
        return self._filterset(self.model.exposure.model._default_manager.none(), None)

    def _filterset(self, queryset: QuerySet[Any], data: QueryDict | None) -> Any:
        model = self.model
        request = model.request
        made = self.filterset_class(data=data, queryset=queryset, request=request)
        for key, item in list(made.filters.items()):
            if model.is_kept_from(str(getattr(item, "field_name", None) or "")):
                del made.filters[key]
        for field in made.form.fields.values():
            rows = getattr(field, "queryset", None)
            if rows is not None and rows.model in request.mcp.site.exposures:
                # Compare a relation only with rows that the caller may view.
                related = model.access.model_of(rows.model)
                if related is None:
                    field.queryset = rows.none()
                elif not related.exposure.options.has_every_row:
                    visible = related.exposure.get_queryset(request).order_by()
                    field.queryset = rows.filter(pk__in=visible.values("pk"))
        return made

    def offers(self) -> Sequence[Offer]:
        made = self._empty
        return [
            Offer(name, key if field.label in _UNTITLED else str(field.label), tuple(_choices(field)))
            for key, item in made.filters.items()
            for name, field in ((name, made.form.fields[key]) for name in _names(key, item))
        ]

    def narrow(self, queryset: QuerySet[Any], values: Mapping[str, tuple[str, ...]]) -> QuerySet[Any]:
        items = self._empty.filters
        data = QueryDict(mutable=True)
        for name, given in values.items():
            widget = items[name].field.widget if name in items else None
            takes_list_as_text = any(base.__name__ == "BaseCSVWidget" for base in type(widget).__mro__)
            data.setlist(name, [",".join(given)] if takes_list_as_text else list(given))
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
    """Yield the names of a filter in a django-filter ``FilterSet``: its own, or those of the two ends of a range."""
    widget = item.field.widget
    if hasattr(item, "param_map"):
        # It orders rows and narrows nothing: clients use the argument ``ordering`` for that.
        return
    for suffix in getattr(widget, "suffixes", None) or [None]:
        yield widget.suffixed(key, suffix) if suffix else key


def _choices(field: Any) -> Iterator[tuple[str, str]]:
    # The choices of a relation are rows: they are not listed.
    if not isinstance(field, ChoiceField) or hasattr(field, "queryset"):
        return
    flat: list[Any] = []
    choices: Any = field.choices
    for value, label in choices:
        # A group has a list of choices.
        flat += label if isinstance(label, list) else [(value, label)]
        if len(flat) >= NamedFilter.MAX_CHOICES:
            break
    for value, label in flat[: NamedFilter.MAX_CHOICES]:
        if value not in ("", None):
            yield str(value), str(label)
