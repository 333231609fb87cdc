"""Arguments of a ViewSet's tool: the parameters of its URL, of its query and of its body, side by side.

The query parameters are those of its filter backends and its paginator. Nothing is guessed from the code of an action:
an extra action that reads has all of these unless ``parameters`` declares others, and one that writes has the fields of
the serializer that it declares, or else one argument for the whole body.
"""

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from django.core.exceptions import FieldDoesNotExist
from django.http import QueryDict
from rest_framework.filters import OrderingFilter, SearchFilter
from rest_framework.serializers import ListSerializer

from ..exceptions import NotFound, ToolError
from ..orm.alternative_spellings import json_or_text
from ..orm.conditions import is_pattern_lookup, matches_here
from ..orm.nearest_names import alternatives
from ..orm.tool_arguments import Arguments
from ..schema.form_schemas import FormField, SerializerField
from ..schema.value_types import FREE_OBJECT, is_empty, key_type
from .routes import Route

logger = logging.getLogger("mcp_django")

Schemas = dict[str, dict[str, Any]]

KINDS: Final = frozenset({"string", "integer", "number", "boolean", "array"})
MAX_NAMED: Final = 40
# Name of the argument that is the whole body of an action that does not declare its fields.
DATA: Final = "data"
WITH_BODY: Final = frozenset({"post", "put", "patch"})
MAX_TEXT: Final = 2_000
CONFIRM_TOKEN: Final = {"type": "string", "description": "From its preview"}


class Undecided(Exception):
    """Raised when a ViewSet needs parameters of the URL or the body before it can describe its own."""


@dataclass(frozen=True)
class Inputs:
    """The parameters of a route, as arguments of its tool: those of the path, the query and the body.

    ``body`` maps arguments to names in the body, None where the body is one argument.
    """

    path: Schemas
    query: Schemas
    fields: Schemas = field(default_factory=dict)
    body: Mapping[str, str] | None = field(default_factory=dict)
    required: Collection[str] = ()
    ordering: Mapping[str, list[str]] = field(default_factory=dict)
    confirms: bool = False

    @property
    def properties(self) -> Schemas:
        """The schemas of all arguments."""
        return {**self.path, **self.query, **self.fields, **({"confirm_token": CONFIRM_TOKEN} if self.confirms else {})}

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        required = [*self.path, *self.required]
        needed = {"required": required} if required else {}
        return {"type": "object", "properties": self.properties, **needed, "additionalProperties": False}

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raise ``ToolError`` if an argument is unknown, or a required one is missing."""
        Arguments.read(arguments, self.properties, strict=True)
        if missing := [name for name in self.required if name not in arguments]:
            raise ToolError(f"Missing argument: {', '.join(missing)}. {alternatives(None, self.properties)}")

    def query_of(self, arguments: Mapping[str, Any]) -> QueryDict:
        """Return the query string of the request."""
        query = QueryDict(mutable=True)
        for name, schema in self.query.items():
            is_array = schema.get("type") == "array"
            value = arguments.get(name)
            if is_array:
                value = json_or_text(value)
            if value is None or is_empty(value) or (value in (0, "0") and schema.get("minimum") == 1):
                continue
            items = value if is_array and isinstance(value, list) else [value]
            query.setlist(name, [_text(name, item) for item in items])
        check_ordering(self.ordering, {name: ",".join(query.getlist(name)) for name in self.ordering})
        query._mutable = False
        return query

    def body_of(self, arguments: Mapping[str, Any]) -> Any:
        """Return the body of the request as a JSON value, made of the arguments that belong in it."""
        if self.body is None:
            data = json_or_text(arguments.get(DATA))
            if self.fields[DATA]["type"] == "array" and not isinstance(data, list):
                raise ToolError(f"{DATA} must be a list of objects, such as [{{'field': value}}].")
            if self.fields[DATA]["type"] == "object" and not isinstance(data, dict | None):
                raise ToolError(f"{DATA} must be an object, such as {{'field': value}}.")
            return data if data is not None else {}
        values = {}
        for argument, name in self.body.items():
            if argument not in arguments:
                continue
            kinds = _types_of(self.fields[argument])
            value = arguments[argument]
            # Some clients send null or an empty text for everything that they leave out.
            if kinds and ((value is None and "null" not in kinds) or (value == "" and "string" not in kinds)):
                continue
            may_be_nested = not kinds or {"array", "object"} & kinds
            values[name] = json_or_text(value) if may_be_nested else value
        return values


def _types_of(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the types of values that a schema admits, an empty set for all."""
    return frozenset(shape["type"] for shape in schema.get("anyOf", [schema]) if "type" in shape)


