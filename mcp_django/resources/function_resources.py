"""Function resources: functions of a project as resources, fixed ones or templates with parameters in the URI."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import orjson
from django.core.exceptions import ImproperlyConfigured, ObjectDoesNotExist, PermissionDenied
from django.db.models import Model
from django.http import Http404

from ..exceptions import NotFound, ToolError
from ..functions.project_function import ProjectFunction, resolved
from ..protocol.content import Audio, EmbeddedResource, Image, Text
from ..protocol.errors import InvalidParams
from ..protocol.uri_templates import UriTemplate
from ..schema.json_values import to_jsonable
from ..schema.secrets import clean_text
from ..scopes import Scope

if TYPE_CHECKING:
    from ..context.request import MCPRequest
    from .completions import Hook


JSON = "application/json"
TEXT = "text/plain"
BINARY = "application/octet-stream"


class FunctionResource(ProjectFunction):
    """A function resource: one made of a project function ``(request, **parameters)``, sync or async.

    The parameters in ``uri`` (:class:`~mcp_django.protocol.uri_templates.UriTemplate`) are converted by the function's
    annotations; without parameters the resource is fixed, and listed with its ``size`` in bytes, if given.
    The function returns text, bytes, content blocks, or anything else for JSON; ``mime_type`` is that of text and
    bytes. ``complete`` says where the values of a parameter come from, see
    :class:`~mcp_django.resources.completions.Completer`.
    ``scopes`` are the scopes that a token needs in addition to "mcp:read".

    ``ttl_ms`` is how many milliseconds a client may cache the contents, and ``public`` says that they are the same for
    all callers, so that shared caches may store them (2026-07-28, server/utilities/caching).
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
        super().__init__(
            function, name=name, description=description, permissions=permissions, permission=permission, untyped=str
        )
        self.uri = uri
        try:
            self.template = UriTemplate(uri)
        except ValueError as error:
            raise ImproperlyConfigured(f"{self.name}: {error}") from None
        parameters = self.arguments.parameters
        if unknown := sorted({*self.template.variables, *self.template.query} - parameters.keys()):
            raise ImproperlyConfigured(f"{self.name} has no parameter {unknown[0]}, which {uri} gives")
        needed = {name for name, parameter in parameters.items() if parameter.required}
        if missing := sorted(needed - set(self.template.variables)):
            raise ImproperlyConfigured(f"{uri} need not give {missing[0]}, which {self.name} requires")
        # Imported here, because a project that only imports embed() does not need it.
        from .completions import Completer

        self.scopes = frozenset({Scope.READ, *scopes})
        self.completer = Completer(self, complete)
        if ttl_ms is not None and (type(ttl_ms) is not int or ttl_ms < 0):
            raise ImproperlyConfigured(f"{self.name}: ttl_ms is a number of milliseconds, 0 or more")
        # Row parameters depend on the rows that the caller may see, and answers on the caller's user.
        bound = self.permissions or self.permission or self.arguments.needs_database or self.asked.items
        if public and (bound or self.scopes != {Scope.READ}):
            raise ImproperlyConfigured(f"{self.name} depends on its caller and cannot be public")
        # Members that the result of ``resources/read`` has in addition to the contents.
        self.cache_hints: dict[str, Any] = {"ttlMs": ttl_ms} if ttl_ms is not None else {}
        if public:
            self.cache_hints["cacheScope"] = "public"
        self.title = title or self.name.replace("_", " ").strip().capitalize()
        self.mime_type = mime_type
        self.size = size

    @property
    def is_template(self) -> bool:
        """Whether the function resource's URI has parameters."""
        return self.template.is_template

    def has_scopes(self, request: MCPRequest) -> bool:
        """Return whether the caller's token has the scopes of the function resource."""
        return request.mcp.scopes >= self.scopes

    def definition(self) -> dict[str, Any]:
        """Return the ``Resource`` or ``ResourceTemplate`` object of the function, without empty optional keys."""
        optional = {"description": self.description, "mimeType": self.mime_type}
        wire: dict[str, Any] = {"uriTemplate" if self.is_template else "uri": self.uri}
        wire.update({"name": self.name, "title": self.title})
        wire.update({key: value for key, value in optional.items() if value})
        if self.size is not None and not self.is_template:
            wire["size"] = self.size
        return wire

    def matches(self, uri: str) -> dict[str, str] | None:
        """Return the parameters in the URI; None if it is not a URI of this function resource."""
        return self.template.match(uri)

    def read(self, request: MCPRequest, uri: str) -> list[dict[str, Any]]:
        """Call the function of the resource and return the contents; an async function also runs in this thread."""
        given = self.matches(uri)
        if given is None:
            raise NotFound
        try:
            arguments = self.arguments.validate(given, request)
        except ToolError:
            raise NotFound from None
        try:
            value = self.function(request, **arguments, **self.answers(request, arguments))
            return self.contents(uri, resolved(value))
        except (ObjectDoesNotExist, PermissionDenied, Http404):
            raise NotFound from None
        except ToolError as error:
            raise InvalidParams(error.message) from error

    def contents(self, uri: str, value: Any) -> list[dict[str, Any]]:
        """Convert the function's return value to resource contents."""
        blocks = (EmbeddedResource, Image, Audio, Text)
        several = isinstance(value, (list, tuple)) and any(isinstance(item, blocks) for item in value)
        items = value if several else [value]
        found = []
        for item in items:
            match item:
                case EmbeddedResource():
                    made = item
                case Image() | Audio():
                    made = EmbeddedResource(uri, item.data, item.mime_type)
                case Text():
                    made = EmbeddedResource(uri, clean_text(item.text), self.mime_type or TEXT)
                case str():
                    made = EmbeddedResource(uri, clean_text(item), self.mime_type or TEXT)
                case bytes() | bytearray() | memoryview():
                    made = EmbeddedResource(uri, bytes(item), self.mime_type or BINARY)
                case _:
                    made = EmbeddedResource(uri, orjson.dumps(to_jsonable(item)).decode(), JSON)
            found.append(made.contents())
        return found


def embed(request: MCPRequest, target: Model | str) -> EmbeddedResource:
    """Read a function resource, another resource of this server or a row, and return it as an embedded resource.

    It only contains what the caller may see. If the resource has several contents, it is the first.
    """
    from ..orm.access import access_of
    from ..orm.uris import Address
    from .model_resources import Resources

    site = request.mcp.site
    if isinstance(target, Model):
        exposure = site.exposures.get(type(target))
        if exposure is None or target.pk is None:
            raise NotFound
        target = Address(access_of(request)[exposure]).row(target.pk)
    function = site.get_function_resource(request, target)
    if function is not None and not function.has_scopes(request):
        raise NotFound
    contents = function.read(request, target) if function is not None else Resources(request).find(target).read()
    first = contents[0]
    body = first["text"] if "text" in first else base64.b64decode(first["blob"])
    return EmbeddedResource(first["uri"], body, first["mimeType"])
