"""A project function: its arguments, who may call it, and its call.

A project's own tools, prompts and resources are such functions.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.http import Http404

from ..conf import settings
from ..context.person_consent import PersonNeeded
from ..exceptions import InputRequired, ToolError
from ..schema.arguments import ArgumentSchema
from ..schema.container_types import MISSING
from ..schema.docstrings import Docstring
from .asked_parameters import AskedParameters
from .declared_functions import REQUEST, check_tool_name, look_at

if TYPE_CHECKING:
    from ..context.request import MCPRequest

T = TypeVar("T")


class ProjectFunction:
    """A project function, ``(request, **arguments)``, with the schema of its signature; sync or async.

    ``permissions`` are Django permissions ("shop.view_order"), all of which the caller needs; ``permission`` is a
    function of the request that must agree too. ``untyped`` is the type of parameters without annotation,
    MISSING to refuse them. ``is_tool`` checks that all clients can use the name. ``asked`` are the parameters that the
    client's user or the client provides, not arguments.

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
        is_tool: bool = False,
    ) -> None:
        if is_tool:
            check_tool_name(name)
        self.function = function
        self.name = look_at(
            function,
            name=name,
            permissions=permissions,
            untyped=untyped is not MISSING,
            takes_any=input_schema is not None,
        )
        self.description = description or Docstring.parse(function.__doc__).description
        self.is_async = inspect.iscoroutinefunction(function)
        self.permissions = tuple(permissions)
        self.permission = permission
        self.asked = AskedParameters.of(function, REQUEST)
        # Asks the client's user to confirm a call with these arguments, None if a call needs no confirmation.
        self.confirm: Callable[[MCPRequest, Mapping[str, Any]], None] | None = None
        # Asks for the yes of another person in the same way, where a rule wants it.
        self.approve: Callable[[MCPRequest, Mapping[str, Any]], None] | None = None
        # Called where the work of a call begins: all has been asked, and nothing is done yet.
        self.begin: Callable[[MCPRequest], None] | None = None
        skipped = (*REQUEST, *self.asked.names)
        if input_schema is not None:
            self.arguments = ArgumentSchema.of_author(input_schema, function, skipped)
        else:
            self.arguments = ArgumentSchema.of_signature(function, skipped, untyped=untyped)

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether the caller may know of the project function and call it."""
        if self.permissions and not request.user.has_perms(self.permissions):
            return False
        return self.permission is None or bool(self.permission(request))

    def call(
        self,
        request: MCPRequest,
        arguments: Mapping[str, Any],
        finish: Callable[[Any], T],
        *,
        confirms: bool = True,
    ) -> T | Awaitable[T]:
        """Call the project function with arguments validated against its signature, and pass its value to ``finish``.

        For an async function, return an awaitable of that; parts that may query the database then run in a thread.
        Without ``confirms``, a call that is only tried is not confirmed, and never goes on as a task.

        Raises:
            ToolError: the arguments are wrong, or the function raised one of Django's exceptions to refuse.
            InputRequired: the function has to ask first.
        """
        if self.is_async:
            return self._call_async(request, arguments, finish)
        with speaking_plainly():
            given = self.arguments.validate(arguments, request)
            given |= self.checked_answers(request, given) if confirms else self.asked.answers(request, given)
            if confirms and self.begin is not None:
                self.begin(request)
            with request.mcp.record.in_own_code():
                value = self.function(request, **given)
            return finish(value)

    def checked_answers(self, request: MCPRequest, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answers as :meth:`answers` does, and check the call with and without them against the rules on
        approval."""
        approvals = request.mcp.approvals
        if approvals is None:
            return self.answers(request, arguments)
        approvals.check_arguments(arguments)
        was_needed = approvals.is_needed
        found = self.answers(request, arguments)
        if found and not was_needed:
            approvals.check_arguments({**arguments, **found})
            if approvals.is_needed:
                raise ToolError(f"{approvals.told} Nothing was changed. Call again with the answers as arguments.")
        return found

    def answers(self, request: MCPRequest, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answers that this project function needs for its call, besides its validated ``arguments``.

        The user confirms the call in the same round.
        """
        confirm = self.confirm
        if request.mcp.approvals is not None and request.mcp.approvals.is_needed:
            confirm = confirm or self.approve
        if confirm is None:
            if self.asked.items:
                return self.asked.answers(request, arguments)
            return {}
        found: dict[str, Any]
        try:
            found, _ = InputRequired.together(
                [partial(self.asked.answers, request, arguments), partial(confirm, request, arguments)]
            )
        except PersonNeeded:
            # A person confirms the call with all its answers.
            self.asked.answers(request, arguments)
            raise
        return found

    async def _call_async(self, request: MCPRequest, arguments: Mapping[str, Any], finish: Callable[[Any], T]) -> T:
        with speaking_plainly():
            if self.arguments.needs_database:
                given = await sync_to_async(self.arguments.validate)(arguments, request)
            else:
                given = self.arguments.validate(arguments, request)
            if self.asked.items or self.confirm is not None or request.mcp.approvals is not None:
                # A form may query the database.
                given |= await sync_to_async(self.checked_answers)(request, given)
            if self.begin is not None:
                self.begin(request)
            with request.mcp.record.in_own_code():
                value = await self.function(request, **given)
            # The label of a row may need a query, and a long text a file.
            if value is None or (isinstance(value, str) and len(value) <= settings.RESULT_CHARS):
                return finish(value)
            return await sync_to_async(finish)(value)


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
