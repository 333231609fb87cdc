"""What the project's middleware sets and keeps, read from its source: for system checks and log messages only.

Nothing that a client is offered depends on it. Source that cannot be read says nothing.
"""

import ast
import inspect
import linecache
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, Final

from asgiref.local import Local
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.utils.module_loading import import_string

from ..conf import settings

# Parts of names that mean the caller, and names with such a part that mean something else.
CALLER: Final = ("user", "actor", "request", "author", "current", "person", "owner")
OTHER: Final = {"process_request", "request_started", "request_finished", "request_id", "user_agent"}
# Packages whose code keeps no caller.
FOREIGN: Final = {"django", "mcp_django", "asgiref", *sys.stdlib_module_names}
STATE: Final = (threading.local, ContextVar, Local)
REQUEST = "request"
USER = "request.user"
# Methods of middleware whose first argument is the request, whatever its name.
HOOKS: Final = {"__call__", "__acall__", "process_request", "process_view", "process_response", "process_exception"}
NONE: Final[Mapping[Any, str]] = MappingProxyType({})
# How far functions that a class calls are followed.
MAX_DEPTH: Final = 4
# Attributes that every request of a call has.
OWN: Final = frozenset(
    {*dir(HttpRequest), *vars(HttpRequest()), "user", "auser", "session", "_messages", "csrf_processing_done", "mcp"}
)


@dataclass(slots=True)
class Traits:
    """What classes or functions do with the request: the attributes of it and its user (such as ``request.team`` and
    ``request.user.team``) that they set and read, and whether they keep the caller in a thread-local or a context
    variable."""

    sets: set[str] = field(default_factory=set)
    reads: set[str] = field(default_factory=set)
    keeps_caller: bool = False
    seen: set[Any] = field(default_factory=set, repr=False)


