"""A project function: its arguments as the schema that clients see and as validation, who may call it, and its call.

A project's own tools, prompts and resources are such functions. Its actions have schemas of the same form.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_origin

from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import ImproperlyConfigured, ObjectDoesNotExist, PermissionDenied, ValidationError
from django.http import Http404

from ..exceptions import ToolError
from ..protocol.headers import ParamHeader
from ..schema.annotations import parameter, parse_docstring, resolve_hint
from ..schema.container_types import MISSING, Object, Parameter
from ..schema.value_types import Invalid
from .asked_parameters import answers_of, asked_parameters
from .declared_functions import REQUEST, given_by_name, look_at, signature_of

if TYPE_CHECKING:
    from ..context.request import MCPRequest

T = TypeVar("T")

# Arguments that some clients send with every call, whatever the schema says.
IGNORED: Final = frozenset({"wait_for_previous"})
SKIPPED: Final = ("self", "request", "queryset")
MAX_PROBLEMS: Final = 8
MAX_MESSAGE: Final = 1_400


class ArgumentSchema:
    """Parameters of a project function by name, in order; ``own_schema`` is sent in place of the one made from them.

    If ``reserved`` is given, arguments other than parameters are passed on unchanged, except those names.
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
        """The JSON Schema of the project function's arguments."""
        if self._own_schema is None:
            return self._object.schema()
        return self._own_schema

    @property
    def needs_database(self) -> bool:
        """Whether validating the arguments of the project function can run queries."""
        return self._object.needs_database

    def validate(self, arguments: Mapping[str, Any], request: MCPRequest) -> dict[str, Any]:
        """Validate arguments of the project function and return its keyword arguments, without those left to defaults.

        Raises:
            ToolError: arguments are wrong, missing or unknown; the text names each, and the valid arguments.
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


def signature_schema(
    function: Callable[..., Any], skip: Collection[str] = SKIPPED, *, untyped: Any = MISSING
) -> ArgumentSchema:
    """Return the schema of a project function: its parameters except those in ``skip``, which the app provides.

    Descriptions come from the docstring and from ``Annotated``. A parameter without an annotation has the type of its
    default, or ``untyped`` if given.

    Raises:
        ImproperlyConfigured: a parameter has no annotation or one without JSON form, or cannot be passed by name.
    """
    texts = parse_docstring(function.__doc__).parameters
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    found = []
    try:
        for item in given_by_name(function, skip, untyped=untyped is not MISSING):
            default = MISSING if item.default is item.empty else item.default
            if item.annotation is not item.empty:
                annotation = resolve_hint(item.annotation, scope)
            else:
                annotation = type(default) if type(default) in (str, int, float, bool) else untyped
            required = default is MISSING
            found.append(parameter(item.name, annotation, texts.get(item.name, ""), required=required, default=default))
        schema = ArgumentSchema(found)
        ParamHeader.of_schema(schema.schema)
    except (ImproperlyConfigured, ValueError) as error:
        raise ImproperlyConfigured(f"{getattr(function, '__qualname__', function)}: {error}") from None
    return schema


def raw_schema(
    schema: Mapping[str, Any], function: Callable[..., Any], skip: Collection[str] = SKIPPED
) -> ArgumentSchema:
    """Return the schema that a project function's author wrote instead of the one from the signature.

    Validation is shallow: required and unknown names, and simple types and enumerations of top-level properties.

    Raises:
        ImproperlyConfigured: the schema does not describe an object, or the function cannot take all its properties.
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
    own = {item.name: item for item in signature_of(function).parameters.values() if item.name not in skip}
    takes_any = any(item.kind is item.VAR_KEYWORD for item in own.values())
    if any(key in skip for key in properties) or not (takes_any or properties.keys() <= own.keys()):
        raise ImproperlyConfigured(f"{name} cannot take every property of its input_schema")
    for item in own.values():
        needed = item.default is item.empty and item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)
        if needed and item.name not in required:
            raise ImproperlyConfigured(f"{name}: {item.name} has no default, but its input_schema does not require it")
    known = {**properties, **{key: {} for key in required if key not in properties}}
    parameters = [Parameter.of_schema(key, value, required=key in required) for key, value in known.items()]
    open_ended = takes_any and schema.get("additionalProperties") is not False
    own_schema = {**schema, "properties": properties}
    return ArgumentSchema(parameters, own_schema=own_schema, reserved=skip if open_ended else None)


