"""Check and read the arguments that tools share: model, fields, filters, ordering, limit.

Names that a client sends are looked up in the caller's allow-lists. A name that is not there is refused by a
``ToolError`` with the valid names, and a hidden name gets the same answer as one that does not exist.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache, partial
from typing import Any, ClassVar, Final

from ..conf import settings
from ..context.request import MCPRequest
from ..exceptions import NotFound, NotPermitted, ToolError
from ..schema.arguments import ArgumentSchema
from ..schema.value_types import is_empty
from .access import Access, ModelAccess, access_of
from .alternative_spellings import (
    TRUTH,
    argument_meant,
    is_short_text,
    json_or_text,
    order_meant,
    order_texts,
    starts_at_the_beginning,
)
from .columns import Column
from .conditions import Filter, is_moving
from .filter_parser import FilterReader
from .nearest_names import Misnamed, alternatives, letters, nearest
from .ordering import Orderings, OrderKey, total_order
from .pagination import PageQuery
from .path import Path, guarded_values
from .relative_dates import local_now, seen_from
from .search import TextSearch
from .suggestions import (
    Suggestions,
    nearest_models,
    with_argument,
    with_field,
    with_model,
    with_name,
    without_argument,
)

# Maximum number of models suggested for a call without a model.
MAX_FITTING: Final = 5
# Maximum number of characters of model labels in a message.
MAX_LABELS: Final = 360
MAX_ORDER: Final = 5
NULL_PLACES: Final[Mapping[str, bool | None]] = {"": None, "nulls_first": False, "nulls_last": True}
# Maximum number of names in a list, unless another is given.
MAX_NAMES: Final = 200
# Arguments whose text is searched for as it is, even if it looks like JSON.
SEARCHED: Final = frozenset({"search", "query"})
# Arguments that limit the number of rows.
BOUNDS: Final = frozenset({"limit", "top"})
# Maximum number of unknown arguments whose meaning is looked for, and how many an error names if there are more.
MAX_UNKNOWN: Final = 20
FIRST_UNKNOWN: Final = 5
# Maximum number of characters of a text that may spell an empty list or object.
MAX_EMPTY: Final = 16


class Arguments(dict[str, Any]):
    """The arguments of a tool's call that are set, by name. A method reads the value of one of them.

    The methods raise ``ToolError`` for a value that the argument does not take.
    """

    # Maximum number of characters and of words of a text to search for.
    MAX_SEARCH: ClassVar = 200
    MAX_SEARCH_WORDS: ClassVar = 12

    @classmethod
    def read(
        cls, arguments: Mapping[str, Any], known: Iterable[str], *, keeping: Collection[str] = (), strict: bool = False
    ) -> "Arguments":
        """Return the arguments of a call, all of which must be ``known``, without those that are not set.

        An empty text, list or object counts as left out, and never as everything: some language models write something
        for every argument. Arguments in ``keeping`` may be empty. Unless it is ``strict``, synonyms such as ``orderBy``
        or ``where`` are understood, and a limit of 0 rows counts as left out.

        Raises ``ToolError``, with the argument that may be meant, for an unknown one.
        """
        known = list(known)
        unknown = _unknown_names(arguments, known)
        if len(unknown) > MAX_UNKNOWN:
            first = ", ".join(repr(name[:60]) for name in unknown[:FIRST_UNKNOWN])
            more = len(unknown) - FIRST_UNKNOWN
            raise ToolError(f"Unknown arguments: {first} and {more} more. {alternatives(None, known)}")
        if not strict:
            arguments = cls.understood(arguments, known)
        for name in arguments:
            if name not in known and name not in ArgumentSchema.IGNORED:
                raise _unknown_argument(name, known)

        # Leave out what is empty, and a limit of 0.
        found = cls()
        for name, value in arguments.items():
            if value is None or name in ArgumentSchema.IGNORED:
                continue
            if name not in keeping and _is_left_out(name, value):
                continue
            if not strict and name in BOUNDS and str(value) == "0":
                continue
            found[name] = value
        return found

    @classmethod
    def of_write(
        cls,
        arguments: Mapping[str, Any],
        known: Iterable[str],
        required: Collection[str] = (),
        keeping: Collection[str] = (),
    ) -> "Arguments":
        """Return the arguments of a call that writes. Synonyms are not understood, and only arguments in ``required``
        or ``keeping`` may be empty. Raises ``ToolError`` for an unknown argument, and without a required one."""
        names = list(known)
        found = cls.read(arguments, names, keeping={*required, *keeping}, strict=True)
        missing = [name for name in required if name not in found]
        if missing:
            raise ToolError(f"Missing argument: {', '.join(missing)}. {alternatives(None, names)}")
        return found

    @staticmethod
    def understood(arguments: Mapping[str, Any], known: Collection[str]) -> Mapping[str, Any]:
        """Return the arguments, the misnamed ones by their ``known`` names where there is no doubt."""
        if not 0 < len(_unknown_names(arguments, known)) <= MAX_UNKNOWN:
            # With very many unknown names, none is looked up: each is compared with all synonyms.
            return arguments
        found: dict[str, Any] = {}
        for name, value in arguments.items():
            if "cursor" in known and starts_at_the_beginning(name, value):
                continue
            if name not in known and name not in ArgumentSchema.IGNORED:
                meant, is_sure = argument_meant(name, known)
                if meant is not None and is_sure and meant not in arguments:
                    name = meant
            found[name] = value
        return found

    def model(self, request: MCPRequest, fits: Callable[[str], bool] = lambda label: False) -> ModelAccess:
        """Return the caller's access to the model that ``model`` names.

        An error can name the models that the rest of the call ``fits``.
        """
        access = access_of(request)
        label = self.get("model")
        try:
            model = access.get_model(label)
        except NotFound:
            raise _no_model(access, label, fits) from None
        request.mcp.record.model = model.exposure.label
        return model

    def names(self, name: str, most: int = MAX_NAMES) -> list[str]:
        """Return the names in a list of at most ``most``, or in one text with commas."""
        value = json_or_text(self.get(name))
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value) or len(value) > most:
            raise ToolError(f"{name} must be a list of at most {most} names.")
        return [item for item in value if item]

    def limit(self, default: int, most: int | None = None, name: str = "limit") -> int:
        """Return a number of rows, at most ``most`` (the setting ``MAX_PAGE_SIZE``)."""
        value = self.get(name)
        most = settings.MAX_PAGE_SIZE if most is None else most
        if value is None:
            return max(1, min(default, most))
        return min(_whole_number(value, most), most)

    def limit_hint(self, most: int | None = None, name: str = "limit") -> Iterator[str]:
        """Yield a hint if a number of rows is above its maximum."""
        value = self.get(name)
        most = settings.MAX_PAGE_SIZE if most is None else most
        if value is not None and _whole_number(value, most) > most:
            yield f"{name} is at most {most}"

    def flag(self, name: str) -> bool:
        """Return a value that is true or false, false for none."""
        value = self.get(name)
        if isinstance(value, str):
            value = {"true": True, "false": False}.get(value.lower(), value)
        if value is not None and not isinstance(value, bool):
            meant = TRUTH.get(str(value).lower())
            repair = with_argument(name, meant) if meant is not None else None
            raise ToolError(f"{name} must be true or false.", repair=repair)
        return bool(value)

    def object(self, name: str) -> dict[str, Any]:
        """Return a JSON object, an empty one for none."""
        value = self.get(name)
        if not isinstance(value, dict):
            value = {} if value is None else json_or_text(value)
        if isinstance(value, list) and name == "values":
            raise ToolError("values is an object: write one row a call, or name rows that get the same values by pks.")
        if not isinstance(value, dict):
            raise ToolError(f"{name} must be an object, such as {{'field': value}}.")
        return value

    def pks(self) -> list[str | int]:
        """Return the list of primary keys ``pks``."""
        value = json_or_text(self.get("pks"))
        most = settings.MAX_BULK_ROWS
        if not isinstance(value, list) or not 1 <= len(value) <= most:
            raise ToolError(f"pks must be a list of 1 to {most} primary keys, as query_records shows them.")
        if not all(isinstance(item, (str, int, list)) and not isinstance(item, bool) for item in value):
            raise ToolError("Each of pks must be a string or an integer, as query_records shows it.")
        return value


def _unknown_argument(name: str, known: Sequence[str]) -> ToolError:
    message = f"Unknown argument {name[:60]!r}."
    if "cursor" in known and starts_at_the_beginning(name, None):
        text = f"{message} Pages are by cursor: call without it, then repeat the call with next_cursor as cursor."
        return ToolError(text, repair=without_argument(name))
    repair = partial(with_name, name)
    meant, _ = argument_meant(name, known)
    if meant is not None:
        return Misnamed(message, name, known, repair, [meant], of=None)
    return Misnamed(message, name, known, repair, nearest(name, known))


def _unknown_names(arguments: Mapping[str, Any], known: Collection[str]) -> list[str]:
    return [name for name in arguments if name not in known and name not in ArgumentSchema.IGNORED]


def _is_left_out(name: str, value: Any) -> bool:
    holds_json = name not in SEARCHED and (not isinstance(value, str) or len(value) <= MAX_EMPTY)
    found = json_or_text(value) if holds_json else value
    return not found and is_empty(found)


def _no_model(access: Access, label: Any, fits: Callable[[str], bool]) -> ToolError:
    """Return the error for a call whose argument ``model`` is missing, or is no model of the caller's."""
    labels = [exposure.label for exposure in access.exposures]
    if label is None or label == "":
        fitting = list(filter(fits, labels))
        if len(fitting) > MAX_FITTING or 1 < len(fitting) == len(labels):
            fitting = []
        which = f"One of: {', '.join(labels)[:MAX_LABELS]}. list_models describes them."
        if len(fitting) > 1:
            which = f"Models with all these names: {', '.join(fitting)}."
        repair = with_model(label, fitting[0], is_spelling=False) if len(fitting) == 1 else None
        return ToolError(f"The argument model is missing. {which}", repair=repair)

    text = label[0] if isinstance(label, list) and len(label) == 1 else label
    is_label = isinstance(text, str) and text.lower() in labels
    near = [text.lower()] if is_label else nearest_models(access, text)
    more = " list_models describes them."
    error = Misnamed("No such model.", text, labels, lambda right: with_model(text, right), near, more, of=None)

    # Operators see in the log which model it was, though the caller is not told that it exists.
    if isinstance(text, str) and text.lower() in access.request.mcp.site.exposures_by_label:
        error.outcome = NotPermitted.outcome
        access.request.mcp.record.model = text.lower()
    return error


def _whole_number(value: Any, most: int) -> int:
    is_integer_of_json = isinstance(value, float) and value.is_integer()
    if is_integer_of_json or (isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ToolError(f"limit must be a whole number from 1 to {most}.")
    return value


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
        return self.model.column_named(text) or Path.read(self.model, text).shown_column

    def _no_field(self, text: str) -> ToolError:
        exposure = self.exposure
        message = f"{exposure.label} has no field {text[:60]!r}."
        if text in ("*", "all"):
            hint = f"{message} Without fields, a page has the columns of the list."
            return ToolError(hint, repair=without_argument("fields"))
        if "(" in text:
            return ToolError(f"{message} Totals and counts: aggregate_records.")
        link = self.model.link(text.replace(".", "__").partition("__")[0])
        if link is not None and link.to_many:
            several = (
                f"{link.name} leads to several rows: query {link.exposure.label} itself, or get_record with related."
            )
            return ToolError(f"{message} {several}")

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

        raise Misnamed(
            f"{self.exposure.label} cannot be ordered by {name[:60]!r}.{Path.read(self.model, name).length_hint}",
            name,
            self.orderings.names(),
            lambda right: with_field(name, right, ["ordering"]),
            near if is_name else near(),
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
