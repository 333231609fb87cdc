"""Signatures of functions, read without evaluating their annotations. Every process of a project loads this module."""

from __future__ import annotations

import importlib
import inspect
import sys
import typing
from collections.abc import Callable, Collection
from typing import Any

from django.core.exceptions import ImproperlyConfigured


class Signature:
    """The signature of a function of the project.

    Its annotations may be text, or name what only type checkers import: :meth:`resolve` evaluates one of them.
    """

    # What an annotation or a default is that is not there.
    empty = inspect.Signature.empty

    def __init__(self, function: Callable[..., Any]) -> None:
        options: dict[str, Any] = {}
        if sys.version_info >= (3, 14):
            options["annotation_format"] = importlib.import_module("annotationlib").Format.FORWARDREF
        signature = inspect.signature(function, **options)
        self._function = function
        self.parameters = list(signature.parameters.values())
        self.return_annotation = signature.return_annotation

    def given_by_name(self, skip: Collection[str], *, untyped: bool = False) -> list[inspect.Parameter]:
        """Return all parameters but ``skip``; ``untyped`` admits those without a type.

        Raises:
            ImproperlyConfigured: a parameter cannot be given by name, or nothing says its type.
        """
        found = [item for item in self.parameters if item.name not in skip]
        for item in found:
            if item.kind not in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY):
                raise ImproperlyConfigured(
                    f"{item.name}: arguments are passed by name, so each needs its own parameter"
                )
            if not untyped and item.annotation is item.empty and type(item.default) not in (str, int, float, bool):
                text = f"{item.name} needs a type annotation, which tells clients what it takes"
                raise ImproperlyConfigured(text)
        return found

    def resolve(self, annotation: Any) -> Any:
        """Evaluate an annotation in the module of the function.

        Raises:
            ImproperlyConfigured: a name in it is unknown, such as one that is imported for type checkers only.
        """

        def holder() -> None: ...

        holder.__annotations__ = {"it": annotation}
        scope: dict[str, Any] = getattr(inspect.unwrap(self._function), "__globals__", {})
        try:
            return typing.get_type_hints(holder, scope, include_extras=True)["it"]
        except (NameError, TypeError, SyntaxError) as error:
            raise ImproperlyConfigured(f"the annotation {annotation!r} cannot be read: {error}") from None
