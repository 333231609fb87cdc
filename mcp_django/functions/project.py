"""A function of the project as the app sees it: its name and texts, its arguments, and who may call it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import sync_to_async
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied, ValidationError
from django.http import Http404

from ..exceptions import ToolError
from ..schema.containers import MISSING
from ..schema.docstrings import parse_docstring
from .arguments import ArgumentSchema, raw_schema, signature_schema
from .asking import answers_of, asked_parameters
from .declarations import REQUEST, look_at

if TYPE_CHECKING:
    from ..context.request import MCPRequest

T = TypeVar("T")


class ProjectFunction:
    """A function ``(request, **arguments)``, sync or async.

    ``permissions`` are Django's ("shop.view_order"), all of which the caller needs; ``permission`` is a function of the
    request that decides besides. ``untyped`` is the type of parameters without annotation, MISSING to refuse them.
    ``asked`` are the parameters that are no arguments, because the client's user or the client fills them in.

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
        self.arguments = self._read_arguments(input_schema, untyped)
        self.permissions = tuple(permissions)
        self.permission = permission

    def _read_arguments(self, input_schema: Mapping[str, Any] | None, untyped: Any) -> ArgumentSchema:
        self.asked = asked_parameters(self.function, REQUEST)
        skipped = (*REQUEST, *(item.name for item in self.asked))
        if input_schema is not None:
            return raw_schema(input_schema, self.function, skipped)
        return signature_schema(self.function, skipped, untyped=untyped)

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether the caller may know of it and call it."""
        if self.permissions and not request.user.has_perms(self.permissions):
            return False
        return self.permission is None or bool(self.permission(request))

    def call(self, request: MCPRequest, arguments: Mapping[str, Any], finish: Callable[[Any], T]) -> T | Awaitable[T]:
        """Call the function with a client's arguments and return what ``finish`` makes of its value.

        An async function gives an awaitable of that; what may query the database then runs in a thread.

        Raises:
            ToolError: the arguments are wrong, or the function refused in one of Django's ways.
            InputRequired: it has to ask first.
        """
        if self.is_async:
            return self._call_async(request, arguments, finish)
        with speaking_plainly():
            given = self.arguments.validate(arguments, request)
            return finish(self.function(request, **given, **self.answers(request, given)))

    def answers(self, request: MCPRequest, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the parameters that are asked for; ``arguments`` are the validated ones.

        Raises:
            InputRequired: some are not known yet.
            Declined: the user declined or dismissed a question.
        """
        return answers_of(self.asked, request, arguments) if self.asked else {}

    async def _call_async(self, request: MCPRequest, arguments: Mapping[str, Any], finish: Callable[[Any], T]) -> T:
        with speaking_plainly():
            if self.arguments.needs_database:
                given = await sync_to_async(self.arguments.validate)(arguments, request)
            else:
                given = self.arguments.validate(arguments, request)
            if self.asked:
                # A form may look for rows.
                given |= await sync_to_async(self.answers)(request, given)
            value = await self.function(request, **given)
            # The label of a row may take a query.
            return finish(value) if isinstance(value, str | None) else await sync_to_async(finish)(value)


@contextmanager
def speaking_plainly() -> Iterator[None]:
    """Turn Django's ways to refuse into text that a model can act on.

    Raises:
        ToolError: for a ``ValidationError``, ``PermissionDenied``, ``ObjectDoesNotExist`` or ``Http404``.
    """
    try:
        yield
    except ValidationError as error:
        raise ToolError(f"Invalid: {_validation_text(error)}") from error
    except PermissionDenied as error:
        raise ToolError(str(error) or "Permission denied.") from error
    except (ObjectDoesNotExist, Http404) as error:
        raise ToolError(str(error) or "Not found.") from error


def _validation_text(error: ValidationError) -> str:
    if hasattr(error, "error_dict"):
        named = error.message_dict.items()
        return "; ".join(f"{name}: {' '.join(messages)}" for name, messages in named)
    return "; ".join(error.messages)
