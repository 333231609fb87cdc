"""``list_models`` and ``describe_model``: the models that the caller sees, described in few words or in full."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, TypeVar

import orjson

from ..conf import settings
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..exceptions import ToolError
from ..orm.access import ModelAccess, access_of
from ..orm.aggregates.aggregation import Aggregation
from ..orm.allowed_filters import AllowedFilter
from ..orm.alternative_spellings import json_or_text
from ..orm.columns import Column
from ..orm.fields import kind_of
from ..orm.filter_parser import FilterReader
from ..orm.named_filters import NamedFilter
from ..orm.ordering import Orderings
from ..orm.path import computed_word
from ..orm.search import unsearched
from ..orm.tool_arguments import Arguments
from ..orm.uris import Address
from ..schema.secrets import clean_text
from .base import RecordTool, texts_of
from .model_overview import MAX_LINE, Overview, may_write
from .model_search import found_models
from .query_records import ALWAYS_LOAD, UNORDERED

MAX_CHOICES: Final = 30
# Maximum number of models that one call can name.
MAX_MODELS: Final = 50
# Maximum characters that are read of a query.
MAX_QUERY: Final = 500
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

# What can be written to a field of files.
FILE_WORDS: Final = 'write {"name", "base64"} or {"name", "text"}'

T = TypeVar("T")


class ListModels(RecordTool):
    """The models that the caller may view."""

    name = "list_models"
    title = "List models"
    description = "Models you may see, or that match a query, and what you may do there."
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "In any words"}},
    }
    output_schema: Mapping[str, Any] | None = {
        "type": "object",
        "properties": {
            "columns": {"type": "array", "items": {"type": "string"}},
            "rows": {"type": "array", "items": {"type": "array"}},
        },
        "required": ["columns", "rows"],
    }
    meta = ALWAYS_LOAD

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether ``list_models`` has a model to list, or a reason to tell why there is none."""
        return access_of(request).may_any("view") or bool(access_of(request).refusal)

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return a row for each model."""
        access = access_of(request)
        if refused := access.refusal:
            raise ToolError(refused)
        query = Arguments.read(arguments, self.input_schema["properties"]).get("query") or ""
        if not isinstance(query, str):
            raise ToolError("query must be a text.")
        found = found_models(access.models, query[:MAX_QUERY]) if query.strip() else []
        rows: list[list[str]] = []
        used = 0
        for model in found or access.models:
            exposure = model.exposure
            about = clean_text(exposure.description.strip().partition("\n")[0], MAX_LINE)
            row = [exposure.label, str(exposure.opts.verbose_name_plural), Overview(model).may, about]
            used += sum(map(len, row)) + 16
            if used > request.mcp.result_chars:
                break
            rows.append(row)
        hint = "Next: describe_model (several models in one call)."
        if not rows:
            hint = "You may not view any model."
        elif query.strip() and not found:
            hint = "No model matches, so these are all: use the nearest, or try other words."
        elif found and len(found) < len(access.models):
            hint = f"Best first. {hint} Not among them? leave query out to see all {len(access.models)}."
        if len(rows) < len(found or access.models):
            hint = "There are more models: say in query what you need."
        columns = ["model", "title", "may", "description"]
        return ToolResult(structured={"returned": len(rows), "hint": hint, "columns": columns, "rows": rows})


class Description(Overview):
    """A model described in full."""

    def in_lines(self) -> dict[str, Any]:
        """Return the description for ``describe_model``: one line for each field, in display order."""
        request = self.request
        exposure = self.exposure
        payload: dict[str, Any] = {"model": exposure.label, "title": str(exposure.opts.verbose_name)}
        if exposure.description:
            payload["description"] = exposure.description.strip()
        payload["may"] = self.may
        payload["fields"] = list(map(self._line, self.columns))
        extra: dict[str, Any] = {}
        for writing in self.forms:
            if writing is not None:
                names = [name for name in writing.names if name not in self.model.fields]
                extra = {**writing.schema(names).get("properties", {}), **extra}
        if extra:
            payload["write_only_fields"] = extra
        if lines := list(self.inline_lines()):
            payload["inlines"] = lines
        if related := self.related():
            payload["related"] = related
        own = {column.path for column in self.columns}
        paths = [f"{name}: {' '.join(found)}" for path, (name, found) in self.lookups.items() if path not in own]
        if paths:
            payload["filters_on_related"] = paths
        named = []
        for offer in NamedFilter.offers_of(self.model, described=True):
            text = f"{offer.name}: {clean_text(offer.title, MAX_LINE)}"
            named.append(f"{text}, {_one_of(offer.choices)}" if offer.choices else text)
        if named:
            payload["named_filters"] = named
        if exposure.get_search_fields(request):
            payload["search"] = True
        if left := unsearched(self.model):
            payload["not_searched"] = left
        order = Orderings(self.model).default()
        payload["ordering"] = []
        for key in order.keys:
            if word := key.wording(own):
                payload["ordering"].append(f"-{word}" if key.descending else word)
        if order.leaves_out:
            payload["ordering_hint"] = UNORDERED
        payload["default_columns"] = list(self.model.page_fields)
        if actions := list(self._actions()):
            payload["actions"] = actions
        address = Address(self.model)
        payload["uris"] = [address.pattern(), address.page()]
        return payload

    def in_full(self) -> dict[str, Any]:
        """Return the full description for ``describe_model``, with the JSON Schema of values that the caller may write.

        ``update_schema`` is added if the change page has other fields than the add page.
        """
        payload = self.in_lines()
        add, change = self.forms
        first = add or change
        if first is not None and first.names:
            payload["input_schema"] = first.schema()
        if add is not None and change is not None and set(add.names) != set(change.names):
            payload["update_schema"] = change.schema()
        return payload

    @cached_property
    def lookups(self) -> Mapping[str, tuple[str, tuple[str, ...]]]:
        """What ``describe_model`` lists as the model's filters: name and lookups of each, by the path of its column."""
        return {allowed.path.column: (name, allowed.lookups) for name, allowed in AllowedFilter.all(self.model)}

    def _line(self, column: Column) -> str:
        exposure = self.exposure
        words = [self._type(column)]
        if column.kind == "computed" and (word := computed_word(self.model, column.name)):
            # Computed columns that can only be shown have no word.
            uses = ["filtered"] if AllowedFilter.find(self.model, column.name) is not None else []
            words.append(f"{word} that can be {' and '.join([*uses, 'used in aggregates'])}")
        if column.name == exposure.opts.pk.name:
            words.append("pk")
        use = self.uses.get(column.name)
        if use is not None:
            words.append(" ".join(["required" if use.required else "optional", *([use.only] if use.only else [])]))
            words += [FILE_WORDS] if self.model.is_file(column.name) else []
        else:
            words.append("read-only")
        words += self._filter_words(column)
        if getattr(column.field, "choices", None) and column.kind == "field":
            known = [(stored, label) for stored, label in kind_of(column.field).choices if stored not in (None, "")]
            words.append(_one_of([(str(stored), str(label)) for stored, label in known]))
        text = f"{column.name}: {', '.join(words)}"
        about = str(getattr(column.field, "help_text", "")).strip()
        if about:
            return f"{text}. {clean_text(about, MAX_LINE)}"
        return text

    def _type(self, column: Column) -> str:
        if column.field is None:
            return "computed"
        if column.kind == "generic":
            return "[key, label, model] of any record"
        kind = kind_of(column.field)
        word = kind.word
        if column.kind in ("relation", "many", "reverse"):
            related = self.model.access.model_of(column.field.related_model)
            target = f" → {related.exposure.label}" if related is not None else " key of another record"
            single = column.kind == "relation" or column.field.one_to_one
            return ("" if single else "list of ") + word + target
        word = f"list of {word}" if kind.holds_many else word
        null = " or null" if column.field.null else ""
        return word + null if column.kind == "field" else "computed"

    def _filter_words(self, column: Column) -> list[str]:
        """Return the words of ``describe_model`` on filtering by a field, [] if its lookups are usual for its type."""
        found = self.lookups.get(column.path) if column.is_plain else None
        if found is None:
            if column.is_plain and kind_of(column.field).lookups:
                return ["no filter"]
            return []
        usual = [lookup for lookup in kind_of(column.field).usual_lookups if lookup != "isnull"]
        if [lookup for lookup in found[1] if lookup != "isnull"] == usual:
            return []
        return [f"filter {' '.join(found[1])}"]

    def _actions(self) -> Iterator[dict[str, Any]]:
        first: list[tuple[str, Mapping[str, Any]]] = []
        for name, action in self.model.actions.items() if may_write(self.request) else ():
            entry: dict[str, Any] = {"name": name, "description": clean_text(action.description, MAX_LINE)}
            schema = action.schema_for(self.request)
            arguments = schema.get("properties", {})
            other = next((known for known, told in first if told == arguments), "")
            if arguments:
                entry["arguments"] = f"Same as {other}" if other else arguments
                first.append((name, arguments))
            more = {"required": schema.get("required"), "asks_for": action.asks_for}
            yield entry | {key: list(names) for key, names in more.items() if names}


