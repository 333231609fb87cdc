"""Type annotations of a function's parameters, as types.

A type without a JSON form raises ``ImproperlyConfigured``. Descriptions come from annotations and from docstrings.
"""

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from django.core.exceptions import ImproperlyConfigured
from django.db import models

from .container_types import MISSING, AnyOf, Array, Dictionary, Nullable, Object, Parameter, Row, Tuple
from .docstrings import Docstring
from .json_values import to_jsonable
from .value_types import (
    LIMITS,
    PARSED,
    Anything,
    Boolean,
    Choice,
    DecimalNumber,
    Integer,
    Number,
    String,
    Type,
)


@dataclass(frozen=True, slots=True)
class Param:
    """Annotation that describes a parameter to the AI model: ``year: Annotated[int, Param("Calendar year",
    minimum=2000)]``.

    The limits apply in the schema, in its words and in validation: ``minimum`` and ``maximum`` for numbers, lengths in
    characters for strings, numbers of items for arrays. A bare string in ``Annotated`` is a description too.
    """

    description: str = ""
    _: dataclasses.KW_ONLY
    minimum: Any = None
    maximum: Any = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None


@dataclass(frozen=True, slots=True)
class Header:
    """Annotation of a parameter that clients repeat in the header ``Mcp-Param-{name}`` (2026-07-28, Custom Headers).

    For strings, integers and booleans that are never null.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Hints:
    """A type annotation unwrapped, with the description, limits and header found in its ``Annotated``."""

    annotation: Any
    description: str = ""
    limits: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    header: str | None = None


def unwrap(annotation: Any) -> Hints:
    """Unwrap a type annotation from ``Annotated``, type aliases and ``NewType``."""
    description = ""
    header = None
    limits: dict[str, Any] = {}
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation, *extras = get_args(annotation)
            # Python flattens nested ``Annotated``, with the outermost extras last.
            for extra in reversed(extras):
                if isinstance(extra, Param):
                    given = {name: getattr(extra, name) for name in LIMITS if getattr(extra, name) is not None}
                    limits = {**given, **limits}
                    description = description or extra.description
                elif isinstance(extra, Header):
                    header = header or extra.name
                elif isinstance(extra, str):
                    description = description or extra
        elif origin in QUALIFIERS:
            (annotation,) = get_args(annotation)
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return Hints(annotation, description, limits, header)


QUALIFIERS: Final = (typing.Required, typing.NotRequired, typing.Final, getattr(typing, "ReadOnly", typing.Final))

_SCALARS: Final[Mapping[Any, Type]] = {
    Any: Anything(),
    object: Anything(),
    str: String(),
    int: Integer(),
    float: Number(),
    bool: Boolean(),
    Decimal: DecimalNumber(),
    **PARSED,
}
_ARRAYS: Final[Mapping[Any, Callable[[list[Any]], Any]]] = {
    list: list,
    Sequence: list,
    Iterable: list,
    Collection: list,
    set: set,
    Set: set,
    frozenset: frozenset,
    tuple: tuple,
}
MAPPINGS: Final = (dict, Mapping, MutableMapping)


def compile_annotation(annotation: Any, stack: tuple[type, ...] = ()) -> Type:
    """Compile an annotation to the type that converts its values; ``stack`` holds the classes around the annotation."""
    hints = unwrap(annotation)
    return _compile(hints.annotation, stack).limited(hints.limits)


def _compile(annotation: Any, stack: tuple[type, ...]) -> Type:
    origin = get_origin(annotation) or annotation
    arguments = get_args(annotation)
    if origin in (Union, types.UnionType):
        kinds = [compile_annotation(member, stack) for member in arguments if member is not type(None)]
        if not kinds:
            raise ImproperlyConfigured("a parameter that is always null is useless")
        found = kinds[0] if len(kinds) == 1 else AnyOf(tuple(kinds))
        return Nullable(found) if type(None) in arguments else found
    if origin is Literal:
        return _compile_choices([(value, value) for value in arguments if value is not None], None in arguments)
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        return Tuple(tuple(compile_annotation(item, stack) for item in arguments))
    if _hashable(origin) and origin in _ARRAYS:
        item = compile_annotation(arguments[0], stack) if arguments else Anything()
        return Array(item, _ARRAYS[origin])
    if origin in MAPPINGS:
        if arguments and unwrap(arguments[0]).annotation not in (str, Any):
            raise ImproperlyConfigured("the keys of a JSON object must be strings")
        return Dictionary(compile_annotation(arguments[1], stack) if arguments else Anything())
    if _hashable(annotation) and annotation in _SCALARS:
        return _SCALARS[annotation]
    if not isinstance(annotation, type):
        raise ImproperlyConfigured(f"{annotation!r} has no JSON form")
    if issubclass(annotation, enum.Enum):
        members = [member for member in annotation if member.value is not None]
        labelled = members if issubclass(annotation, models.Choices) else []
        labels = tuple(str(getattr(member, "label", "")) for member in labelled)
        return _compile_choices([(member.value, member) for member in members], labels=labels)
    if issubclass(annotation, models.Model):
        if not hasattr(annotation, "_meta") or annotation._meta.abstract:
            raise ImproperlyConfigured(f"{annotation.__name__} is abstract and has no rows")
        return Row(annotation)
    if annotation in stack:
        raise ImproperlyConfigured(f"{annotation.__name__} contains itself, which a schema without $ref cannot say")
    if dataclasses.is_dataclass(annotation) or typing.is_typeddict(annotation):
        return Object(members_of(annotation, (*stack, annotation)), annotation)
    raise ImproperlyConfigured(f"{annotation.__name__} has no JSON form")


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _compile_choices(options: list[tuple[Any, Any]], nullable: bool = False, labels: tuple[str, ...] = ()) -> Type:
    if not options or not all(isinstance(value, (str, int, float, bool)) for value, _ in options):
        raise ImproperlyConfigured("choices must be strings, numbers or booleans")
    choice = Choice(tuple(options), labels)
    return Nullable(choice) if nullable else choice


def members_of(cls: type, stack: tuple[type, ...]) -> tuple[Parameter, ...]:
    """Read the annotations of a dataclass or ``TypedDict``: return its members as parameters."""
    hints = typing.get_type_hints(cls, include_extras=True)
    texts = Docstring.parse(cls.__doc__).parameters
    if not dataclasses.is_dataclass(cls):
        required: frozenset[str] = getattr(cls, "__required_keys__", frozenset())
        return tuple(
            parameter(name, hint, texts.get(name, ""), required=name in required, stack=stack)
            for name, hint in hints.items()
        )
    return tuple(
        parameter(
            field.name,
            hints[field.name],
            texts.get(field.name, ""),
            required=field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
            default=MISSING if field.default is dataclasses.MISSING else field.default,
            stack=stack,
        )
        for field in dataclasses.fields(cls)
        if field.init
    )


def parameter(
    name: str,
    annotation: Any,
    description: str = "",
    *,
    required: bool = True,
    default: Any = MISSING,
    stack: tuple[type, ...] = (),
) -> Parameter:
    """Read a type annotation, with a default, as a parameter; the annotation's description goes first."""
    hints = unwrap(annotation)
    try:
        kind = _compile(hints.annotation, stack).limited(hints.limits)
    except ImproperlyConfigured as error:
        raise ImproperlyConfigured(f"{name}: {error}") from None
    if hints.header is not None and (stack or kind.json_types not in (("string",), ("integer",), ("boolean",))):
        raise ImproperlyConfigured(f"{name}: only a string, integer or boolean can be repeated in a header")
    shown = MISSING if default is MISSING or isinstance(default, models.Model) else to_jsonable(default)
    keywords = {"x-mcp-header": hints.header} if hints.header is not None else None
    return Parameter(name, kind, required, shown, hints.description or description, keywords)
