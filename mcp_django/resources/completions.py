"""Completions: values for an argument of a prompt or resource template (server/utilities/completion).

Values only come from what the caller may view: hidden things look as if they did not exist. Each completion makes a few
bounded queries, for one more value than it returns, and never counts.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import orjson
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, Q, QuerySet

from ..context.request import MCPRequest
from ..exceptions import NotFound, ToolError
from ..functions.project_function import ProjectFunction, resolved, speaking_plainly
from ..orm.access import ModelAccess, access_of, parse_pk
from ..orm.allowed_filters import find_filter
from ..orm.column_values import pk_text
from ..orm.columns import is_replaced
from ..orm.compiled_queries import prepare
from ..orm.conditions import Condition
from ..orm.fields import FieldPath, choices_of, is_json_field, key_field, kind_of, parse_value, stored_field
from ..orm.hidden_parts import with_no_part_hidden
from ..orm.labels import plain_label
from ..orm.lookups import parse_condition
from ..orm.ordering import client_order_key, default_ordering
from ..orm.pagination import narrowed
from ..orm.tool_arguments import RowArguments
from ..orm.undecodable_values import UNDECODABLE, salvaged_first
from ..orm.uris import Address, ParsedURI
from ..protocol.uri_templates import UriTemplate, percent_decode
from ..schema.container_types import AnyOf, Nullable, Row
from ..schema.json_values import to_jsonable
from ..schema.secrets import clean_text
from ..schema.value_types import Boolean, Choice, Type

# Maximum number of values in one answer (server/utilities/completion, Completion Results).
MAX_VALUES: Final = 100
# Read one more value than is returned, to know whether there are more.
LIMIT: Final = MAX_VALUES + 1
# Maximum characters of the typed text; nothing that can be completed is longer.
MAX_TEXT: Final = 200
# Maximum characters of a completion value: longer ones are texts to read, not values to choose.
MAX_VALUE: Final = 1000
# The largest integer of the widest integer column, and its number of digits.
MAX_INTEGER: Final = 2**63 - 1
MAX_DIGITS: Final = 19
BOOLEANS: Final = (("true", ""), ("false", ""))
# The alias of a computed value in its query.
COMPUTED: Final = "mcp_completed"
_DIGITS: Final = re.compile(r"[1-9][0-9]{0,18}")
_HEX: Final = re.compile(r"[0-9a-f]{1,32}")


@dataclass(frozen=True, slots=True)
class Completion:
    """One completion: at most ``MAX_VALUES`` values, the best first; ``more`` says that there are more."""

    values: Sequence[str] = ()
    more: bool = False

    def to_wire(self) -> dict[str, Any]:
        """Return the ``completion`` member of a ``CompleteResult``, with a total if all values are in it."""
        if self.more:
            return {"values": list(self.values), "hasMore": True}
        return {"values": list(self.values), "total": len(self.values)}


NOTHING: Final = Completion()


def is_usable(value: str) -> bool:
    """Return whether a client can send the completion value back: not empty, not long, valid Unicode without NUL."""
    return 0 < len(value) <= MAX_VALUE and "\0" not in value and clean_text(value) == value


def capped(values: Iterable[str]) -> Completion:
    """Return a completion of values in their order, at most ``MAX_VALUES``; read an iterator no further than needed."""
    found: dict[str, None] = {}
    for value in values:
        if is_usable(value) and value not in found:
            if len(found) == MAX_VALUES:
                return Completion(tuple(found), more=True)
            found[value] = None
    return Completion(tuple(found))


def ranked(candidates: Iterable[tuple[str, str]], text: str) -> Completion:
    """Return a completion of those ``(value, label)`` pairs of a closed list that match the typed text, ignoring case.

    The exact value comes first, then values that begin with the text, then those whose labels do, then those that
    contain it; values of equal rank keep their order.
    """
    wanted = text.casefold()
    found: tuple[list[str], ...] = ([], [], [], [])
    for candidate, label in candidates:
        value = candidate.casefold()
        words = label.casefold()
        tests = (
            value == wanted or not wanted,
            value.startswith(wanted),
            words.startswith(wanted),
            wanted in value or wanted in words,
        )
        if any(tests):
            found[tests.index(True)].append(candidate)
    return capped(value for values in found for value in values)


def beginning(path: str, field: Any, text: str) -> Q | None:
    """Return the condition for completion values that start with the typed text, if an index can serve it."""
    match kind_of(field).word:
        case "text":
            return Q((f"{path}__startswith", text))
        case "integer" if _DIGITS.fullmatch(text):
            return _digits(path, int(text), len(text))
        case "uuid":
            digits = text.lower().replace("-", "")
            if _HEX.fullmatch(digits):
                first = UUID(digits.ljust(32, "0"))
                last = UUID(digits.ljust(32, "f"))
                return Q((f"{path}__gte", first), (f"{path}__lte", last))
    return None


def _digits(path: str, number: int, length: int) -> Q:
    """Return the condition for integer completions that start with the typed digits, as ranges for an index."""
    condition = Q((path, number))
    for zeros in range(1, MAX_DIGITS - length + 1):
        first = number * 10**zeros
        if first > MAX_INTEGER:
            break
        condition |= Q((f"{path}__gte", first), (f"{path}__lte", min(first + 10**zeros - 1, MAX_INTEGER)))
    return condition


def complete_field(request: MCPRequest, label: str, name: str, text: str) -> Completion:
    """Complete the value of a filter on a field of the model with this label; see :class:`ModelValues`."""
    try:
        model = access_of(request).get_model(label)
    except NotFound:
        return NOTHING
    return ModelValues(model).of_field(name, text)


class ModelValues:
    """Completions for the rows and fields of one model, from values that the caller may view."""

    def __init__(self, model: ModelAccess) -> None:
        self.model = model
        self.request = model.request
        self.exposure = model.exposure

    def keys(self, text: str, conditions: Sequence[Condition] = ()) -> Completion:
        """Complete a primary key of the model's rows, as URIs and arguments spell it.

        The row with that key comes first, then keys that begin with the text, then rows whose label does, then results
        of the exposure's search. :func:`~mcp_django.orm.allowed_filters.find_filter` must admit the ``conditions``.
        """
        if not _is_searchable(text):
            return NOTHING
        text = text.strip()
        names = [field.attname for field in self.exposure.opts.pk_fields]

        def keys() -> Iterator[str]:
            for rows in self._rows(text, conditions):
                read = rows.values_list(*names, flat=len(names) == 1)[:LIMIT]
                # Move the typed key to the front: a database that ignores case may return another spelling first.
                yield from sorted(map(pk_text, read), key=text.__ne__)

        return capped(keys())

    def _rows(self, text: str, conditions: Sequence[Condition]) -> Iterator[QuerySet[Any]]:
        exposure = self.exposure
        ordering = []
        for order in default_ordering(self.model):
            if order.expression is None:
                ordering.append(f"-{order.path}" if order.descending else order.path)
        rows = narrowed(self.model, conditions, "")
        if not text:
            yield rows.order_by(*ordering)
            return
        if (key := self._key_condition(text)) is not None:
            yield rows.filter(key).order_by("pk")
        label = plain_label(exposure)
        if label is not None:
            # A label is found by a part of it only if no part of it is hidden.
            labelled = rows.filter(with_no_part_hidden(label))
            yield labelled.filter(Q((f"{label}__istartswith", text))).order_by(label, "pk")
        try:
            term = RowArguments(self.model, {"search": text}).search()
        except ToolError:
            # There is no search, or it does not accept this text.
            term = ""
        if term:
            yield narrowed(self.model, conditions, term).order_by(*ordering)
        elif label is not None:
            yield labelled.filter(Q((f"{label}__icontains", text))).order_by(*ordering)

    def _key_condition(self, text: str) -> Q | None:
        """Return the condition for completions of a primary key: each begins with the typed text, or equals it."""
        fields: Sequence[Any] = self.exposure.opts.pk_fields
        if len(fields) == 1:
            path = fields[0].name
            field = fields[0]
            while field.is_relation:
                field = field.target_field
                path = f"{path}__{field.name}"
            condition = beginning(path, field, text)
            if condition is not None:
                return condition
        try:
            return Q(pk=parse_pk(self.exposure, text))
        except NotFound:
            return None

    def of_field(self, name: str, text: str) -> Completion:
        """Complete a field of the model with values by which the caller may filter.

        These are keys of related rows, the field's choices, true and false, or values from the caller's rows.
        """
        # A path through a relation could show values of related rows that the caller may not view.
        found = find_filter(self.model, name) if "__" not in name else None
        if found is None or is_json_field(found.path.field) or not _is_searchable(text):
            return NOTHING
        field = found.path.field
        if is_replaced(getattr(field, "model", None), field):
            # The column does not hold the value that callers see.
            return NOTHING
        if field.is_relation:
            related = self.model.access.model_of(field.related_model)
            by_key = field.many_to_many or key_field(field).primary_key
            if related is None or not by_key:
                return NOTHING
            return ModelValues(related).keys(text)
        if field.choices:
            return ranked([(_spelt(value), str(label)) for value, label in choices_of(field)], text.strip())
        if kind_of(field).word == "boolean":
            return ranked(BOOLEANS, text.strip())
        return capped(self._column(found[0], text.strip()))

    def _column(self, of: FieldPath, text: str) -> Iterator[str]:
        rows = narrowed(self.model, (), "")
        path = of.column
        field = of.field
        if of.expression is not None:
            # The name is that of an admin column, which the database has under another name or computes.
            rows = rows.annotate(**{COMPUTED: of.expression})
            path = COMPUTED
        rows = rows.exclude(Q((path, None))).order_by(path)
        for condition in _conditions(path, field, text, rows.db):
            values = rows.filter(condition).values_list(path, flat=True).distinct()
            for value in salvaged_first(values, LIMIT):
                if value is not UNDECODABLE:
                    yield _spelt(value)

    def searched(self, text: str) -> Completion:
        """Complete a search text with labels of rows, if the search includes labels."""
        label = plain_label(self.exposure)
        looked_at = {name.lstrip("^=@") for name in self.exposure.get_search_fields(self.request)}
        if label is not None and label in looked_at:
            return self.of_field(label, text)
        return NOTHING

    def names(self, text: str, *, ordering: bool) -> Completion:
        """Complete the last member of a comma-separated list with a field that the caller may see, or sort by."""
        written, member = last_member(text)
        sign = member[:1] if ordering and member[:1] in ("-", "+") else ""
        used = {name.strip().lstrip("-+") for name in written.split(",")}
        names = [name for name in self.model.fields if name not in used]
        if ordering:
            keys = ((name, client_order_key(self.model, name, descending=False)) for name in names)
            names = [name for name, key in keys if key is not None]
        found = ranked([(name, "") for name in names], member[len(sign) :])
        return Completion([f"{written}{sign}{name}" for name in found.values], found.more)


def _is_searchable(text: str) -> bool:
    """Return whether a completion query can contain the typed text: PostgreSQL does not accept NUL."""
    return len(text) <= MAX_TEXT and "\0" not in text


def _conditions(path: str, field: Any, text: str, using: str) -> Iterator[Q]:
    """Yield conditions for completion values that match the typed text, the narrowest first."""
    if not text:
        yield Q()
    elif kind_of(field).word == "text":
        yield Q((f"{path}__istartswith", text))
        yield Q((f"{path}__icontains", text))
    elif (condition := beginning(path, stored_field(field), text)) is not None:
        yield condition
    else:
        try:
            value = parse_value(field, text)
            prepare(field, value, using)
        except (ValueError, ToolError):
            return
        yield Q((path, value))


def _spelt(value: Any) -> str:
    """Return the text of a completion value in the form that filters and typed arguments accept."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    return pk_text(value)


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