class _Reader(ast.NodeVisitor):
    """Reads one function into ``traits``. ``known`` gives the paths of its variables, such as ``request.user``."""

    def __init__(self, traits: Traits, function: Any, known: dict[str, str], depth: int) -> None:
        self.traits = traits
        self.known = known
        self.depth = depth
        self.names = _names_of(function)
        self.title = getattr(function, "__name__", "")

    # The request, as expressions name it

    def path(self, node: ast.AST) -> str:
        """Return ``request``, ``request.user`` or an attribute of them that an expression names, "" for none."""
        if isinstance(node, ast.Name):
            return self.known.get(node.id, "")
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "self" and node.attr == REQUEST:
                return REQUEST
            base = self.path(node.value)
            return f"{base}.{node.attr}" if base else ""
        return ""

    def note(self, path: str, found: set[str]) -> None:
        """Note the attribute of the request or its user that a path begins with, unless it is the user itself."""
        names = path.split(".")
        if names[:2] == ["request", "user"] and len(names) > 2:
            found.add(".".join(names[:3]))
        elif names[0] == REQUEST and len(names) > 1 and names[1] not in OWN:
            found.add(".".join(names[:2]))

    def value(self, node: ast.AST) -> Any:
        """Return the object of the project that an expression names, None if it is not known."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self.value(node.value)
            if owner is not None:
                return inspect.getattr_static(owner, node.attr, None)
            return None
        return None

    # What is set, kept and read

    def visit_Assign(self, node: ast.Assign) -> None:
        path = self.path(node.value)
        for target in node.targets:
            if path and isinstance(target, ast.Name):
                self.known[target.id] = path
            self._assigned(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assigned(node.target, node.value)
        self.generic_visit(node)

    def _assigned(self, target: ast.AST, value: ast.AST) -> None:
        # A dictionary of the module or class, with a key for each thread.
        if isinstance(target, ast.Subscript) and self._is_shared(target.value):
            self._kept(value)
        if not isinstance(target, ast.Attribute):
            return
        self.note(self.path(target), self.traits.sets)
        if isinstance(self.value(target.value), STATE):
            self._kept(value, target.attr)

    def _is_shared(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            return True
        return isinstance(self.value(node), dict)

    def _kept(self, value: ast.AST, *words: str) -> None:
        """Note that a value is kept in a thread-local or a context variable, under these names."""
        named = [*words, self.title]
        for inner in _outermost(value):
            path = self.path(inner)
            if path == REQUEST or path.startswith(USER):
                self.traits.keeps_caller = True
            elif not path:
                named.append(inner.attr if isinstance(inner, ast.Attribute) else getattr(inner, "id", ""))
        if any(_means_caller(word) for word in named):
            self.traits.keeps_caller = True

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load):
            self.note(self.path(node), self.traits.reads)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        words = [item.value for item in node.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        if name in ("setattr", "getattr", "hasattr") and len(node.args) > 1 and words:
            base = self.path(node.args[0])
            if base:
                self.note(f"{base}.{words[0]}", self.traits.sets if name == "setattr" else self.traits.reads)
            elif name == "setattr" and isinstance(self.value(node.args[0]), STATE):
                self._kept(node.args[-1], words[0])
        elif name == "setattr" and len(node.args) == 3 and isinstance(self.value(node.args[0]), STATE):
            self._kept(node.args[2], getattr(node.args[1], "id", ""))
        elif name == "set" and node.args and isinstance(node.func, ast.Attribute):
            variable = node.func.value
            if isinstance(self.value(variable), ContextVar):
                self._kept(node.args[0], getattr(variable, "id", ""))
        self._follow(node)
        self.generic_visit(node)

    def _follow(self, call: ast.Call) -> None:
        """Read a function or class of the project that is called, with what is passed to it."""
        called = self.value(call.func)
        if isinstance(called, (staticmethod, classmethod)):
            called = called.__func__
        if self.depth >= MAX_DEPTH or called is None or is_foreign(called):
            return
        if inspect.isclass(called):
            _read_class(called, self.traits, self.depth + 1)
        elif inspect.isfunction(called):
            passed = {index: self.path(item) for index, item in enumerate(call.args)}
            named = {item.arg: self.path(item.value) for item in call.keywords if item.arg}
            _read_function(inspect.unwrap(called), self.traits, self.depth + 1, passed, named)

    # Functions within functions

    def visit_FunctionDef(self, node: "Function") -> None:
        self.known |= _parameters(node)
        # The request is what is passed to get_response(), whatever its name.
        for inner in ast.walk(node):
            if isinstance(inner, ast.Call) and inner.args and isinstance(inner.args[0], ast.Name):
                function = inner.func.attr if isinstance(inner.func, ast.Attribute) else getattr(inner.func, "id", "")
                if function == "get_response":
                    self.known[inner.args[0].id] = REQUEST
        self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef


def _outermost(value: ast.AST) -> Iterator[ast.AST]:
    """Yield the names and attributes of an expression, of ``a.b.c`` only the whole."""
    if isinstance(value, (ast.Name, ast.Attribute)):
        yield value
        return
    for inner in ast.iter_child_nodes(value):
        yield from _outermost(inner)


def _means_caller(word: str) -> bool:
    lower = word.lower()
    return lower not in OTHER and any(part in lower for part in CALLER)


def _parameters(node: "Function") -> dict[str, str]:
    """Return the paths of a function's parameters that are the request or its user."""
    names = [item.arg for item in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    found = {name: path for name, path in ((REQUEST, REQUEST), ("user", USER)) if name in names}
    if node.name in HOOKS and len(names) > 1:
        found[names[1]] = REQUEST
    return found


def _names_of(function: Any) -> Mapping[str, Any]:
    """Return what the names in a function stand for: its module's, and those of the functions around it."""
    names = getattr(function, "__globals__", {})
    try:
        return {**names, **inspect.getclosurevars(function).nonlocals}
    except (TypeError, ValueError):  # a variable that is not set yet
        return names


def is_foreign(item: Any) -> bool:
    """Return whether a class or function belongs to Django, Python or this app."""
    return str(getattr(item, "__module__", "") or "").partition(".")[0] in FOREIGN


Function = ast.FunctionDef | ast.AsyncFunctionDef


@lru_cache(maxsize=16)
def _functions_of(file: str) -> Mapping[int, Function]:
    """Return the functions in a file of source by their first line, which may be that of a decorator."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return {}
    found = [node for node in ast.walk(tree) if isinstance(node, Function)]
    return {min(part.lineno for part in (node, *node.decorator_list)): node for node in found}


def _read_function(
    function: Any, traits: Traits, depth: int, passed: Mapping[int, str] = NONE, named: Mapping[str, str] = NONE
) -> None:
    """Read a function's source into ``traits``; ``passed`` and ``named`` are the paths of its arguments."""
    code = function.__code__
    node = _functions_of(code.co_filename).get(code.co_firstlineno)
    if node is None:
        return
    given = [item.arg for item in (*node.args.posonlyargs, *node.args.args)]
    known = {given[index]: path for index, path in passed.items() if path and index < len(given)}
    known |= {name: path for name, path in named.items() if path}
    # A function is read once for the same arguments, however often it is called.
    asked = (code, *sorted(known.items()))
    if asked not in traits.seen:
        traits.seen.add(asked)
        _Reader(traits, function, known, depth).visit(node)


def _read_class(item: type, traits: Traits, depth: int) -> None:
    """Read the methods of a class, and of its bases in the project, into ``traits``."""
    for owner in item.__mro__:
        # What is asked about is read wherever it is from: Django's own middleware sets attributes too.
        if is_foreign(owner) and (owner is not item or depth > 0):
            continue
        for value in vars(owner).values():
            function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            if inspect.isfunction(function):
                _read_function(inspect.unwrap(function), traits, depth)


@cache
def traits_of(item: Any) -> Traits:
    """Return what a class or function, and the functions of the project that it calls, do with the request."""
    traits = Traits()
    if inspect.isclass(item):
        _read_class(item, traits, 0)
    elif inspect.isfunction(item) and not is_foreign(item):
        _read_function(inspect.unwrap(item), traits, 0)
    return traits


def setters(path: str) -> list[str]:
    """Return the names of the ``MIDDLEWARE`` outside ``CALL_MIDDLEWARE`` that sets an attribute such as
    ``request.user.team``, if no other middleware does around calls."""
    return missing_attributes().get(path, [])


def missing_attributes() -> dict[str, list[str]]:
    """Return the attributes of requests and users that only ``MIDDLEWARE`` outside ``CALL_MIDDLEWARE`` sets, each with
    the names of that middleware."""
    around = {path for name in settings.CALL_MIDDLEWARE for path in traits_of_name(name).sets}
    found: dict[str, list[str]] = {}
    for name in django_settings.MIDDLEWARE:
        for path in traits_of_name(name).sets - around:
            if is_missing(path):
                found.setdefault(path, []).append(name)
    return found


def reads(item: type, paths: Collection[str]) -> set[str]:
    """Return those of the paths, such as ``request.user.team``, that a class of the project reads, or a function that
    it calls."""
    modules = [sys.modules.get(owner.__module__) for owner in item.__mro__ if not is_foreign(owner)]
    files = {getattr(module, "__file__", None) for module in modules}
    # To search is a thousandth of the work of parsing.
    text = "".join(line for file in files if file for line in linecache.getlines(file))
    likely = {path for path in paths if path.rpartition(".")[2] in text}
    return likely & traits_of(item).reads if likely else set()


def traits_of_name(name: str) -> Traits:
    """Return what the middleware of a dotted name does; nothing if it cannot be imported."""
    try:
        return traits_of(import_string(name))
    except (ImportError, ImproperlyConfigured):  # Django's own error says more
        return Traits()


def is_missing(path: str) -> bool:
    """Return whether requests of calls lack an attribute that code reads, because its user class has none."""
    names = path.split(".")
    if len(names) > 2:
        return not hasattr(get_user_model(), names[2])
    return True


def missing_attribute(error: BaseException) -> str:
    """Return what an error says of an attribute that middleware adds to requests or users, and how to add it to calls;
    "" if the error is about anything else."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, AttributeError):
        seen = seen.__cause__ or seen.__context__
    if seen is None or not seen.name:
        return ""
    if isinstance(seen.obj, HttpRequest):
        path = f"{REQUEST}.{seen.name}"
    elif isinstance(seen.obj, (get_user_model(), AnonymousUser)):
        path = f"{USER}.{seen.name}"
    else:
        return ""
    found = setters(path)
    if found:
        return f"it reads `{path}`, which only {found[0]} sets: add it to CALL_MIDDLEWARE"
    return f"it reads `{path}`, which calls do not have: add the middleware that sets it to CALL_MIDDLEWARE"
