"""Types of single values: each has its JSON Schema and converts what a client sent, or says what is wrong with it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import orjson
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime, parse_duration, parse_time

from .json_values import MAX_SAFE_INTEGER

if TYPE_CHECKING:
    from django.http import HttpRequest

# An object with any members. Without ``additionalProperties``, strict modes of clients read it as one without members.
FREE_OBJECT: Final[Mapping[str, Any]] = {"type": "object", "additionalProperties": True}
NULL: Final[Mapping[str, Any]] = {"type": "null"}
# A primary key, as rows show it. Vertex AI accepts neither a list of types nor keywords beside "anyOf".
KEY: Final[Mapping[str, Any]] = {"anyOf": [{"type": "string"}, {"type": "integer"}]}

MAX_TEXT: Final = 64
MAX_SHOWN: Final = 40
# The largest value of the widest integer column of databases.
MAX_INTEGER: Final = 2**63 - 1
LIMITS: Final = frozenset({"minimum", "maximum", "min_length", "max_length", "min_items", "max_items"})
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")


# Errors


class Invalid(Exception):
    """A value does not have its type: ``problems`` are pairs of a path and a cause.

    There are several if several parts of a value are wrong, so that an AI model can correct all of them at once.
    """

    def __init__(self, cause: str = "", problems: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__(cause)
        self.problems = list(problems) or [("", cause)]

    def within(self, place: str) -> list[tuple[str, str]]:
        """Return the value's type problems with their paths inside a containing value."""
        found = []
        for path, cause in self.problems:
            is_member = path and not path.startswith("[")
            found.append((f"{place}.{path}" if is_member else f"{place}{path}", cause))
        return found


def json_type(value: Any) -> str:
    """Return the type of a value by its name in JSON Schema; a whole number is an "integer"."""
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (Mapping, "object")):
        if isinstance(value, kind):
            return name
    return "null" if value is None else "array"


def is_empty(value: Any) -> bool:
    """Return whether a value is the empty one of its type (text, list or object), which AI models send for nothing."""
    return isinstance(value, (str, list, Mapping)) and not value


def show(value: Any) -> str:
    """Quote a value in the error message of its type: short, as JSON."""
    if isinstance(value, str):
        return json.dumps(value if len(value) <= MAX_SHOWN else value[:MAX_SHOWN] + "…", ensure_ascii=False)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**MAX_SHOWN:
        return "a huge integer"
    kind = json_type(value)
    if kind in ("array", "object"):
        return f"an {kind}"
    return json.dumps(value)


# Schemas


