"""Prompts: functions of a project as prompts (specification, server/prompts)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from django.db.models import Model

from ..exceptions import ToolError
from ..functions.project_function import ProjectFunction
from ..protocol.content import Audio, Content, EmbeddedResource, Image, ResourceLink, Text
from ..protocol.errors import InvalidParams
from ..schema.secrets import clean_text
from ..scopes import Scope

if TYPE_CHECKING:
    from ..context.request import MCPRequest
    from .completions import Hook

_BLOCKS = (Text, Image, Audio, EmbeddedResource, ResourceLink)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt; ``content`` is text, a content block, or a row, which is embedded as a resource."""

    role: Literal["user", "assistant"]
    content: str | Content | Model

    def to_wire(self, request: MCPRequest) -> dict[str, Any]:
        """Return the ``PromptMessage`` for this caller."""
        content = self.content
        if isinstance(content, str):
            content = Text(clean_text(content))
        elif isinstance(content, Model):
            from .function_resources import embed

            content = embed(request, content)
        return {"role": self.role, "content": content.to_wire()}


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except ToolError as error:
        raise InvalidParams(error.message) from error


class Prompt(ProjectFunction):
    """A prompt made of a project's function ``(request, **arguments)``, sync or async.

    Arguments are strings on the wire and are converted by the annotations. The function returns the text of one user
    message, a content block, a row, a :class:`Message`, or a list of those. ``complete`` says where the values of an
    argument come from, if not from its annotation: see :class:`~mcp_django.resources.completions.Completer`.
    ``scopes`` are the scopes that a token needs in addition to "mcp:read".
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
        super().__init__(
            function, name=name, description=description, permissions=permissions, permission=permission, untyped=str
        )
        # Imported here, because a project that only imports Message does not need it.
        from .completions import Completer

        self.scopes = frozenset({Scope.READ, *scopes})
        self.completer = Completer(self, complete)
        self.title = title or self.name.replace("_", " ").strip().capitalize()

    def definition(self) -> dict[str, Any]:
        """Return the ``Prompt`` object of ``prompts/list``, without empty optional keys."""
        wire: dict[str, Any] = {"name": self.name, "title": self.title}
        if self.description:
            wire["description"] = self.description
        arguments = []
        for argument, parameter in self.arguments.parameters.items():
            told: dict[str, Any] = {"name": argument, "required": parameter.required}
            schema = parameter.schema()
            texts = [schema.get("description", "")]
            if "enum" in schema:
                texts.append(f"One of: {', '.join(str(value) for value in schema['enum'] if value is not None)}.")
            if text := " ".join(filter(None, texts)):
                told["description"] = text
            arguments.append(told)
        if arguments:
            wire["arguments"] = arguments
        return wire

    def get(self, request: MCPRequest, arguments: Mapping[str, str]) -> dict[str, Any] | Awaitable[dict[str, Any]]:
        """Call the prompt function and return the ``GetPromptResult``, or an awaitable of it for an async function."""
        parameters = self.arguments.parameters
        # Clients show people a form, and send blank fields as empty strings.
        given = {
            name: value
            for name, value in arguments.items()
            if value != "" or name not in parameters or parameters[name].required
        }
        with _refusing():
            found: Any = self.call(request, given, lambda value: self.to_wire(request, value))
        return self._awaited(found) if self.is_async else found

    async def _awaited(self, found: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        with _refusing():
            return await found

    def to_wire(self, request: MCPRequest, value: Any) -> dict[str, Any]:
        """Return the ``GetPromptResult`` for what the function returned."""
        single = isinstance(value, (str, Message, Model, *_BLOCKS))
        items: Iterable[Any] = [value] if single else value
        wire: dict[str, Any] = {"description": self.description} if self.description else {}
        wire["messages"] = messages = []
        for item in items:
            if not isinstance(item, (str, Message, Model, *_BLOCKS)):
                raise TypeError(f"The prompt {self.name} returned {type(item).__name__}, which is not a message")
            message = item if isinstance(item, Message) else Message("user", item)
            messages.append(message.to_wire(request))
        return wire
