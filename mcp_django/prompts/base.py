"""Prompts that a project writes as functions (specification, server/prompts)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from django.db.models import Model

from ..completions import Completer, Hook
from ..exceptions import ToolError
from ..functions.project import ProjectFunction
from ..protocol.content import Audio, Content, EmbeddedResource, Image, ResourceLink, Text
from ..protocol.errors import InvalidParams
from ..schema.jsonable import clean_text
from ..scopes import READ

if TYPE_CHECKING:
    from ..context.request import MCPRequest

_BLOCKS = (Text, Image, Audio, EmbeddedResource, ResourceLink)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt; ``content`` is text, a content block, or a row, which is embedded as a resource."""

    role: Literal["user", "assistant"]
    content: str | Content | Model

    def to_wire(self, request: MCPRequest) -> dict[str, Any]:
        """Return the ``PromptMessage`` for this caller.

        Raises:
            NotFound: the row is not there for the caller.
        """
        content = self.content
        if isinstance(content, str):
            content = Text(clean_text(content))
        elif isinstance(content, Model):
            from ..resources.embedding import embed

            content = embed(request, content)
        return {"role": self.role, "content": content.to_wire()}


class Prompt:
    """A prompt made of a function ``(request, **arguments)``, sync or async.

    Arguments are strings on the wire and are read as the annotations say. The function returns the text of one message
    of the user, a content block, a row, a :class:`Message`, or a list of those. ``complete`` says where the values of
    an argument come from where its annotation does not: see :class:`~mcp_django.completions.Completer`. ``scopes`` are
    what a token needs beside "mcp:read".

    Raises:
        ImproperlyConfigured: the signature has no JSON form, or ``complete`` does not go with it.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str = "",
        title: str = "",
        description: str = "",
        permissions: Collection[str] = (),
        permission: Callable[[MCPRequest], bool] | None = None,
        scopes: Iterable[str] = (),
        complete: Mapping[str, Hook | str] | None = None,
    ) -> None:
        self.function = ProjectFunction(
            function,
            name=name,
            description=description,
            permissions=permissions,
            permission=permission,
            untyped=str,
        )
        self.scopes = frozenset({READ, *scopes})
        self.completer = Completer(self.function, complete)
        self.name = self.function.name
        self.title = title or self.name.replace("_", " ").strip().capitalize()
        self.description = self.function.description
        self.is_async = self.function.is_async

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether the caller may know of the prompt and use it."""
        return self.function.has_permission(request)

    def definition(self) -> dict[str, Any]:
        """Return the ``Prompt`` object of ``prompts/list``, without optional keys that are empty."""
        wire: dict[str, Any] = {"name": self.name, "title": self.title}
        if self.description:
            wire["description"] = self.description
        if arguments := [self._argument(name) for name in self.function.arguments.parameters]:
            wire["arguments"] = arguments
        return wire

    def _argument(self, name: str) -> dict[str, Any]:
        parameter = self.function.arguments.parameters[name]
        wire: dict[str, Any] = {"name": name, "required": parameter.required}
        schema = parameter.schema()
        texts = [schema.get("description", "")]
        if "enum" in schema:
            texts.append(f"One of: {', '.join(str(value) for value in schema['enum'] if value is not None)}.")
        if text := " ".join(filter(None, texts)):
            wire["description"] = text
        return wire

    def get(self, request: MCPRequest, arguments: Mapping[str, str]) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        """Return the ``GetPromptResult``, or an awaitable of it for an async function.

        Raises:
            InvalidParams: an argument is wrong, missing or unknown, or the function refused.
        """
        parameters = self.function.arguments.parameters
        # Clients ask people in a form, and send what was left blank as an empty text.
        given = {
            name: value
            for name, value in arguments.items()
            if value != "" or name not in parameters or parameters[name].required
        }
        if self.is_async:
            return self._get_async(request, given)
        try:
            result = self.function.call(request, given, lambda value: self.to_wire(request, value))
        except ToolError as error:
            raise InvalidParams(error.message) from error
        assert isinstance(result, dict)
        return result

    async def _get_async(self, request: MCPRequest, arguments: Mapping[str, str]) -> dict[str, Any]:
        try:
            result = self.function.call(request, arguments, lambda value: self.to_wire(request, value))
            assert isinstance(result, Awaitable)
            return await result
        except ToolError as error:
            raise InvalidParams(error.message) from error

    def to_wire(self, request: MCPRequest, value: Any) -> dict[str, Any]:
        """Return the ``GetPromptResult`` for what the function returned.

        Raises:
            TypeError: it returned something that is no message.
            NotFound: it returned a row that is not there for the caller.
        """
        single = isinstance(value, (str, Message, Model, *_BLOCKS))
        items: Iterable[Any] = [value] if single else value
        wire: dict[str, Any] = {"description": self.description} if self.description else {}
        wire["messages"] = [self._message(item).to_wire(request) for item in items]
        return wire

    def _message(self, item: Any) -> Message:
        if isinstance(item, Message):
            return item
        if not isinstance(item, (str, Model, *_BLOCKS)):
            raise TypeError(f"The prompt {self.name} returned {type(item).__name__}, which is no message")
        return Message("user", item)