def any_of(*shapes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a value that has one of several types."""
    flat: list[Any] = []
    for shape in shapes:
        if shape.keys() == {"anyOf"}:
            flat += shape["anyOf"]
        else:
            flat.append(shape)
    if not all(flat):
        return {}
    kinds = list({repr(shape): dict(shape) for shape in flat}.values())
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def present(**keywords: Any) -> dict[str, Any]:
    """Return the keywords that have a value."""
    return {keyword: value for keyword, value in keywords.items() if value is not None}


def described(schema: dict[str, Any], texts: Iterable[str], words: Iterable[str]) -> dict[str, Any]:
    """Return the schema of a value type with its description: texts, then constraints in words."""
    note = ", ".join(filter(None, words))
    description = " ".join(filter(None, [*texts, note and f"({note})"]))
    if description:
        return {**schema, "description": description}
    return schema


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of value types without what some APIs of AI models refuse: objects, values of several types, and
    enums of anything but texts."""
    return _with_text_enums(_without_objects(schema))


def _without_objects(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of value types in which objects, and values of several types, are text."""
    if "items" in schema:
        return {**schema, "items": _without_objects(schema["items"])}
    if (kinds := schema.get("anyOf", ())) and kinds[0] == {"type": "string"} and NULL not in kinds:
        return {**{name: value for name, value in schema.items() if name != "anyOf"}, "type": "string"}
    if any(schema.get(keyword) != value for keyword, value in FREE_OBJECT.items()) or "properties" in schema:
        return dict(schema)
    return described({"type": "string"}, ["JSON object as text.", schema.get("description", "")], ())


def _with_text_enums(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of value types, at every depth, whose enums hold only texts that are not empty.

    Some APIs of models, such as Gemini's, refuse a request with any other enum. The description then names the values,
    and "" stays valid for no value, which the description says too.
    """
    found = dict(schema)
    if "properties" in found:
        found["properties"] = {name: _with_text_enums(inner) for name, inner in found["properties"].items()}
    if "anyOf" in found:
        found["anyOf"] = [_with_text_enums(inner) for inner in found["anyOf"]]
    for keyword in ("items", "additionalProperties"):
        if isinstance(found.get(keyword), Mapping):
            found[keyword] = _with_text_enums(found[keyword])
    values = found.get("enum")
    if values is None or all(isinstance(value, str) and value for value in values):
        return found
    texts = [value for value in values if isinstance(value, str) and value]
    if texts and all(isinstance(value, str) for value in values):
        found["enum"] = texts
        words = ['"" for none']
    else:
        del found["enum"]
        words = ["one of " + ", ".join(json.dumps(value, ensure_ascii=False) for value in values)]
    return described(found, [found.get("description", "")], words)


def key_type(field: Any) -> str:
    """Return the type of a primary key's values by its name in JSON Schema."""
    while field is not None and field.is_relation:
        field = field.target_field
    if isinstance(field, models.IntegerField):
        return "integer"
    return "string"


def between(low: Any, high: Any, unit: str = "") -> str:
    """Return a value type's range in words: "1 to 100", "at least 1 item", "" for none."""
    unit = f" {unit}" if unit else ""
    if low is not None and high is not None:
        return f"{low} to {high}{unit}"
    if low is not None:
        return f"at least {low}{unit}"
    return f"at most {high}{unit}" if high is not None else ""


def in_words(options: Iterable[tuple[Any, str]], most: int | None = None) -> str:
    """Return, for the type's description, values with labels that differ from them; "" for more than ``most``."""
    named = [f"{value} = {label}" for value, label in options if str(value).replace("_", " ").lower() != label.lower()]
    if most is None or len(named) <= most:
        return ", ".join(named)
    return ""


# Types


@dataclass(frozen=True)
class Type:
    """Base of all types of a parameter's values."""

    @property
    def noun(self) -> str:
        """The noun for the value type in messages, with its article."""
        raise NotImplementedError

    @property
    def json_types(self) -> tuple[str, ...]:
        """The JSON types that its schema admits."""
        raise NotImplementedError

    @property
    def parts(self) -> tuple[Type, ...]:
        """The types that this type is made of."""
        return ()

    @property
    def needs_database(self) -> bool:
        """Whether :meth:`convert` may run queries."""
        return any(part.needs_database for part in self.parts)

    @property
    def not_null(self) -> Type:
        """The type without null."""
        return self

    @property
    def alternatives(self) -> tuple[Type, ...]:
        """The types one of which a value has, for a union."""
        return ()

    @property
    def closed_list(self) -> Sequence[tuple[str, str]]:
        """All values as texts, each with its label for people or "", for a type that has only these."""
        return ()

    @property
    def row_model(self) -> type[models.Model] | None:
        """The model whose rows are the values."""
        return None

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema, a new dict."""
        return {"type": self.json_types[0]}

    def words(self) -> str:
        """Return the value type's constraints in words, "" for none."""
        return ""

    def convert(self, value: Any, request: HttpRequest) -> Any:
        """Return the Python value of the JSON value."""
        raise NotImplementedError

    def limited(self, limits: Mapping[str, Any]) -> Type:
        """Return the value type with limits (``minimum``, ``max_length`` ...) added."""
        known = {field.name for field in fields(self)} & LIMITS
        if unknown := sorted(limits.keys() - known):
            raise ImproperlyConfigured(f"{unknown[0]} cannot be used with {self.noun}")
        return replace(self, **limits)

    def refuse(self, value: Any) -> Invalid:
        """Return the error for a value that is not of this type."""
        return Invalid(f"expected {self.noun}, got {show(value)}")


@dataclass(frozen=True)
class Anything(Type):
    """Any JSON value, handed on as it is."""

    noun = "a JSON value"
    json_types = ("null", "boolean", "integer", "number", "string", "array", "object")

    def schema(self) -> dict[str, Any]:
        return {}

    def convert(self, value: Any, request: HttpRequest) -> Any:
        return value


@dataclass(frozen=True)
class String(Type):
    """Text."""

    min_length: int | None = None
    max_length: int | None = None
    noun = "a string"
    json_types = ("string",)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", **present(minLength=self.min_length, maxLength=self.max_length)}

    def words(self) -> str:
        return between(self.min_length, self.max_length, "characters")

    def convert(self, value: Any, request: HttpRequest) -> Any:
        if not isinstance(value, str):
            raise self.refuse(value)
        # PostgreSQL cannot store NUL.
        if "\0" in value:
            raise Invalid("must not contain the character NUL")
        if len(value) < (self.min_length or 0) or (self.max_length is not None and len(value) > self.max_length):
            raise Invalid(f"must have {self.words()}, got {len(value)}")
        return value


@dataclass(frozen=True)
class _Ranged(Type):
    minimum: Any = None
    maximum: Any = None

    def schema(self) -> dict[str, Any]:
        return {"type": self.json_types[0], **present(minimum=self.minimum, maximum=self.maximum)}

    def words(self) -> str:
        return between(self.minimum, self.maximum)

    def checked(self, number: Any, given: Any) -> Any:
        low = self.minimum
        high = self.maximum
        if (low is not None and number < low) or (high is not None and number > high):
            raise Invalid(f"must be {between(low, high)}, got {show(given)}")
        return number


@dataclass(frozen=True)
class Integer(_Ranged):
    """The value type of whole numbers with at most 64 bits; a text of digits is one too."""

    noun = "an integer"
    json_types = ("integer",)

    def convert(self, value: Any, request: HttpRequest) -> Any:
        if isinstance(value, str) and _INTEGER.fullmatch(value.strip(" ")):
            value = int(value)
        if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_SAFE_INTEGER:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.refuse(value)
        if not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
            raise Invalid("is out of range: integers have at most 64 bits")
        return self.checked(value, value)


@dataclass(frozen=True)
class Number(_Ranged):
    """A finite number."""

    noun = "a number"
    json_types = ("number",)

    def convert(self, value: Any, request: HttpRequest) -> Any:
        if isinstance(value, str) and _DECIMAL.fullmatch(value):
            value = float(value)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise self.refuse(value)
        try:
            number = float(value)
        except OverflowError:
            raise Invalid("is out of range") from None
        if not math.isfinite(number):
            raise Invalid(f"expected a finite number, got {number}")
        return self.checked(number, number)


@dataclass(frozen=True)
class DecimalNumber(_Ranged):
    """The value type of exact decimals, which are text on the wire."""

    noun = "a decimal number"
    json_types = ("string",)

    def schema(self) -> dict[str, Any]:
        # Ranges are in words, because numeric keywords do not apply to strings.
        return {"type": "string"}

    def words(self) -> str:
        return ", ".join(filter(None, ["decimal number as text, such as 12.50", super().words()]))

    def convert(self, value: Any, request: HttpRequest) -> Any:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise self.refuse(value)
        if isinstance(value, str):
            text = value.strip(" ")
        else:
            # Check the size of an integer before writing it out.
            text = repr(value) if isinstance(value, float) or abs(value) < 10**MAX_SHOWN else ""
        if not _DECIMAL.fullmatch(text):
            raise self.refuse(value)
        return self.checked(Decimal(text), text)


@dataclass(frozen=True)
class Boolean(Type):
    """The value type of true and false, and of the words "true" and "false"; 0 and 1 are neither."""

    noun = "true or false"
    json_types = ("boolean",)
    closed_list = (("true", ""), ("false", ""))

    def convert(self, value: Any, request: HttpRequest) -> Any:
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise self.refuse(value)
        return value


@dataclass(frozen=True)
class Parsed(Type):
    """The value type of texts in a notation, such as dates: ``parse`` returns the value or None, or raises ValueError.

    ``format`` is the name of the notation in a client's form.
    """

    notation: str
    example: str
    parse: Callable[[str], Any]
    format: str = ""
    json_types = ("string",)

    @property
    def noun(self) -> str:
        return self.notation

    def words(self) -> str:
        return f"{self.notation.partition(' ')[2]}, such as {self.example}"

    def convert(self, value: Any, request: HttpRequest) -> Any:
        # Give the parsers (regular expressions) short ASCII text only. Django reads a blank text as a duration.
        if isinstance(value, str) and value.isascii() and value.strip() and len(value) <= MAX_TEXT:
            try:
                found = self.parse(value.strip(" "))
            except (ValueError, OverflowError):
                found = None
            if found is not None:
                return found
        raise Invalid(f"expected {self.noun} such as {self.example}, got {show(value)}")


def _datetime(text: str) -> datetime | None:
    found = parse_datetime(text)
    if found is None or timezone.is_aware(found) is settings.USE_TZ:
        return found
    if settings.USE_TZ:
        return timezone.make_aware(found)
    return timezone.make_naive(found)


def _uuid(text: str) -> UUID | None:
    if _UUID.fullmatch(text):
        return UUID(text)
    return None


PARSED: Final[Mapping[type, Parsed]] = {
    date: Parsed("an ISO 8601 date", "2026-07-28", parse_date, "date"),
    datetime: Parsed("an ISO 8601 date and time", "2026-07-28T14:30:00Z", _datetime, "date-time"),
    time: Parsed("a time of day", "14:30:00", parse_time),
    timedelta: Parsed("a duration", "1 12:30:00 (days, hours, minutes, seconds) or PT12H30M", parse_duration),
    UUID: Parsed("a UUID", "123e4567-e89b-12d3-a456-426614174000", _uuid),
}


def choice_of(choices: Iterable[tuple[Any, Any]], value: Any) -> Any:
    """Convert what a client sent for a type with ``choices`` to one of them, by its value or by its displayed name.

    An exact match comes before one that ignores case. None if no value matches, or several do.
    """
    known = [(stored, (str(stored), str(label))) for stored, label in choices if stored is not None]
    spell: Callable[[str], str]
    for spell in (str, str.lower):
        for position in (0, 1):
            found = [stored for stored, names in known if spell(names[position]) == spell(str(value))]
            if found:
                if all(stored == found[0] for stored in found):
                    return found[0]
                return None
    return None


@dataclass(frozen=True)
class Choice(Type):
    """The value type of a choice among values: ``options`` are pairs of a JSON and a Python value.

    ``labels`` are the names of the values for people, if they have any.
    """

    options: tuple[tuple[Any, Any], ...]
    labels: tuple[str, ...] = ()

    @property
    def noun(self) -> str:
        shown = [show(value) for value, _ in self.options[:20]]
        return f"one of {', '.join(shown)}{' …' if len(self.options) > 20 else ''}"

    @property
    def json_types(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(json_type(value) for value, _ in self.options))

    @property
    def closed_list(self) -> Sequence[tuple[str, str]]:
        labels = self.labels or ("",) * len(self.options)
        return [(_as_text(value), label) for (value, _), label in zip(self.options, labels, strict=True)]

    def schema(self) -> dict[str, Any]:
        values = [value for value, _ in self.options]
        kinds = {kind: [value for value in values if json_type(value) == kind] for kind in self.json_types}
        return any_of(*({"type": kind, "enum": found} for kind, found in kinds.items()))

    def words(self) -> str:
        return in_words((value, label) for (value, _), label in zip(self.options, self.labels, strict=False))

    def convert(self, value: Any, request: HttpRequest) -> Any:
        for option, python in self.options:
            if option == value and isinstance(option, bool) is isinstance(value, bool):
                return python
        # Some clients send every member of an enumeration as text.
        for option, python in self.options:
            if isinstance(value, str) and not isinstance(option, str) and json.dumps(option) == value.lower():
                return python
        # Accept the label too, as filters and forms do.
        labelled = ((option, label) for (option, _), label in zip(self.options, self.labels, strict=False))
        meant = choice_of(labelled, value) if isinstance(value, str) else None
        if meant is None:
            raise self.refuse(value)
        return self.convert(meant, request)


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode()
