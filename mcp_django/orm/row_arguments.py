"""Read the arguments that say which rows are read, and how: filters, search, ordering, fields."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cache, partial
from typing import Any, Final

from ..conf import settings
from ..exceptions import ToolError
from .access import ModelAccess
from .alternative_spellings import (
    is_short_text,
    order_meant,
    order_texts,
)
from .columns import Column
from .conditions import Filter, is_moving
from .filter_parser import FilterReader
from .generic_links import list_named
from .nearest_names import Misnamed, letters
from .ordering import Orderings, OrderKey, total_order
from .pagination import PageQuery
from .path import Path
from .related_values import RelatedNames, RelatedValue, guarded_values
from .relative_dates import local_now, seen_from
from .search import TextSearch
from .suggestions import (
    Suggestions,
    with_field,
    without_argument,
)
from .tool_arguments import Arguments

MAX_ORDER: Final = 5
NULL_PLACES: Final[Mapping[str, bool | None]] = {"": None, "nulls_first": False, "nulls_last": True}


class RowArguments:
    """Reads the arguments that tools for rows share: filters, search, ordering, readable fields."""

    def __init__(self, model: ModelAccess, given: Mapping[str, Any]) -> None:
        self.model = model
        self.request = model.request
        self.exposure = model.exposure
        self.orderings = Orderings(model)
        self.given = Arguments(given)
        # Whether ordering() gave the exposure's own without a part of it.
        self.leaves_out_order = False

    def query(self) -> PageQuery:
        """Return the query of a page from fields, filters, search, ordering, limit and cursor."""
        clock = cache(local_now)
        conditions = self.filters(clock)
        columns = self.columns()
        query = PageQuery(
            model=self.model,
            columns=columns,
            ordering=self.ordering(),
            limit=self.given.limit(self.exposure.get_list_per_page(self.request)),
            conditions=conditions,
            moment=clock() if is_moving(conditions) else None,
            search=self.search(),
            text_limit=settings.TEXT_CHARS,
            guarded=guarded_values(self.model, columns),
        )
        cursor = self.given.get("cursor")
        if cursor is None or cursor == "":
            return query
        query = query.after_cursor(cursor)
        moment = query.moment
        if moment is None:
            return query
        return replace(query, conditions=self.filters(lambda: seen_from(moment)))

    def filters(self, clock: Callable[[], datetime] | None = None) -> tuple[Filter, ...]:
        """Read the tool argument ``filters``; the ``clock`` gives the time for relative dates."""
        return FilterReader(self.model, clock).argument(self.given.get("filters"))

    def columns(self) -> tuple[Column, ...]:
        """Read the tool argument ``fields``: columns, the primary key first; by default those of the list."""
        exposure = self.exposure
        if self.given.get("fields") is None:
            return Column.all(exposure, self.model.page_fields)
        found = [*Column.all(exposure, self.model.fields[:1])]
        for text in self.given.names("fields"):
            column = self._column(text)
            if column is None:
                raise self._no_field(text)
            found.append(column)
        return tuple(dict.fromkeys(found))

    def _column(self, text: str) -> Column | None:
        column = self.model.column_named(text) or Path.read(self.model, text).shown_column
        if column is not None:
            return column
        value = RelatedValue.read(self.model, text)
        return value.column if value is not None else None

    def _no_field(self, text: str) -> ToolError:
        exposure = self.exposure
        message = f"{exposure.label} has no field {text[:60]!r}."
        if text in ("*", "all"):
            hint = f"{message} Without fields, a page has the columns of the list."
            return ToolError(hint, repair=without_argument("fields"))
        meant = RelatedNames(self.model).meant(text)
        if meant:
            near_call = meant if "(" in text else None
            repair = partial(with_field, text, within=["fields"])
            return Misnamed(message, text, meant, repair, near_call, of=exposure.opts.model_name)
        if "(" in text:
            return ToolError(f"{message} Totals and counts of all rows: aggregate_records.")
        link = list_named(self.model, text.replace(".", "__").partition("__")[0])
        if link is not None and link.to_many:
            ways = ", ".join(RelatedNames.some_of(link))
            return ToolError(f"{message} {link.name} leads to several rows: {ways}, or get_record with related.")

        def near() -> list[str]:
            # The end may be a lookup: then the field before it is meant.
            for name in (text, text.rpartition("__")[0]):
                paths = Suggestions(self.model).paths(name, lambda path: self._column(path) is not None)
                if paths:
                    return paths
            return []

        path = Path.read(self.model, text)
        return Misnamed(
            message + path.length_hint,
            text,
            [*self.model.fields, *path.siblings],
            lambda right: with_field(text, right, ["fields"]),
            near,
            of=exposure.opts.model_name,
        )

    def ordering(self) -> tuple[OrderKey, ...]:
        """Read the tool argument ``ordering``, made total by the primary key; by default the exposure's own."""
        value = self.given.get("ordering")
        names = []
        if value is not None:
            names = Arguments(ordering=order_texts(value)).names("ordering", MAX_ORDER)
        if not names:
            order = self.orderings.default()
            self.leaves_out_order = order.leaves_out
            return order.keys
        return total_order(self.exposure, list(map(self._order_key, names)))

    def _order_key(self, text: str) -> OrderKey:
        """Return one key of the order: ``name``, ``-name`` or ``-name:nulls_last``. Raises ``ToolError`` for others."""
        for spelt in (text, order_meant(text)):
            name, _, place = spelt.partition(":")
            if place in NULL_PLACES:
                descending = name[:1] == "-"
                name = name[1:] if name[:1] in "+-" else name
                nulls_last = NULL_PLACES[place]
                key = self.orderings.key(name, descending=descending, nulls_last=nulls_last)
                if key is not None:
                    return key

        # It is not an order of the caller's: say what is wrong with it.
        place = text.lstrip("+-").partition(":")[2]
        if place not in NULL_PLACES:
            ways = "Write field, -field, field:nulls_first or field:nulls_last."
            raise ToolError(f"Unknown order {place[:40]!r}. {ways}")
        name = order_meant(text).lstrip("-")
        is_name = name.replace(".", "").isidentifier()

        def near() -> list[str]:
            found = Suggestions(self.model).paths(name, lambda path: self.orderings.key(path) is not None)
            # For text that is not a name, suggest only the same letters: any other name would lose a part of the text.
            if is_name:
                return found
            return [path for path in found if letters(path) == letters(name)]

        of_lists = [path for path in RelatedNames(self.model).meant(name) if self.orderings.key(path) is not None]
        suggested: Callable[[], list[str]] | list[str] | None = near if is_name else near()
        raise Misnamed(
            f"{self.exposure.label} cannot be ordered by {name[:60]!r}.{Path.read(self.model, name).length_hint}",
            name,
            of_lists or self.orderings.names(),
            lambda right: with_field(name, right, ["ordering"]),
            suggested if not of_lists else None,
            " Descending is -field.",
            of=self.exposure.opts.model_name,
        )

    def search(self) -> str:
        """Read the tool argument ``search``, the search term; "" for none."""
        value = self.given.get("search")
        if value is None or value == "":
            return ""
        most = Arguments.MAX_SEARCH
        most_words = Arguments.MAX_SEARCH_WORDS
        if not is_short_text(value, most) or len(value.split()) > most_words:
            raise ToolError(f"search must be a text of at most {most} characters and {most_words} words.")
        TextSearch(self.model).check()
        return str(value.strip())