def last_member(text: str) -> tuple[str, str]:
    """Split a comma-separated list before its last member, the one to complete; return both parts."""
    written, comma, member = text.rpartition(",")
    space = member[: len(member) - len(member.lstrip(" "))]
    return written + comma + space, member[len(space) :]


# A function of the caller's request, the typed text, and the arguments that are already filled in, by name.
Hook = Callable[["MCPRequest", str, Mapping[str, str]], Iterable[Any] | Awaitable[Iterable[Any]]]
PARTS: Final = ("app_label", "model_name", "pk", "field")
QUERY: Final = UriTemplate(Address.PAGE_TEMPLATE).query
_VARIABLE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,63})\}")
_QUERY: Final = re.compile(r"\{?\?")


class Completer:
    """Completes the arguments of one prompt or resource function, by the project's hooks or the annotations.

    ``hooks`` maps a parameter to the source of its values: a function ``(request, value, context)``, sync or async,
    that returns them with the best first, or a field with these values, as "app_label.model.field". Without a hook, the
    annotation decides: rows, choices and booleans can be completed, other types cannot.
    """

    def __init__(self, function: ProjectFunction, hooks: Mapping[str, Hook | str] | None = None) -> None:
        self.types = {name: parameter.type for name, parameter in function.arguments.parameters.items()}
        self.hooks = dict(hooks or {})
        for name, hook in self.hooks.items():
            if name not in self.types:
                raise ImproperlyConfigured(f"{function.name} has no parameter {name}, which complete names")
            if not callable(hook) and not (isinstance(hook, str) and hook.count(".") == 2):
                raise ImproperlyConfigured(
                    f'{function.name}: complete takes a function or a field such as "shop.order.status" for {name}'
                )

    def takes(self, name: str) -> bool:
        """Return whether the prompt or resource function has this parameter to complete."""
        return name in self.types

    def is_slow(self, name: str) -> bool:
        """Return whether a function of the project completes the parameter."""
        return callable(self.hooks.get(name))

    @property
    def fields(self) -> Iterator[tuple[str, str, str]]:
        """The model fields that completion hooks name, as parameter, label of the model, and field."""
        for name, hook in self.hooks.items():
            if isinstance(hook, str):
                label, _, field = hook.rpartition(".")
                yield name, label.lower(), field

    def complete(self, request: MCPRequest, name: str, value: str, context: Mapping[str, str]) -> Completion:
        """Return the completion of a parameter's value; an async hook also runs in this thread."""
        hook = self.hooks.get(name)
        if isinstance(hook, str):
            label, _, field = hook.rpartition(".")
            return complete_field(request, label, field, value)
        if hook is not None:
            with speaking_plainly():
                found: Any = hook(request, value, context)
                return capped(_texts(resolved(found)))
        return self._by_type(request, self.types[name], value, context)

    def _by_type(self, request: MCPRequest, kind: Type, value: str, context: Mapping[str, str]) -> Completion:
        match kind:
            case Nullable():
                return self._by_type(request, kind.inner, value, context)
            case Row():
                exposure = request.mcp.site.exposures.get(kind.model)
                model = access_of(request)[exposure] if exposure is not None else None
                if model is None or not model.is_there:
                    return NOTHING
                return ModelValues(model).keys(value, self._conditions(model, context))
            case Choice():
                labels = kind.labels or ("",) * len(kind.options)
                stored = (option for option, _ in kind.options)
                texts = map(_as_text, stored)
                return ranked(zip(texts, labels, strict=True), value.strip())
            case Boolean():
                return ranked(BOOLEANS, value.strip())
            case AnyOf():
                parts = [self._by_type(request, member, value, context) for member in kind.members]
                merged = capped(text for part in parts for text in part.values)
                return Completion(merged.values, merged.more or any(part.more for part in parts))
        return NOTHING

    def _conditions(self, model: ModelAccess, context: Mapping[str, str]) -> Sequence[Condition]:
        """Return conditions for completions from arguments already chosen, such as only books of the chosen author."""
        found = []
        for name, value in context.items():
            kind = self.types.get(name)
            kind = kind.inner if isinstance(kind, Nullable) else kind
            target = find_filter(model, name) if isinstance(kind, Row) and value else None
            if target is None or "exact" not in target.lookups:
                continue
            field = target.path.field
            by_key = field.is_relation and (field.many_to_many or key_field(field).primary_key)
            if isinstance(kind, Row) and by_key and field.related_model is kind.model:
                try:
                    found.append(parse_condition(target.path, "exact", value))
                except ValueError:
                    continue
        return found


