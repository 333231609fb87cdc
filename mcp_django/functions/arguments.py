"""The arguments of a call: one structure that is the schema clients see and the validation of what they send."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import ImproperlyConfigured

from ..exceptions import ToolError
from ..protocol.headers import param_headers
from ..schema.annotations import parameter, resolve_hint
from ..schema.containers import MISSING, Array, Dictionary, Object, Parameter
from ..schema.docstrings import parse_docstring
from ..schema.types import Anything, Boolean, Choice, Integer, Invalid, Number, String, Type
from .declarations import given_by_name, signature_of

if TYPE_CHECKING:
    from ..context.request import MCPRequest

# Sent by some clients with every call, whatever the schema says.
IGNORED: Final = frozenset({"wait_for_previous"})
SKIPPED: Final = ("self", "request", "queryset")
MAX_PROBLEMS: Final = 8
MAX_MESSAGE: Final = 1_400


class ArgumentSchema:
    """The parameters of a function by name, in order. ``own_schema`` is sent in place of the one made from them.

    Where ``reserved`` is given, arguments that are no parameters are handed on as they are, but for those names.
    """

    def __init__(
        self,
        parameters: Collection[Parameter],
        *,
        own_schema: Mapping[str, Any] | None = None,
        reserved: Collection[str] | None = None,
    ) -> None:
        self.parameters = {parameter.name: parameter for parameter in parameters}
        self._object = Object(tuple(parameters))
        self._own_schema = own_schema
        self._reserved = reserved

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the arguments."""
        return self._object.schema() if self._own_schema is None else self._own_schema

    @property
    def needs_database(self) -> bool:
        """Whether validation may run queries, for rows of models."""
        return self._object.needs_database

    def validate(self, arguments: Mapping[str, Any], request: MCPRequest) -> dict[str, Any]:
        """Return the keyword arguments for the function; one that is left out is left to the function's default.

        Raises:
            ToolError: arguments are wrong, missing or unknown; the text names each, and what there is.
        """
        given = {name: value for name, value in arguments.items() if name in self.parameters or name not in IGNORED}
        others = {}
        if self._reserved is not None:
            known = {*self.parameters, *self._reserved}
            others = {name: given.pop(name) for name in list(given) if name not in known}
        try:
            found: dict[str, Any] = self._object.convert(given, request)
        except Invalid as error:
            raise ToolError(self._message(error.problems)) from None
        return {**others, **found}

    def _message(self, problems: list[tuple[str, str]]) -> str:
        lines = [f"{path}: {cause}" if path else cause for path, cause in problems[:MAX_PROBLEMS]]
        if len(problems) > MAX_PROBLEMS:
            lines.append(f"and {len(problems) - MAX_PROBLEMS} more")
        named = [f"{name} (required)" if item.required else name for name, item in self.parameters.items()]
        text = f"Invalid arguments. {'. '.join(lines)}."
        valid = f" Valid arguments: {', '.join(named)}." if named else " There are no arguments."
        return text[: MAX_MESSAGE - min(len(valid), MAX_MESSAGE // 2)] + valid[: MAX_MESSAGE // 2]


def signature_schema(
    function: Callable[..., Any], skip: Collection[str] = SKIPPED, *, untyped: Any = MISSING
) -> ArgumentSchema:
    """Return the schema of a function's parameters but those in ``skip``, which the app fills in itself.

    Descriptions come from the docstring and from ``Annotated``. A parameter without an annotation has the type of its
    default, or ``untyped`` if given.

    Raises:
        ImproperlyConfigured: a parameter has no annotation, one with no JSON form, or cannot be given by name.
    """
    texts = parse_docstring(function.__doc__).parameters
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    found = []
    try:
        for item in given_by_name(function, skip, untyped=untyped is not MISSING):
            default = MISSING if item.default is item.empty else item.default
            annotation = _annotation(item, scope, untyped)
            required = default is MISSING
            found.append(parameter(item.name, annotation, texts.get(item.name, ""), required=required, default=default))
        schema = ArgumentSchema(found)
        param_headers(schema.schema)
    except (ImproperlyConfigured, ValueError) as error:
        raise ImproperlyConfigured(f"{getattr(function, '__qualname__', function)}: {error}") from None
    return schema


def _annotation(item: inspect.Parameter, scope: dict[str, Any], untyped: Any) -> Any:
    if item.annotation is not item.empty:
        return resolve_hint(item.annotation, scope)
    return type(item.default) if type(item.default) in (str, int, float, bool) else untyped


_SIMPLE: Final[Mapping[str, Type]] = {
    "string": String(),
    "integer": Integer(),
    "number": Number(),
    "boolean": Boolean(),
    "array": Array(Anything()),
    "object": Dictionary(Anything()),
}


def raw_schema(
    schema: Mapping[str, Any], function: Callable[..., Any], skip: Collection[str] = SKIPPED
) -> ArgumentSchema:
    """Return the arguments of a function whose author wrote the JSON Schema, which clients get unchanged.

    Validation is shallow: required and unknown names, simple types and enumerations of the properties at the top.

    Raises:
        ImproperlyConfigured: the schema is not of an object, or the function cannot take what it admits.
    """
    name = getattr(function, "__qualname__", function)
    properties = schema.get("properties", {})
    if schema.get("type") != "object" or not isinstance(properties, Mapping):
        raise ImproperlyConfigured(f'{name}: input_schema must have "type": "object"')
    try:
        param_headers(schema)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}") from None
    required = list(schema.get("required", ()))
    own = {item.name: item for item in signature_of(function).parameters.values() if item.name not in skip}
    takes_any = any(item.kind is item.VAR_KEYWORD for item in own.values())
    if any(key in skip for key in properties) or not (takes_any or properties.keys() <= own.keys()):
        raise ImproperlyConfigured(f"{name} cannot take every property of its input_schema")
    for item in own.values():
        needed = item.default is item.empty and item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)
        if needed and item.name not in required:
            raise ImproperlyConfigured(f"{name}: {item.name} has no default, but its input_schema does not require it")
    known = {**properties, **{key: {} for key in required if key not in properties}}
    open_ended = takes_any and schema.get("additionalProperties") is not False
    return ArgumentSchema(
        [Parameter(key, _simple_type(value), key in required) for key, value in known.items()],
        own_schema={**schema, "properties": properties},
        reserved=skip if open_ended else None,
    )


def _simple_type(schema: Any) -> Type:
    if not isinstance(schema, Mapping):
        return Anything()
    if isinstance(schema.get("enum"), list):
        return Choice(tuple((value, value) for value in schema["enum"]))
    kind = schema.get("type")
    return _SIMPLE.get(kind, Anything()) if isinstance(kind, str) else Anything()
