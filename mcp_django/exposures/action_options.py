"""The options that a project declares for an action, and running its method."""

import dis
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any, TypeVar

from django.forms import BaseForm

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOptions:
    """What is declared of an action.

    ``permissions`` are names of ``has_*_permission``; a caller needs one of them, as in the admin, for every row that
    is picked. ``destructive``: True asks before it runs, False hints that it is harmless, None is not known.
    ``atomic`` runs it in one transaction. ``asks`` says that it uses ``request.mcp.ask()``.
    """

    permissions: tuple[str, ...] = ("change",)
    description: str = ""
    destructive: bool | None = True
    read_only: bool = False
    atomic: bool = True
    asks: bool = False


def runs_anywhere(method: F) -> F:
    """Return a method ``(self, request, ...)`` that, as a generator, runs to its end for a request without ``mcp``.

    The admin calls its actions and looks no further: a generator would do nothing there, and nobody would notice.
    """
    if not inspect.isgeneratorfunction(method):
        return method

    @functools.wraps(method)
    def run(self: Any, request: Any, *args: Any, **options: Any) -> Any:
        steps = method(self, request, *args, **options)
        return steps if hasattr(request, "mcp") else _result_of(steps)

    return run  # type: ignore[return-value]


def _result_of(steps: Any) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@functools.lru_cache(maxsize=512)
def page_form(function: Callable[..., Any]) -> type[BaseForm] | None:
    """Return the form class of the page with which an admin action asks, None where it cannot be known beforehand.

    It is what ``mcp_form`` of the function says, or the only form class that its code names. Nothing is run for it: the
    page itself may depend on the caller and on rows.
    """
    if hasattr(function, "mcp_form"):
        declared: type[BaseForm] | None = function.mcp_form
        return declared
    plain = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(plain, "__code__", None)
    if code is None:
        return None
    scope = {**plain.__globals__, **inspect.getclosurevars(plain).nonlocals}
    found = {item for names in _names(code) for item in _named(scope, names) if _is_page_form(item)}
    return found.pop() if len(found) == 1 else None


@functools.lru_cache(maxsize=512)
def returns_nothing(function: Callable[..., Any]) -> bool:
    """Return whether the code of an admin action returns None alone, and so never a page."""
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    before = None
    for step in dis.get_instructions(code) if code is not None else ():
        if step.opname in ("RETURN_VALUE", "RETURN_CONST"):
            source = step if step.opname == "RETURN_CONST" else before
            if step.is_jump_target or source is None or "CONST" not in source.opname or source.argval is not None:
                return False
        before = step
    return code is not None


def _names(code: CodeType) -> Iterator[tuple[str, ...]]:
    """Yield the names that the code reads, those of functions in it too."""
    yield (*code.co_names, *code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _named(scope: dict[str, Any], names: tuple[str, ...]) -> Iterator[Any]:
    """Yield what the names stand for: themselves, or in one of the modules among them."""
    for value in (scope[name] for name in names if name in scope):
        yield value
        if isinstance(value, ModuleType):
            yield from (value.__dict__[name] for name in names if name in value.__dict__)


def _is_page_form(item: Any) -> bool:
    from django.contrib.admin.helpers import ActionForm

    if not isinstance(item, type) or not issubclass(item, BaseForm) or issubclass(item, ActionForm):
        return False
    return bool(getattr(item, "base_fields", None))