def _texts(values: Any) -> Iterator[str]:
    """Return the values of a completion hook as text, rows as their keys; read at most ``LIMIT`` rows of a queryset."""
    for value in values[:LIMIT] if isinstance(values, QuerySet) else values:
        if isinstance(value, Model):
            yield pk_text(value.pk)
            continue
        plain = to_jsonable(value)
        if plain is not None:
            yield plain if isinstance(plain, str) else orjson.dumps(plain).decode()


@dataclass(frozen=True, slots=True)
class ModelTemplate:
    """Completes the variables of a resource template of models, or of a URI in which some variables have values.

    ``names`` maps the names that a client may use for an argument to the template's variables: a URI may call the
    primary key by the name of its field. ``given`` are the values in the URI.
    """

    names: Mapping[str, str]
    given: Mapping[str, str]

    @classmethod
    def read(cls, uri: str) -> ModelTemplate | None:
        """Read the URI or template that a completion is asked for; None if it is not one of models."""
        if not uri.startswith(ParsedURI.SCHEME) or len(uri) > ParsedURI.MAX_LENGTH:
            return None
        path, *query = _QUERY.split(uri[len(ParsedURI.SCHEME) :], maxsplit=1)
        parts = path.split("/", len(PARTS))
        if not 2 <= len(parts) <= len(PARTS) or (query and len(parts) != 2):
            return None
        names = {name: name for name in QUERY} if len(parts) == 2 else {}
        given: dict[str, str] = {}
        if parts[2:] == [ParsedURI.SCHEMA]:
            del parts[2]
        for variable, part in zip(PARTS, parts, strict=False):
            names[variable] = variable
            if match := _VARIABLE.fullmatch(part):
                names[match[1]] = variable
                continue
            try:
                given[variable] = percent_decode(part)
            except ValueError:
                return None
        return cls(names, given)

    def takes(self, name: str) -> bool:
        """Return whether the resource template has this variable to complete."""
        return name in self.names

    def is_slow(self, name: str) -> bool:
        """Return whether a completion of the variable runs code of the project: never for a template of models."""
        return False

    def complete(self, request: MCPRequest, name: str, value: str, context: Mapping[str, str]) -> Completion:
        """Complete a variable of the resource template; values are not percent-encoded: the client does that."""
        given = {**self.given, **{self.names[key]: text for key, text in context.items() if key in self.names}}
        variable = self.names[name]
        app_label = given.get("app_label", "")
        model_name = given.get("model_name", "")
        access = access_of(request)
        if variable in ("app_label", "model_name"):
            known: list[Any] = [exposure.opts for exposure in access.exposures]
            if variable == "app_label":
                return ranked([(opts.app_label, str(opts.app_config.verbose_name)) for opts in known], value)
            within = [opts for opts in known if app_label in ("", opts.app_label)]
            return ranked([(str(opts.model_name), str(opts.verbose_name)) for opts in within], value)
        try:
            values = ModelValues(access.get_model(f"{app_label}.{model_name}"))
        except NotFound:
            return NOTHING
        match variable:
            case "pk":
                found = values.keys(value)
                # If the template ends with the key, this key would be read as the URI of the model's schema.
                keys = [key for key in found.values if key != ParsedURI.SCHEMA or "field" in self.names]
                return Completion(keys, found.more)
            case "field":
                files = [name for name in values.model.fields if values.model.is_file(name)]
                return ranked([(name, "") for name in files], value)
            case "search":
                return values.searched(value)
            case "ordering" | "fields":
                return values.names(value, ordering=variable == "ordering")
        return NOTHING
