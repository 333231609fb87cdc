"""Return types of functions as output schemas.

Clients validate results, and fail the call if one is invalid. So a schema only promises what ``to_jsonable`` ensures:
no formats, no enumerations, no lengths, and null wherever a value may be absent.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, Literal, Union, get_args, get_origin
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from django.db import models

from .annotations import MAPPINGS, unwrap
from .docstrings import Docstring
from .signatures import Signature
from .value_types import FREE_OBJECT, NULL, any_of

# Name of the member that holds a result that is not an object.
RESULT: Final = "result"

# Integers beyond 53 bits are sent as text.
_JSON_TYPES: Final[Mapping[Any, tuple[str, ...]]] = {
    bool: ("boolean",),
    int: ("integer", "string"),
    float: ("number",),
    **dict.fromkeys((str, bytes, Decimal, date, datetime, time, timedelta, UUID), ("string",)),
}
_ITERABLES: Final = (list, tuple, set, frozenset, Sequence, Set, Collection, Iterable, Iterator, models.QuerySet)


class ReturnType:
    """The type annotation of a function's result; ``annotation`` is None if it says nothing."""

    def __init__(self, annotation: Any) -> None:
        bare = unwrap(annotation).annotation
        self.annotation = None if bare is type(None) else bare

    @classmethod
    def of(cls, function: Callable[..., Any]) -> ReturnType:
        """Read the annotation of a function: of a generator, that of its return value.

        An annotation that cannot be resolved says nothing.
        """
        signature = Signature(function)
        if signature.return_annotation is signature.empty:
            return cls(None)
        try:
            annotation = signature.resolve(signature.return_annotation)
        except ImproperlyConfigured:
            return cls(None)
        if get_origin(annotation) is Generator:
            annotation = next(iter(get_args(annotation)[2:]), None)
        return cls(annotation)

    @property
    def is_wrapped(self) -> bool:
        """Whether values of this type are not JSON objects, and are wrapped in one as its ``result``."""
        return _shape(self.annotation, ()).get("type") != "object"

    @property
    def schema(self) -> dict[str, Any] | None:
        """The output schema, None for an annotation that says nothing.

        A dataclass, ``TypedDict`` or dict is an object; anything else becomes the member ``result`` of an object.
        """
        shape = _shape(self.annotation, ())
        if not shape or not self.is_wrapped:
            return shape or None
        return {"type": "object", "properties": {RESULT: any_of(shape, NULL)}, "required": [RESULT]}

    def wrap(self, value: Any) -> dict[str, Any]:
        """Return an object that holds a JSON value as its ``result``."""
        return {RESULT: value}

    def mentions(self, kinds: Collection[Any]) -> bool:
        """Return whether the annotation is one of these classes, or has one of them as an argument at any depth."""
        return _mentions(self.annotation, kinds)


def _mentions(annotation: Any, kinds: Collection[Any]) -> bool:
    annotation = unwrap(annotation).annotation
    return annotation in kinds or any(_mentions(part, kinds) for part in get_args(annotation))


def _member(annotation: Any, stack: tuple[Any, ...], text: str = "") -> dict[str, Any]:
    shape = any_of(_shape(annotation, stack), NULL)
    text = unwrap(annotation).description or text
    return {**shape, "description": text} if text else shape


def _shape(annotation: Any, stack: tuple[Any, ...]) -> dict[str, Any]:
    """Return the JSON Schema for the values of a type annotation; an empty one where nothing is known."""
    annotation = unwrap(annotation).annotation
    origin = get_origin(annotation) or annotation
    arguments = get_args(annotation)
    if origin in (Union, types.UnionType):
        members = [member for member in arguments if member is not type(None)]
        if len(members) == 1:
            return any_of(_shape(members[0], stack), NULL)
        return {}
    if origin is Literal:
        return _of_values(arguments)
    if not isinstance(origin, type) or origin in stack:
        return {}
    if origin in _ITERABLES:
        same = len(arguments) == 1 or arguments[1:] == (Ellipsis,)
        return {"type": "array", "items": _member(arguments[0], stack) if same else {}}
    if origin in MAPPINGS:
        values = _member(arguments[1], stack) if len(arguments) == 2 else {}
        if values:
            return {"type": "object", "additionalProperties": values}
        return dict(FREE_OBJECT)
    if origin in _JSON_TYPES:
        return any_of(*({"type": kind} for kind in _JSON_TYPES[origin]))
    if issubclass(origin, enum.Enum):
        return _of_values([member.value for member in origin])
    if issubclass(origin, models.Model):
        return {"type": "object", "properties": {"pk": {}, "label": {"type": "string"}}, "required": ["pk", "label"]}
    if dataclasses.is_dataclass(origin):
        required = [field.name for field in dataclasses.fields(origin)]
    elif typing.is_typeddict(origin):
        required = sorted(origin.__required_keys__)  # type: ignore[attr-defined]
    else:
        return {}
    hints = typing.get_type_hints(origin, include_extras=True)
    texts = Docstring.parse(origin.__doc__).parameters
    names = required if dataclasses.is_dataclass(origin) else list(hints)
    properties = {name: _member(hints[name], (*stack, origin), texts.get(name, "")) for name in names}
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _of_values(values: Iterable[Any]) -> dict[str, Any]:
    shapes = [_shape(type(value), ()) for value in values if value is not None]
    if shapes and all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    return {}