def _one_of(pairs: Sequence[tuple[str, str]]) -> str:
    shown = []
    for stored, label in pairs:
        shown.append(stored if stored.lower() == label.lower() else f"{stored}={label}")
    more = f" and {len(shown) - MAX_CHOICES} more" if len(shown) > MAX_CHOICES else ""
    return f"one of {' | '.join(shown[:MAX_CHOICES])}{more}"


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
            and (column.kind == "relation" or column.field.choices or kind_of(column.field).word == "boolean")
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
            if column.kind == "relation":
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


class DescribeModel(RecordTool):
    """``describe_model``: describe models, their fields, filters and actions, in few words or in full."""

    name = "describe_model"
    title = "Describe model"
    description = (
        "Before the first query or write on a model: its fields (* required, ro read-only), choices, filters, actions."
    )
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "model": {"type": "string", "description": "shop.order, or several by commas"},
            "detail": {"type": "boolean", "description": "Also lookups, help texts, schemas"},
        },
        "required": ["model"],
    }
    meta = ALWAYS_LOAD

    def check(self, request: MCPRequest, arguments: Mapping[str, Any]) -> None:
        self._read(request, arguments)

    def _read(self, request: MCPRequest, arguments: Mapping[str, Any]) -> tuple[list[ModelAccess], bool]:
        """Read the arguments of ``describe_model``: the models, each once, and whether they are described in full."""
        given = Arguments.read(arguments, self.input_schema["properties"])
        labels = json_or_text(given.get("model"))
        if isinstance(labels, str):
            labels = [part.strip() for part in labels.split(",")]
        if not isinstance(labels, list):
            labels = [labels]
        elif not 0 < len(labels) <= MAX_MODELS:
            raise ToolError(f"model names 1 to {MAX_MODELS} models.")
        models = []
        for number, label in enumerate(labels, 1):
            # With several names, the error says which of them is wrong.
            try:
                models.append(Arguments(model=label).model(request))
            except ToolError as error:
                which = f"Name {number} of {len(labels)}: " if len(labels) > 1 else ""
                raise ToolError(f"{which}{error.message}", repair=error.repair) from None
        return list(dict.fromkeys(models)), given.flag("detail")

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return the description of the model, or those of several models as ``models``."""
        models, detail = self._read(request, arguments)
        if detail:
            described = [Description(model).in_full() for model in models]
        else:
            described = [Overview(model).in_short() for model in models]
        if detail or len(described) == 1:
            for payload, model in zip(described, models, strict=True):
                payload["examples"] = Examples(model).calls()
        if len(described) == 1:
            return ToolResult(structured=described[0])
        # Return as many descriptions as fit into a result, but at least one.
        sizes = accumulate(len(orjson.dumps(entry, default=str)) for entry in described)
        kept = max(1, sum(size <= request.mcp.result_chars for size in sizes))
        hint = {"hint": "Ask for the others separately."} if kept < len(described) else {}
        return ToolResult(structured={"returned": kept, **hint, "models": described[:kept]})
