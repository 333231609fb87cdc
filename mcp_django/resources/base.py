"""Resources that a project writes as functions: fixed ones, and templates with parameters in the URI."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import orjson
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured, ObjectDoesNotExist, PermissionDenied
from django.http import Http404

from ..completions import Completer, Hook
from ..exceptions import NotFound, ToolError
from ..functions.project import ProjectFunction
from ..protocol.content import Audio, EmbeddedResource, Image, Text
from ..protocol.errors import InvalidParams
from ..protocol.uri_templates import UriTemplate
from ..schema.jsonable import clean_text, to_jsonable
from ..scopes import READ

if TYPE_CHECKING:
    from ..context.request import MCPRequest

JSON, TEXT, BINARY = "application/json", "text/plain", "application/octet-stream"


class FunctionResource:
    """A resource made of a function ``(request, **parameters)``, sync or async.

    The parameters in ``uri`` (:class:`~mcp_django.protocol.uri_templates.UriTemplate`) are read as the function's
    annotations say; without any the resource is a fixed one, listed with its ``size`` in bytes where that is known.
    The function returns text, bytes, content blocks, or anything else for JSON; ``mime_type`` is that of text and
    bytes. ``complete`` says where the values of a parameter come from (:class:`~mcp_django.completions.Completer`).
    ``scopes`` are what a token needs beside "mcp:read".

    ``ttl_ms`` is how many milliseconds a client may keep the contents, and ``public`` says that they are the same for
    all, so that a cache may share them (2026-07-28, server/utilities/caching).

    Raises:
        ImproperlyConfigured: the URI is no template that can be matched, its parameters or those of ``complete`` are
            not the function's, or what is public has a condition on who may read it.
    """

    def __init__(
        self,
        uri: str,
        function: Callable[..., Any],
        *,
        name: str = "",
        title: str = "",
        description: str = "",
        mime_type: str = "",
        size: int | None = None,
        permissions: Collection[str] = (),
        permission: Callable[[MCPRequest], bool] | None = None,
        scopes: Iterable[str] = (),
        complete: Mapping[str, Hook | str] | None = None,
        ttl_ms: int | None = None,
        public: bool = False,
    ) -> None:
        self.uri = uri
        self.function = ProjectFunction(
            function,
            name=name,
            description=description,
            permissions=permissions,
            permission=permission,
            untyped=str,
        )
        try:
            self.template = UriTemplate(uri)
        except ValueError as error:
            raise ImproperlyConfigured(f"{self.function.name}: {error}") from None
        self._check_parameters()
        self.scopes = frozenset({READ, *scopes})
        self.completer = Completer(self.function, complete)
        self.cache_hints = self._cache_hints(ttl_ms, public)
        self.name = self.function.name
        self.title = title or self.name.replace("_", " ").strip().capitalize()
        self.description = self.function.description
        self.mime_type = mime_type
        self.size = size

    def _check_parameters(self) -> None:
        parameters = self.function.arguments.parameters
        given = {*self.template.variables, *self.template.query}
        if unknown := sorted(given - parameters.keys()):
            raise ImproperlyConfigured(f"{self.function.name} has no parameter {unknown[0]}, which {self.uri} gives")
        needed = {name for name, parameter in parameters.items() if parameter.required}
        if missing := sorted(needed - set(self.template.variables)):
            raise ImproperlyConfigured(f"{self.uri} need not give {missing[0]}, which {self.function.name} requires")

    def _cache_hints(self, ttl_ms: int | None, public: bool) -> Mapping[str, Any]:
        """Return what goes with the contents in the result of ``resources/read``."""
        if ttl_ms is not None and (type(ttl_ms) is not int or ttl_ms < 0):
            raise ImproperlyConfigured(f"{self.function.name}: ttl_ms is a number of milliseconds, 0 or more")
        function = self.function
        # Rows are looked up among those of the caller, and answers are those of the caller's user.
        bound = function.permissions or function.permission or function.arguments.needs_database or function.asked
        if public and (bound or self.scopes != {READ}):
            raise ImproperlyConfigured(f"{self.function.name} depends on its caller and cannot be public")
        hints: dict[str, Any] = {"ttlMs": ttl_ms} if ttl_ms is not None else {}
        return {**hints, "cacheScope": "public"} if public else hints

    @property
    def is_template(self) -> bool:
        """Whether the URI has parameters."""
        return self.template.is_template

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether the caller may know of the resource and read it."""
        return self.function.has_permission(request)

    def has_scopes(self, request: MCPRequest) -> bool:
        """Return whether the caller's token has the scopes that it takes."""
        return request.mcp.scopes >= self.scopes

    def definition(self) -> dict[str, Any]:
        """Return the ``Resource`` or ``ResourceTemplate`` object, without optional keys that are empty."""
        optional = {"description": self.description, "mimeType": self.mime_type}
        wire: dict[str, Any] = {"uriTemplate" if self.is_template else "uri": self.uri}
        wire.update({"name": self.name, "title": self.title})
        wire.update({key: value for key, value in optional.items() if value})
        if self.size is not None and not self.is_template:
            wire["size"] = self.size
        return wire

    def matches(self, uri: str) -> dict[str, str] | None:
        """Return the parameters that the URI gives, None when it is not one of this resource's."""
        return self.template.match(uri)

    def read(self, request: MCPRequest, uri: str) -> list[dict[str, Any]]:
        """Return the contents objects of ``resources/read``. An async function is run to its end in this thread.

        Raises:
            NotFound: the URI is not one of this resource's, or leads to nothing that the caller may see.
            InvalidParams: the function refused with a text of its own.
        """
        given = self.matches(uri)
        if given is None:
            raise NotFound
        try:
            arguments = self.function.arguments.validate(given, request)
        except ToolError:
            raise NotFound from None
        try:
            value = self.function.function(request, **arguments, **self.function.answers(request, arguments))
            if inspect.isawaitable(value):
                value = async_to_sync(_finish)(value)
            return self.contents(uri, value)
        except (ObjectDoesNotExist, PermissionDenied, Http404):
            raise NotFound from None
        except ToolError as error:
            raise InvalidParams(error.message) from error

    def contents(self, uri: str, value: Any) -> list[dict[str, Any]]:
        """Return the contents objects for what the function returned."""
        items = value if isinstance(value, (list, tuple)) and _holds_resources(value) else [value]
        return [self._contents(uri, item).contents() for item in items]

    def _contents(self, uri: str, value: Any) -> EmbeddedResource:
        match value:
            case EmbeddedResource():
                return value
            case Image() | Audio():
                return EmbeddedResource(uri, value.data, value.mime_type)
            case Text():
                return EmbeddedResource(uri, clean_text(value.text), self.mime_type or TEXT)
            case str():
                return EmbeddedResource(uri, clean_text(value), self.mime_type or TEXT)
            case bytes() | bytearray() | memoryview():
                return EmbeddedResource(uri, bytes(value), self.mime_type or BINARY)
            case _:
                return EmbeddedResource(uri, orjson.dumps(to_jsonable(value)).decode(), JSON)


def _holds_resources(values: Any) -> bool:
    return any(isinstance(value, (EmbeddedResource, Image, Audio, Text)) for value in values)


async def _finish(value: Awaitable[Any]) -> Any:
    return await value
