"""The arguments of a ViewSet's tool: the parameters of its URL, of its query and of its body, side by side."""

import inspect
import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.core.exceptions import FieldDoesNotExist
from django.http import QueryDict
from rest_framework.serializers import ListSerializer

from ..exceptions import NotFound, ToolError
from ..orm.arguments import check_names
from ..orm.wording import alternatives, json_or_text
from ..schema.problems import is_empty
from ..schema.serializers import field_schema, writable_fields
from ..schema.types import FREE_OBJECT, key_type, types_of
from .parameters import Schemas, check_ordering, ordering_names, query_parameters
from .probing import Undecided
from .routes import Route

logger = logging.getLogger("mcp_django")

# The argument that is the body of an action that says nothing of what it takes.
DATA: Final = "data"
WITH_BODY: Final = frozenset({"post", "put", "patch"})
MAX_TEXT: Final = 2_000
CONFIRM_TOKEN: Final = {"type": "string", "description": "From its preview"}


@dataclass(frozen=True)
class Inputs:
    """What a caller may give. ``body`` maps arguments to names in the body, None where the body is one argument."""

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
        """Check the names.

        Raises:
            ToolError: one is unknown, or a required one is missing.
        """
        check_names(arguments, self.properties)
        if missing := [name for name in self.required if name not in arguments]:
            raise ToolError(f"Missing argument: {', '.join(missing)}. {alternatives(None, self.properties)}")

    def query_of(self, arguments: Mapping[str, Any]) -> QueryDict:
        """Return the query of the URL.

        Raises:
            ToolError: a value cannot stand in one, or orders by what is not there.
        """
        query = QueryDict(mutable=True)
        for name, schema in self.query.items():
            many = schema.get("type") == "array"
            value = json_or_text(arguments.get(name)) if many else arguments.get(name)
            if value is None or is_empty(value) or (value in (0, "0") and schema.get("minimum") == 1):
                continue
            query.setlist(
                name, [_text(name, item) for item in (value if many and isinstance(value, list) else [value])]
            )
        check_ordering(self.ordering, {name: ",".join(query.getlist(name)) for name in self.ordering})
        query._mutable = False
        return query

    def body_of(self, arguments: Mapping[str, Any]) -> Any:
        """Return the body.

        Raises:
            ToolError: the body is one argument, and not of its type.
        """
        if self.body is None:
            data = json_or_text(arguments.get(DATA))
            if self.fields[DATA]["type"] == "array" and not isinstance(data, list):
                raise ToolError(f"{DATA} must be a list of objects, such as [{{'field': value}}].")
            if self.fields[DATA]["type"] == "object" and not isinstance(data, dict | None):
                raise ToolError(f"{DATA} must be an object, such as {{'field': value}}.")
            return data if data is not None else {}
        found = {}
        for argument, name in self.body.items():
            kinds = types_of(self.fields[argument])
            value = arguments.get(argument)
            absent = "null" if value is None else "string" if value == "" else None
            if argument not in arguments or (kinds and absent is not None and absent not in kinds):
                # Some clients write null or an empty text for everything that they leave out.
                continue
            nested = not kinds or {"array", "object"} & kinds
            found[name] = json_or_text(arguments[argument]) if nested else arguments[argument]
        return found


def inputs_of(route: Route, view: Any, *, confirms: bool = False) -> Inputs:
    """Return the arguments of a route, as the view describes them to its caller."""
    path = {name: _path_schema(view, name) for name in route.parameters}
    query = {name: schema for name, schema in _query(route, view).items() if name not in path}
    ordering = {name: names for name, names in ordering_names(view).items() if name in query}
    if route.method not in WITH_BODY:
        return Inputs(path, query, ordering=ordering, confirms=confirms)
    serializer = _serializer(route, view)
    if isinstance(serializer, ListSerializer):
        rows = field_schema(serializer)
        return Inputs(path, query, {DATA: rows}, None, [DATA], confirms=confirms)
    if not hasattr(serializer, "fields"):
        text = "Body of the request, if it takes one"
        free = {**FREE_OBJECT, "description": text}
        return Inputs(path, query, {DATA: free}, None, confirms=confirms)
    known = writable_fields(serializer)
    taken = {*path, *query, *(["confirm_token"] if confirms else [])}
    names = {f"body_{name}" if name in taken else name: name for name in known}
    fields = {argument: field_schema(known[name]) for argument, name in names.items()}
    partial = route.method == "patch"
    required = [argument for argument, name in names.items() if known[name].required and not partial]
    return Inputs(path, query, fields, names, required, ordering, confirms)


def check_unicode(arguments: Mapping[str, Any]) -> None:
    """Check that all values can be written as JSON in UTF-8, which views and databases take for granted.

    Raises:
        ToolError: a text holds half of a surrogate pair, or an integer has thousands of digits.
    """
    try:
        json.dumps(arguments, ensure_ascii=False).encode()
    except ValueError:
        raise ToolError("The arguments hold a text that is not Unicode, or a number that is too long.") from None


def path_arguments(route: Route, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the parameters of the URL.

    Raises:
        ToolError: one is missing.
        NotFound: no URL can hold one.
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
    # A huge integer is not written out before its size is known.
    if isinstance(value, int) and value.bit_length() > MAX_TEXT:
        raise ToolError(f"{name} is out of range.")
    text = str(value)
    if "\0" in text or len(text) > MAX_TEXT:
        raise ToolError(f"{name} must be a text of at most {MAX_TEXT} characters, without NUL.")
    return text


def _path_schema(view: Any, name: str) -> dict[str, Any]:
    lookup = getattr(view, "lookup_field", "pk")
    model = getattr(getattr(view, "queryset", None), "model", None)
    if name == (getattr(view, "lookup_url_kwarg", None) or lookup) and model is not None:
        try:
            found = model._meta.pk if lookup == "pk" else model._meta.get_field(lookup)
        except FieldDoesNotExist:
            found = None
        shown = "primary key" if lookup == "pk" else lookup
        return {"type": key_type(found), "description": f"{shown} of the {model._meta.verbose_name}"}
    return {"type": "string", "description": "Part of the URL"}


def _query(route: Route, view: Any) -> Schemas:
    try:
        return query_parameters(route, view)
    except Undecided:
        # The call, which has the parameters, knows them.
        return {}
    except Exception:
        logger.warning("The query parameters of %s are not known", route.name, exc_info=True)
        return {}


def _serializer(route: Route, view: Any) -> Any:
    """Return the serializer that reads the body, None where there is no telling."""
    if not hasattr(view, "get_serializer_class"):
        return None
    try:
        if not (route.is_standard or _validates(route, view)):
            return None
        return view.get_serializer(partial=route.method == "patch")
    except (Undecided, AssertionError):
        # REST framework asserts that there is a class.
        return None
    except Exception:
        logger.warning("The serializer of %s is not known", route.name, exc_info=True)
        return None


def _validates(route: Route, view: Any) -> bool:
    """Return whether an extra action reads its body by the serializer of the view: one of its own, or by its code."""
    if view.get_serializer_class() is not getattr(route.viewset, "serializer_class", None):
        return True
    code = getattr(inspect.unwrap(route.handler), "__code__", None)
    return code is not None and {"get_serializer", "is_valid"} <= {*code.co_names}
