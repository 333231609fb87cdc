"""Functions that a project declares: checked when they are declared, loaded when they are first used.

Loading a function converts its signature to JSON Schema. That imports modules that only processes serving calls need;
migrations, shells and background workers declare the same functions, but do not load them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, TypeVar, cast

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

T = TypeVar("T")

REQUEST: Final = ("request",)
# Some clients cut tool names, with the server's name, at 60 to 64 characters: a system check warns of more than 40.
TOOL_NAME: Final = re.compile(r"[a-z0-9_]{1,64}")
ANY: Final = ("name", "title", "description", "permissions", "permission", "scopes")
# The options of each kind of declaration, listed here because the class that takes them is not loaded yet.
OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "tool": (
        *(*ANY, "read_only", "destructive", "idempotent", "open_world"),
        *("input_schema", "structured", "asks", "confirm", "approval", "dry_run", "task", "meta"),
    ),
    "prompt": (*ANY, "complete"),
    "resource": (*ANY, "mime_type", "size", "complete", "ttl_ms", "public"),
}


# Dotted names of the classes that load declared functions, because few processes need these classes.
MADE_BY: Final = {
    "tool": "mcp_django.tools.function_tools.FunctionTool",
    "prompt": "mcp_django.resources.prompts.Prompt",
    "resource": "mcp_django.resources.function_resources.FunctionResource",
}


def look(kind: str, function: Callable[..., Any], options: Mapping[str, Any]) -> str:
    """Check a function declared as a tool, prompt or resource, and return its name."""
    if not callable(function):
        raise TypeError(f"{kind}() takes a function, not {function!r}.")
    for name in options:
        if name not in OPTIONS[kind]:
            from ..problems import nearest  # only where something is wrong

            hint = nearest(name, OPTIONS[kind])
            raise TypeError(f"{kind}() got an unexpected keyword argument {name!r}.{hint}")
    if not callable(options.get("permission") or function):
        raise TypeError("permission is a function of the request; names of Django's permissions go to permissions.")
    found = look_at(
        function,
        name=options.get("name", ""),
        permissions=options.get("permissions", ()),
        # People type the arguments of prompts and resources, so parameters without annotation are text.
        untyped=kind != "tool",
        takes_any=options.get("input_schema") is not None,
    )
    if kind == "tool":
        check_tool_name(found)
        is_async = inspect.iscoroutinefunction(function)
        if options.get("dry_run") and is_async:
            raise ImproperlyConfigured(f"{found}: an async function cannot be tried (dry_run). Write it without async.")
        if getattr(options.get("task"), "atomic", False) and is_async:
            raise ImproperlyConfigured(f"{found}: an async function is not atomic. Write it without async.")
    return found


# Checks that need not evaluate annotations


def look_at(
    function: Callable[..., Any],
    *,
    name: str = "",
    permissions: Collection[str] = (),
    untyped: bool = False,
    takes_any: bool = False,
) -> str:
    """Check a declared function ``(request, **arguments)``, return its name; ``takes_any`` if it has its own schema."""
    from ..schema.signatures import Signature  # only for projects that declare functions

    name = name or function.__name__
    signature = Signature(function)
    first = next(iter(signature.parameters), None)
    if first is None or first.name not in REQUEST or first.kind is first.KEYWORD_ONLY:
        raise ImproperlyConfigured(f"{name} must take the request as its first parameter, named request")
    if not takes_any:
        try:
            signature.given_by_name(REQUEST, untyped=untyped)
        except ImproperlyConfigured as error:
            raise ImproperlyConfigured(f"{getattr(function, '__qualname__', function)}: {error}") from None
    if isinstance(permissions, str) or not all("." in item for item in permissions):
        raise ImproperlyConfigured(f'{name}: permissions must be a list such as ["shop.view_order"]')
    return name


def check_tool_name(name: str) -> None:
    """Check the name of a declared tool function: raise ``ImproperlyConfigured`` unless all clients can use it."""
    if not TOOL_NAME.fullmatch(name):
        raise ImproperlyConfigured(f"{name!r} cannot name a tool: at most 64 of the characters a-z, 0-9 and _")


# Functions that are not loaded yet


class Unread:
    """A declared function that is not loaded yet; ``made_by`` is the dotted path of the class to load it with."""

    @classmethod
    def of_kind(cls, kind: str, function: Callable[..., Any], options: Mapping[str, Any], *before: Any) -> Unread:
        """Check a function declared as a tool, prompt or resource."""
        name = look(kind, function, options)
        return cls(MADE_BY[kind], function, options, *before, name=name)

    def __init__(
        self, made_by: str, function: Callable[..., Any], options: Mapping[str, Any], *before: Any, name: str = ""
    ) -> None:
        self.name = name
        self.made_by = made_by
        self.function = function
        self.options = options
        self.before = before

    def read(self) -> Any:
        """Load the declared function; an error names the file and line of the function."""
        try:
            return import_string(self.made_by)(*self.before, self.function, **self.options)
        except Exception as error:
            name = getattr(self.function, "__qualname__", self.function)
            code = getattr(inspect.unwrap(self.function), "__code__", None)
            place = f"{code.co_filename}, line {code.co_firstlineno}" if code is not None else repr(self.function)
            text = str(error) if isinstance(error, ImproperlyConfigured) else f"{name}: {error}"
            raise ImproperlyConfigured(f"{text} ({place})") from error


class Declared(Mapping[str, T]):
    """Declared functions by name; each is loaded when it is first used."""

    def __init__(self, *parts: Mapping[str, Any]) -> None:
        self._items: dict[str, Any] = {}
        for part in parts:
            self._items |= part._items if isinstance(part, Declared) else part

    def __getitem__(self, name: str) -> T:
        found = self._items[name]
        if isinstance(found, Unread):
            found = self._items[name] = found.read()
        return cast(T, found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def without(self, name: str) -> Declared[T]:
        """Return all declared functions but one."""
        return Declared({key: item for key, item in self._items.items() if key != name})

    def faults(self) -> list[str]:
        """Load all declared functions, and return the errors of those that cannot be loaded."""
        found = []
        for name in self:
            try:
                self[name]
            except ImproperlyConfigured as error:
                found.append(str(error))
        return found
