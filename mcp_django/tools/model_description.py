"""The description of a model in full, in a line for each field, and with the schemas of what can be written."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from ..differences.action_trials import TriableActionCall
from ..orm.allowed_filters import AllowedFilter
from ..orm.columns import Column
from ..orm.fields import kind_of
from ..orm.named_filters import NamedFilter
from ..orm.ordering import Orderings
from ..orm.search import TextSearch
from ..orm.uris import Address
from ..schema.secrets import clean_text
from .model_overview import MAX_LINE, Overview, computed_word, may_write
from .query_records import UNORDERED

MAX_CHOICES: Final = 30
# What can be written to a field of files.
FILE_WORDS: Final = 'write {"name", "base64"} or {"name", "text"}'
# What an action takes that can be tried.
TRIABLE: Final = "true shows what it would do, and changes nothing"


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
        if comparing := self.comparing():
            payload["comparing"] = comparing
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
        if left := TextSearch(self.model).left_out():
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
        if column.is_computed and (word := computed_word(self.model, column.name)):
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
        if column.is_foreign_key or column.lists_rows:
            related = self.model.access.model_of(column.field.related_model)
            target = f" → {related.exposure.label}" if related is not None else " key of another record"
            single = column.is_foreign_key or column.field.one_to_one
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
            if TriableActionCall.fits(action):
                entry["dry_run"] = TRIABLE
            more = {"required": schema.get("required"), "asks_for": action.asks_for}
            yield entry | {key: list(names) for key, names in more.items() if names}


def _one_of(pairs: Sequence[tuple[str, str]]) -> str:
    shown = []
    for stored, label in pairs:
        shown.append(stored if stored.lower() == label.lower() else f"{stored}={label}")
    more = f" and {len(shown) - MAX_CHOICES} more" if len(shown) > MAX_CHOICES else ""
    return f"one of {' | '.join(shown[:MAX_CHOICES])}{more}"