class ProjectFunction:
    """A project function, ``(request, **arguments)``, with the schema of its signature; sync or async.

    ``permissions`` are Django permissions ("shop.view_order"), all of which the caller needs; ``permission`` is a
    function of the request that must agree too. ``untyped`` is the type of parameters without annotation,
    MISSING to refuse them. ``asked`` are the parameters that the client's user or the client provides, not arguments.

    Raises:
        ImproperlyConfigured: the function does not take the request, or its parameters have no JSON form.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str = "",
        description: str = "",
        permissions: Collection[str] = (),
        permission: Callable[[MCPRequest], bool] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        untyped: Any = MISSING,
    ) -> None:
        self.function = function
        self.name = look_at(
            function,
            name=name,
            permissions=permissions,
            untyped=untyped is not MISSING,
            takes_any=input_schema is not None,
        )
        self.description = description or parse_docstring(function.__doc__).description
        self.is_async = inspect.iscoroutinefunction(function)
        self.permissions = tuple(permissions)
        self.permission = permission
        self.asked = asked_parameters(function, REQUEST)
        # Asks the client's user to confirm a call with these arguments, None if a call needs no confirmation.
        self.confirm: Callable[[MCPRequest, Mapping[str, Any]], None] | None = None
        skipped = (*REQUEST, *(item.name for item in self.asked))
        if input_schema is not None:
            self.arguments = raw_schema(input_schema, function, skipped)
        else:
            self.arguments = signature_schema(function, skipped, untyped=untyped)

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether the caller may know of the project function and call it."""
        if self.permissions and not request.user.has_perms(self.permissions):
            return False
        return self.permission is None or bool(self.permission(request))

    def call(self, request: MCPRequest, arguments: Mapping[str, Any], finish: Callable[[Any], T]) -> T | Awaitable[T]:
        """Call the project function with arguments validated against its signature, and pass its value to ``finish``.

        For an async function, return an awaitable of that; parts that may query the database then run in a thread.

        Raises:
            ToolError: the arguments are wrong, or the function raised one of Django's exceptions to refuse.
            InputRequired: the function has to ask first.
        """
        if self.is_async:
            return self._call_async(request, arguments, finish)
        with speaking_plainly():
            given = self.arguments.validate(arguments, request)
            given |= self.answers(request, given)
            with request.mcp.record.in_own_code():
                value = self.function(request, **given)
            return finish(value)

    def answers(self, request: MCPRequest, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answers that this project function needs for its call, besides its validated ``arguments``.

        The user confirms the call in the same round.
        """
        if self.confirm is None:
            if self.asked:
                return answers_of(self.asked, request, arguments)
            return {}
        from ..context.questions import answered_together

        found: dict[str, Any]
        found, _ = answered_together(
            [partial(answers_of, self.asked, request, arguments), partial(self.confirm, request, arguments)]
        )
        return found

    async def _call_async(self, request: MCPRequest, arguments: Mapping[str, Any], finish: Callable[[Any], T]) -> T:
        with speaking_plainly():
            if self.arguments.needs_database:
                given = await sync_to_async(self.arguments.validate)(arguments, request)
            else:
                given = self.arguments.validate(arguments, request)
            if self.asked or self.confirm is not None:
                # A form may query the database.
                given |= await sync_to_async(self.answers)(request, given)
            with request.mcp.record.in_own_code():
                value = await self.function(request, **given)
            # The label of a row may need a query.
            if isinstance(value, str | None):
                return finish(value)
            return await sync_to_async(finish)(value)


def result_annotation(hint: Any) -> Any:
    """Return the annotation of a project function's result; for a generator, that of its return value."""
    if get_origin(hint) is Generator:
        return next(iter(get_args(hint)[2:]), type(None))
    return hint


def resolved(value: Any) -> Any:
    """Return the value of a project function; an awaitable is run to its end in this thread."""

    async def finish() -> Any:
        return await value

    if inspect.isawaitable(value):
        return async_to_sync(finish)()
    return value


@contextmanager
def speaking_plainly() -> Iterator[None]:
    """Turn exceptions of a project function (ValidationError, PermissionDenied, Http404) into a ``ToolError``."""
    try:
        yield
    except ValidationError as error:
        if hasattr(error, "error_dict"):
            text = "; ".join(f"{name}: {' '.join(messages)}" for name, messages in error.message_dict.items())
        else:
            text = "; ".join(error.messages)
        raise ToolError(f"Invalid: {text}") from error
    except PermissionDenied as error:
        raise ToolError(str(error) or "Permission denied.") from error
    except (ObjectDoesNotExist, Http404) as error:
        raise ToolError(str(error) or "Not found.") from error