def inputs_of(route: Route, view: Any, *, confirms: bool = False) -> Inputs:
    """Return the parameters of a route, as the ViewSet describes them to the caller of ``view``."""
    path: Schemas = {name: {"type": "string", "description": "Part of the URL"} for name in route.parameters}
    lookup = getattr(view, "lookup_field", "pk")
    model = getattr(getattr(view, "queryset", None), "model", None)
    key_name = getattr(view, "lookup_url_kwarg", None) or lookup
    if key_name in path and model is not None:
        try:
            key_field = model._meta.pk if lookup == "pk" else model._meta.get_field(lookup)
        except FieldDoesNotExist:
            key_field = None
        shown = "primary key" if lookup == "pk" else lookup
        path[key_name] = {"type": key_type(key_field), "description": f"{shown} of the {model._meta.verbose_name}"}
    declared: Schemas = {}
    try:
        # Undecided parameters are decided by the call, which knows the path and the body.
        with suppress(Undecided):
            declared = query_parameters(route, view)
    except Exception:
        logger.warning("The query parameters of %s are not known", route.name, exc_info=True)
    query = {name: schema for name, schema in declared.items() if name not in path}
    ordering = {name: names for name, names in ordering_names(view).items() if name in query}
    if route.method not in WITH_BODY:
        return Inputs(path, query, ordering=ordering, confirms=confirms)
    serializer = _serializer(route, view)
    # An extra action may or may not declare the serializer of its body.
    is_declared = route.is_standard or (
        serializer is not None
        and (
            "serializer_class" in route.callback.initkwargs
            or view.get_serializer_class() is not getattr(route.viewset, "serializer_class", None)
        )
    )
    if isinstance(serializer, ListSerializer) and is_declared:
        rows = SerializerField(serializer).schema()
        return Inputs(path, query, {DATA: rows}, None, [DATA], confirms=confirms)
    if not is_declared or not hasattr(serializer, "fields"):
        # The serializer, if any, is the default of the view, so its fields are only a hint.
        taken: Schemas = {}
        try:
            members = SerializerField(serializer).writable()
            taken = {name: SerializerField(field).schema() for name, field in members.items()}
        except Exception:
            logger.debug("The fields of %s are not known", route.name, exc_info=True)
        about = {**({"properties": taken} if taken else {}), "description": "Body of the request, if it takes one"}
        return Inputs(path, query, {DATA: {**FREE_OBJECT, **about}}, None, confirms=confirms)
    writable = SerializerField(serializer).writable()
    others = {*path, *query, *(["confirm_token"] if confirms else [])}
    names = {}
    for name in writable:
        argument = f"body_{name}" if name in others else name
        names[argument] = name
    fields = {argument: SerializerField(writable[name]).schema() for argument, name in names.items()}
    partial = route.method == "patch"
    required = [argument for argument, name in names.items() if writable[name].required and not partial]
    return Inputs(path, query, fields, names, required, ordering, confirms)


def check_unicode(arguments: Mapping[str, Any]) -> None:
    """Raise ``ToolError`` for arguments that JSON in UTF-8 cannot hold."""
    try:
        json.dumps(arguments, ensure_ascii=False).encode()
    except ValueError:
        raise ToolError("The arguments hold a text that is not Unicode, or a number that is too long.") from None


