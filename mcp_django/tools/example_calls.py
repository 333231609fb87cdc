"""Example calls on a model, which work for the caller as they stand."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from ..conf import settings
from ..exceptions import ToolError
from ..orm.access import ModelAccess
from ..orm.aggregates.aggregation import Aggregation
from ..orm.columns import Column
from ..orm.fields import kind_of
from ..orm.filter_parser import FilterReader
from .base import texts_of

# Lookup and value for an example filter, by the type of a column without choices.
LOOKUPS: Final[Mapping[str, tuple[str, Any]]] = {
    "boolean": ("", True),
    "date": ("__gte", "start of last year"),
    "datetime": ("__gte", "start of last year"),
    "integer": ("__gt", 0),
    "decimal": ("__gt", 0),
    "number": ("__gt", 0),
    "text": ("__icontains", "a"),
}

T = TypeVar("T")


class Examples:
    """Example calls for ``describe_model``; each works for the caller as it stands.

    Their values are choices that the model declares, or constants: none is read from a row.
    """

    def __init__(self, model: ModelAccess) -> None:
        self.model = model
        self.request = model.request
        self.exposure = model.exposure
        self._known_columns: dict[ModelAccess, list[Column]] = {}

    def calls(self) -> list[dict[str, Any]]:
        """Return the examples in ``describe_model``: the calls for a filtered page and an aggregate."""
        made = {"query_records": self._page, "aggregate_records": self._aggregate}
        found: list[dict[str, Any]] = [
            {"tool": tool, "arguments": {"model": self.exposure.label, **arguments()}}
            for tool, arguments in made.items()
            if self.request.mcp.site.get_tool(self.request, tool) is not None
        ]
        if settings.SCHEMAS == "plain":
            for example in found:
                example["arguments"] = {name: texts_of(value) for name, value in example["arguments"].items()}
        return found

    def _page(self) -> dict[str, Any]:
        conditions = (*self._through_relations(), *self._conditions(self.model))
        found = self._first(conditions, FilterReader(self.model).argument)
        return {"filters": found} if found else {"limit": 5}

    def _aggregate(self) -> dict[str, Any]:
        def read(arguments: dict[str, Any]) -> Aggregation:
            return Aggregation.read(self.model, arguments)

        # A sum or a count of rows.
        pk = self.exposure.opts.pk.name
        columns = [column for column in self._columns(self.model) if column.name != pk]
        summed = (f"sum:{column.name}" for column in columns if column.is_summable())
        measure = self._first(summed, lambda text: read({"aggregates": [text]})) or "count"

        # The same of some of the rows.
        function, _, field = measure.partition(":")
        conditional = {"function": function, **({"field": field} if field else {}), "as": "matching"}
        conditions = (*self._conditions(self.model), *self._through_relations())
        parts = ({**conditional, "where": where} for where in conditions)
        part = self._first(parts, lambda item: read({"aggregates": [measure, item]}))
        aggregates = [measure] if part is None else [measure, part]

        # By periods, or by a column with few different values.
        periods = (f"{column.name}:month" for column in columns if column.is_period())
        names = (
            column.name
            for column in columns
            if column.is_groupable()
            and (column.is_foreign_key or column.field.choices or kind_of(column.field).word == "boolean")
        )
        group = self._first((*periods, *names), lambda text: read({"aggregates": aggregates, "group_by": [text]}))
        if group is None:
            return {"aggregates": aggregates}
        return {"aggregates": aggregates, "group_by": [group]}

    @staticmethod
    def _first(candidates: Iterable[T], read: Callable[[T], Any]) -> T | None:
        """Return the first example in ``describe_model`` that is a valid call."""
        for candidate in candidates:
            try:
                read(candidate)
            except ToolError:
                continue
            return candidate
        return None

    def _columns(self, model: ModelAccess) -> list[Column]:
        """Return the columns for example calls of ``describe_model``: those with a database type of Django's own."""
        if model not in self._known_columns:
            columns = Column.all(model.exposure, model.fields)
            self._known_columns[model] = [
                column
                for column in columns
                if column.is_countable() and type(column.field).db_type.__module__.startswith("django.")
            ]
        return self._known_columns[model]

    def _through_relations(self) -> Iterator[dict[str, Any]]:
        links = self.model.links
        for link in links:
            yield from ({link.name: {"some": condition}} for condition in self._conditions(link.related))
        yield from ({link.name: {"count__gte": 2}} for link in links)
        for column in self._columns(self.model):
            related = None
            if column.is_foreign_key:
                related = self.model.access.model_of(column.field.related_model)
            for condition in self._conditions(related) if related is not None else ():
                yield {f"{column.name}.{name}": value for name, value in condition.items()}

    def _conditions(self, model: ModelAccess) -> Iterator[dict[str, Any]]:
        """Yield filters for the examples in ``describe_model``, the most telling first."""
        columns = [column for column in self._columns(model) if column.kind == "field"]
        for column in columns:
            if not column.field.choices:
                continue
            kind = kind_of(column.field)
            stored = [value for value, _ in kind.choices if value and isinstance(value, str | int)]
            if stored and not kind.holds_many:
                yield {column.name: stored[-1]}
        for word, (lookup, value) in LOOKUPS.items():
            for column in columns:
                if kind_of(column.field).word == word and not column.field.choices and not column.field.primary_key:
                    yield {f"{column.name}{lookup}": value}
