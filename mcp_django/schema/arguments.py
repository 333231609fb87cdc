"""Arguments of a function: the schema that clients see, and validation by the same types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import ImproperlyConfigured

from ..exceptions import ToolError
from ..protocol.headers import ParamHeader
from .annotations import parameter
from .container_types import MISSING, Object, Parameter
from .docstrings import Docstring
from .signatures import Signature
from .value_types import Invalid

if TYPE_CHECKING:
    from django.http import HttpRequest

SKIPPED: Final = ("self", "request", "queryset")
MAX_PROBLEMS: Final = 8
MAX_MESSAGE: Final = 1_400


class ArgumentSchema:
    """Parameters of a project function by name, in order; ``own_schema`` is sent in place of the one made from them.

    If ``reserved`` is given, arguments other than parameters are passed on unchanged, except those names.
    ``IGNORED`` are arguments that some clients send with every call, whatever the schema says.
    """

    IGNORED: Final = frozenset({"wait_for_previous"})

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

    @classmethod
    def of_signature(
        cls, function: Callable[..., Any], skip: Collection[str] = SKIPPED, *, untyped: Any = MISSING
    ) -> ArgumentSchema:
        """Return the schema of a project function: its parameters except those in ``skip``, which the app provides.

        Descriptions come from the docstring and from ``Annotated``. A parameter without an annotation has the type of
        its default, or ``untyped`` if given.

        Raises:
            ImproperlyConfigured: a parameter has no annotation or one without JSON form, or cannot be passed by name.
        """
        texts = Docstring.parse(function.__doc__).parameters
        signature = Signature(function)
        found = []
        try:
            for item in signature.given_by_name(skip, untyped=untyped is not MISSING):
                default = MISSING if item.default is item.empty else item.default
                if item.annotation is not item.empty:
                    annotation = signature.resolve(item.annotation)
                else:
                    annotation = type(default) if type(default) in (str, int, float, bool) else untyped
                required = default is MISSING
                found.append(
                    parameter(item.name, annotation, texts.get(item.name, ""), required=required, default=default)
                )
            schema = cls(found)
            ParamHeader.of_schema(schema.schema)
        except (ImproperlyConfigured, ValueError) as error:
            raise ImproperlyConfigured(f"{getattr(function, '__qualname__', function)}: {error}") from None
        return schema

    @classmethod
    def of_author(
        cls, schema: Mapping[str, Any], function: Callable[..., Any], skip: Collection[str] = SKIPPED
    ) -> ArgumentSchema:
        """Return the schema that a project function's author wrote instead of the one from the signature.

        Validation is shallow: required and unknown names, and simple types and enumerations of top-level properties.

        Raises:
            ImproperlyConfigured: the schema does not describe an object, or the function cannot take all of its
            properties.
        """
        name = getattr(function, "__qualname__", function)
        properties = schema.get("properties", {})
        if schema.get("type") != "object" or not isinstance(properties, Mapping):
            raise ImproperlyConfigured(f'{name}: input_schema must have "type": "object"')
        try:
            ParamHeader.of_schema(schema)
        except ValueError as error:
            raise ImproperlyConfigured(f"{name}: {error}") from None
        required = list(schema.get("required", ()))
        own = {item.name: item for item in Signature(function).parameters if item.name not in skip}
        takes_any = any(item.kind is item.VAR_KEYWORD for item in own.values())
        if any(key in skip for key in properties) or not (takes_any or properties.keys() <= own.keys()):
            raise ImproperlyConfigured(f"{name} cannot take every property of its input_schema")
        for item in own.values():
            needed = item.default is item.empty and item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)
            if needed and item.name not in required:
                raise ImproperlyConfigured(
                    f"{name}: {item.name} has no default, but its input_schema does not require it"
                )
        known = {**properties, **{key: {} for key in required if key not in properties}}
        parameters = [Parameter.of_schema(key, value, required=key in required) for key, value in known.items()]
        open_ended = takes_any and schema.get("additionalProperties") is not False
        own_schema = {**schema, "properties": properties}
        return cls(parameters, own_schema=own_schema, reserved=skip if open_ended else None)

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the project function's arguments."""
        if self._own_schema is None:
            return self._object.schema()
        return self._own_schema

    @property
    def needs_database(self) -> bool:
        """Whether validating the arguments of the project function can run queries."""
        return self._object.needs_database

    def validate(self, arguments: Mapping[str, Any], request: HttpRequest) -> dict[str, Any]:
        """Validate arguments of the project function and return its keyword arguments, without those left to defaults.

        Raises:
            ToolError: arguments are wrong, missing or unknown; the text names each, and the valid arguments.
        """
        given = {
            name: value for name, value in arguments.items() if name in self.parameters or name not in self.IGNORED
        }
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
        lines = []
        for path, cause in problems[:MAX_PROBLEMS]:
            lines.append(f"{path}: {cause}" if path else cause)
        if len(problems) > MAX_PROBLEMS:
            lines.append(f"and {len(problems) - MAX_PROBLEMS} more")
        named = []
        for name, item in self.parameters.items():
            named.append(f"{name} (required)" if item.required else name)
        text = f"Invalid arguments. {'. '.join(lines)}."
        valid = f" Valid arguments: {', '.join(named)}." if named else " There are no arguments."
        return text[: MAX_MESSAGE - min(len(valid), MAX_MESSAGE // 2)] + valid[: MAX_MESSAGE // 2]