def path_arguments(route: Route, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the parameters of the path as text.

    Raises ``ToolError`` if one is missing, and ``NotFound`` for a value that no URL can hold.
    """
    if missing := [name for name in route.parameters if arguments.get(name) is None]:
        raise ToolError(f"Missing argument: {', '.join(missing)}.")
    try:
        return {name: _text(name, arguments[name]) for name in route.parameters}
    except ToolError:
        raise NotFound from None


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, str | int | float):
        raise ToolError(f"{name} must be a single value.")
    # Check the size of an integer before converting it to text, which takes long for a huge one.
    if isinstance(value, int) and value.bit_length() > MAX_TEXT:
        raise ToolError(f"{name} is out of range.")
    text = str(value)
    if "\0" in text or len(text) > MAX_TEXT:
        raise ToolError(f"{name} must be a text of at most {MAX_TEXT} characters, without NUL.")
    return text


def _serializer(route: Route, view: Any) -> Any:
    if not hasattr(view, "get_serializer_class"):
        return None
    try:
        return view.get_serializer(partial=route.method == "patch")
    except (Undecided, AssertionError):
        # get_serializer() asserts that the view has a serializer class.
        return None
    except Exception:
        logger.warning("The serializer of %s is not known", route.name, exc_info=True)
        return None


# Parameters of the query


def query_parameters(route: Route, view: Any) -> Schemas:
    """Return the JSON Schemas of the query parameters that a route takes, by name.

    Filters and pages belong to ``list``, and to each extra action that reads and declares no parameters.
    """
    schemas: Schemas = {}
    declared = route.registration.parameters.get(route.action)
    if route.action == "list" or (route.method == "get" and not route.is_standard and declared is None):
        for backend in getattr(view, "filter_backends", ()):
            schemas |= _of_backend(backend(), view)
        paginator = getattr(view, "paginator", None)
        if paginator is not None and _has_pages(paginator, view.request):
            schemas |= _operation_parameters(paginator, view)
            number = getattr(paginator, "page_query_param", None)
            if number in schemas and schemas[number]["type"] == "integer":
                schemas[number]["minimum"] = 1
    return schemas | {name: dict(schema) for name, schema in (declared or {}).items()}


def _has_pages(paginator: Any, request: Any) -> bool:
    """Return whether the paginator makes pages: not without ``PAGE_SIZE``, unless a parameter gives the size."""
    size = getattr(paginator, "get_page_size", None)
    takes_size = getattr(paginator, "page_size_query_param", None) is not None
    return size is None or takes_size or size(request) is not None


def ordering_names(view: Any) -> dict[str, list[str]]:
    """Return the values that the ordering parameters accept, by the name of the parameter."""
    names_by_parameter = {}
    for backend in getattr(view, "filter_backends", ()):
        if issubclass(backend, OrderingFilter):
            names = _ordering_of(backend(), view)
            if names is not None:
                names_by_parameter[str(backend.ordering_param)] = names
    return names_by_parameter


def check_ordering(known: Mapping[str, Iterable[str]], given: Mapping[str, Any]) -> None:
    """Raise ``ToolError`` for unknown names in ordering parameters, which REST framework ignores."""
    for parameter, names in known.items():
        for term in str(given.get(parameter, "")).split(","):
            name = term.strip().removeprefix("-")
            if name and name not in names:
                raise ToolError(f"Rows cannot be ordered by {name[:60]!r}. {alternatives(name, names)}")


def _of_backend(backend: Any, view: Any) -> Schemas:
    if hasattr(backend, "get_filterset_class"):
        queryset = queryset_of(view)
        filterset = backend.get_filterset_class(view, queryset)
        if filterset is None:
            return {}
        # Use an instance, which has its own filters: those of the class cache the first form field made of them.
        return dict(_filters(filterset(queryset=queryset.all(), request=view.request)))
    if isinstance(backend, SearchFilter):
        searched = backend.get_search_fields(view, view.request) or ()
        takes_pattern = any(name.startswith("$") or is_pattern_lookup(name) for name in searched)
        if takes_pattern and matches_here(queryset_of(view).db):
            # The search text would be a regular expression that runs in this process.
            return {}
    schemas = _operation_parameters(backend, view)
    if isinstance(backend, OrderingFilter) and (names := _ordering_of(backend, view)) is not None:
        schema = schemas.setdefault(str(backend.ordering_param), {"type": "string"})
        shown = ", ".join(names[:MAX_NAMED])
        schema["description"] = f"Comma list of {shown}; - before a name reverses it"
    return schemas


def _operation_parameters(source: Any, view: Any) -> Schemas:
    """Return the query parameters that a filter backend or paginator declares."""
    describe = getattr(source, "get_schema_operation_parameters", None)
    schemas: Schemas = {}
    for item in describe(view) if describe is not None else ():
        if item.get("in") == "query" and item.get("name"):
            schema = item.get("schema") or {}
            kind = schema.get("type")
            member: dict[str, Any] = {"type": kind if kind in KINDS else "string"}
            if member["type"] == "array":
                member["items"] = {"type": "string"}
            if isinstance(schema.get("enum"), list):
                member["enum"] = schema["enum"]
            text = str(item.get("description") or "").strip()
            schemas[str(item["name"])] = {**member, "description": text} if text else member
    return schemas


def _filters(filterset: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, item in filterset.filters.items():
        if is_pattern_lookup(str(item.lookup_expr)) and matches_here(filterset.queryset.db):
            continue
        widget = item.extra.get("widget") or getattr(item.field_class, "widget", None)
        # A range filter has two parameters, such as price_min and price_max.
        for suffix in getattr(widget, "suffixes", None) or [""]:
            yield (f"{name}_{suffix}" if suffix else name), _filter_schema(filterset, item)


def _filter_schema(filterset: Any, item: Any) -> dict[str, Any]:
    if any(kind.__name__.startswith("AllValues") for kind in type(item).__mro__) or filterset.request is None:
        # Do not tell its choices: they are the values of all rows, including those hidden from the caller.
        return {"type": "string"}
    schema = FormField(item.field).schema()
    if hasattr(item.field.widget, "surrogate"):
        note = " ".join(filter(None, [schema.get("description", ""), "(several, separated by commas)"]))
        return {"type": "string", "description": note}
    return schema


def queryset_of(view: Any) -> Any:
    """Return the queryset of a view, from its own code if it declares none."""
    queryset = getattr(view, "queryset", None)
    return queryset if queryset is not None else view.get_queryset()


def _ordering_of(backend: Any, view: Any) -> list[str] | None:
    try:
        valid = backend.get_valid_fields(queryset_of(view), view, {"request": view.request})
    except Exception:
        logger.debug("The ordering of %r is not known", view, exc_info=True)
        return None
    return [str(name) for name, _ in valid]
