"""Return annotations to output schemas.

Clients validate results and fail the call when one does not fit, so a schema promises only what ``to_jsonable`` makes
sure of: no formats, no enumerations, no lengths, and null wherever a value may be absent.
"""

import dataclasses
import enum
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, Literal, Union, get_args, get_origin
from uuid import UUID

from django.db import models

from .annotations import unwrap
from .docstrings import parse_docstring
from .types import FREE_OBJECT, NULL, any_of

# The member that holds a result which is no object itself.
RESULT: Final = "result"

# Integers beyond 53 bits are sent as text.
_SCALARS: Final[Mapping[Any, tuple[str, ...]]] = {
    bool: ("boolean",),
    int: ("integer", "string"),
    float: ("number",),
    **dict.fromkeys((str, bytes, Decimal, date, datetime, time, timedelta, UUID), ("string",)),
}
_ARRAYS: Final = (list, tuple, set, frozenset, Sequence, Set, Collection, Iterable, Iterator, models.QuerySet)
_MAPPINGS: Final = (dict, Mapping, MutableMapping)


def output_schema(annotation: Any) -> dict[str, Any] | None:
    """Return the schema of the structured result that a return annotation announces, None when it announces none.

    A dataclass, ``TypedDict`` or dict is an object; anything else stands in the member ``result`` of one.
    """
    shape = _shape(annotation, ())
    if not shape or not is_wrapped(annotation):
        return shape or None
    return {"type": "object", "properties": {RESULT: _nullable(shape)}, "required": [RESULT]}


def is_wrapped(annotation: Any) -> bool:
    """Return whether the value stands in the member ``result`` of the structured result."""
    return _shape(annotation, ()).get("type") != "object"


def _nullable(shape: dict[str, Any]) -> dict[str, Any]:
    return any_of(shape, NULL)


def _member(annotation: Any, stack: tuple[Any, ...], text: str = "") -> dict[str, Any]:
    """Return the schema of a value within another: one that may always be null."""
    shape = _nullable(_shape(annotation, stack))
    text = unwrap(annotation).description or text
    return {**shape, "description": text} if text else shape


def _shape(annotation: Any, stack: tuple[Any, ...]) -> dict[str, Any]:
    """Return the schema of a value; an empty one, which admits everything, where nothing is known of it."""
    annotation = unwrap(annotation).annotation
    origin, arguments = get_origin(annotation) or annotation, get_args(annotation)
    if origin in (Union, types.UnionType):
        members = [member for member in arguments if member is not type(None)]
        return _nullable(_shape(members[0], stack)) if len(members) == 1 else {}
    if origin is Literal:
        return _of_values(arguments)
    if not isinstance(origin, type) or origin in stack:
        return {}
    if origin in _ARRAYS:
        same = len(arguments) == 1 or arguments[1:] == (Ellipsis,)
        return {"type": "array", "items": _member(arguments[0], stack) if same else {}}
    if origin in _MAPPINGS:
        values = _member(arguments[1], stack) if len(arguments) == 2 else {}
        return {"type": "object", "additionalProperties": values} if values else dict(FREE_OBJECT)
    if origin in _SCALARS:
        return any_of(*({"type": kind} for kind in _SCALARS[origin]))
    return _of_class(origin, (*stack, origin))


def _of_values(values: Iterable[Any]) -> dict[str, Any]:
    shapes = [_shape(type(value), ()) for value in values if value is not None]
    return shapes[0] if shapes and all(shape == shapes[0] for shape in shapes) else {}


def _of_class(cls: type, stack: tuple[Any, ...]) -> dict[str, Any]:
    if issubclass(cls, enum.Enum):
        return _of_values([member.value for member in cls])
    if issubclass(cls, models.Model):
        return {"type": "object", "properties": {"pk": {}, "label": {"type": "string"}}, "required": ["pk", "label"]}
    if dataclasses.is_dataclass(cls):
        required = [field.name for field in dataclasses.fields(cls)]
    elif typing.is_typeddict(cls):
        required = sorted(cls.__required_keys__)  # type: ignore[attr-defined]
    else:
        return {}
    hints = typing.get_type_hints(cls, include_extras=True)
    texts = parse_docstring(cls.__doc__).parameters
    names = required if dataclasses.is_dataclass(cls) else list(hints)
    properties = {name: _member(hints[name], stack, texts.get(name, "")) for name in names}
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}
