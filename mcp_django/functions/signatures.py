"""Parameters of a project's function, as far as they are known without evaluating its annotations.

It is looked at when the function is declared: nothing is loaded for it that only a call needs.
"""

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Collection
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured

REQUEST: Final = ("request",)
# Some clients cut names at 60 to 64 characters, with the name of the server: a check warns of more than 40.
TOOL_NAME: Final = re.compile(r"[a-z0-9_]{1,64}")


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature, with annotations unread where they name what only type checkers import."""
    options: dict[str, Any] = {}
    if sys.version_info >= (3, 14):
        options["annotation_format"] = importlib.import_module("annotationlib").Format.FORWARDREF
    return inspect.signature(function, **options)


def given_by_name(
    function: Callable[..., Any], skip: Collection[str], *, untyped: bool = False
) -> list[inspect.Parameter]:
    """Return the parameters but those in ``skip``; ``untyped`` admits those of which nothing says the type.

    Raises:
        ImproperlyConfigured: one of them cannot be given by name, or has no type.
    """
    found = [item for item in signature_of(function).parameters.values() if item.name not in skip]
    for item in found:
        if item.kind not in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY):
            raise ImproperlyConfigured(f"{item.name}: arguments are given by name, each with a parameter of its own")
        if not untyped and item.annotation is item.empty and type(item.default) not in (str, int, float, bool):
            text = f"{item.name} needs a type annotation, from which clients learn what it takes"
            raise ImproperlyConfigured(text)
    return found


def look_at(
    function: Callable[..., Any],
    *,
    name: str = "",
    permissions: Collection[str] = (),
    untyped: bool = False,
    takes_any: bool = False,
) -> str:
    """Return the name of a function ``(request, **arguments)``; ``takes_any`` says that its schema is written by hand.

    Raises:
        ImproperlyConfigured: it does not take the request, or one of its parameters cannot be given by name; or the
            permissions are none.
    """
    name = name or function.__name__
    first = next(iter(signature_of(function).parameters.values()), None)
    if first is None or first.name not in REQUEST or first.kind is first.KEYWORD_ONLY:
        raise ImproperlyConfigured(f"{name} must take the request as its first parameter, named request")
    if not takes_any:
        try:
            given_by_name(function, REQUEST, untyped=untyped)
        except ImproperlyConfigured as error:
            raise ImproperlyConfigured(f"{getattr(function, '__qualname__', function)}: {error}") from None
    if isinstance(permissions, str) or not all("." in item for item in permissions):
        raise ImproperlyConfigured(f'{name}: permissions are a list such as ["shop.view_order"]')
    return name


def check_tool_name(name: str) -> None:
    """Raise ``ImproperlyConfigured`` for a name that not every client can use."""
    if not TOOL_NAME.fullmatch(name):
        raise ImproperlyConfigured(f"{name!r} cannot name a tool: at most 64 of the characters a-z, 0-9 and _")
