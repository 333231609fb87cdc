"""Type annotations of a function: those of its parameters as types, that of its result as an output schema.

A type without a JSON form raises ``ImproperlyConfigured``. Descriptions come from annotations and from docstrings.
"""

import dataclasses
import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from django.db import models

from .container_types import MISSING, AnyOf, Array, Dictionary, Nullable, Object, Parameter, Row, Tuple
from .json_values import to_jsonable
from .value_types import (
    FREE_OBJECT,
    LIMITS,
    NULL,
    PARSED,
    Anything,
    Boolean,
    Choice,
    DecimalNumber,
    Integer,
    Number,
    String,
    Type,
    any_of,
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
_MAPPINGS: Final = (dict, Mapping, MutableMapping)


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
    if origin in _MAPPINGS:
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
    texts = parse_docstring(cls.__doc__).parameters
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


def resolve_hint(annotation: Any, scope: dict[str, Any]) -> Any:
    """Resolve the names in a type annotation in ``scope``, a module's globals.

    An unknown name, such as one that is imported for type checkers only, raises ``ImproperlyConfigured``.
    """

    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    try:
        return typing.get_type_hints(holder, scope, include_extras=True)["it"]
    except (NameError, TypeError, SyntaxError) as error:
        raise ImproperlyConfigured(f"the annotation {annotation!r} cannot be read: {error}") from None


# Results
#
# Clients validate results, and fail the call if one is invalid. So a schema only promises what ``to_jsonable`` ensures:
# no formats, no enumerations, no lengths, and null wherever a value may be absent.

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


def output_schema(annotation: Any) -> dict[str, Any] | None:
    """Return the output schema for a return annotation, None for an annotation that says nothing.

    A dataclass, ``TypedDict`` or dict is an object; anything else becomes the member ``result`` of an object.
    """
    shape = _shape(annotation, ())
    if not shape or not is_wrapped(annotation):
        return shape or None
    return {"type": "object", "properties": {RESULT: any_of(shape, NULL)}, "required": [RESULT]}


def is_wrapped(annotation: Any) -> bool:
    """Return whether values of this type annotation are not JSON objects, and are wrapped in one as its ``result``."""
    return _shape(annotation, ()).get("type") != "object"


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
    if origin in _MAPPINGS:
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
    texts = parse_docstring(origin.__doc__).parameters
    names = required if dataclasses.is_dataclass(origin) else list(hints)
    properties = {name: _member(hints[name], (*stack, origin), texts.get(name, "")) for name in names}
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _of_values(values: Iterable[Any]) -> dict[str, Any]:
    shapes = [_shape(type(value), ()) for value in values if value is not None]
    if shapes and all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    return {}


_SECTION: Final = re.compile(r"(\w[\w ]{0,30}):")
_SPHINX: Final = re.compile(r":(\w+)(?:\s+([^:]{0,200}))?:\s*(.*)")
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*(?::|--)\s+(.*)")
PARAMETERS: Final = frozenset({"args", "arguments", "parameters", "params", "keyword args", "attributes"})
SECTIONS: Final = PARAMETERS | frozenset(
    {"returns", "return", "raises", "yields", "examples", "example", "note", "notes"}
)
# The end of a sentence, but not the end of an abbreviation such as "e.g.".
_SENTENCE: Final = re.compile(r"(?<![.\s]\w)[.!?](?=\s+[A-Z\"'`(]|\s*$)")
MAX_SENTENCE: Final = 200
SPHINX_PARAMETERS: Final = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})


@dataclass(slots=True)
class Docstring:
    """What a docstring adds to the annotations of a function: its text, and the text of each parameter."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


def first_sentence(owner: type) -> str:
    """Describe a class by its docstring, as annotations describe parameters: return the first sentence, "" for none.

    Django gives a model without a docstring one that lists its fields: ``Order(id, number)`` (``ModelBase._prepare``).
    """
    text = owner.__dict__.get("__doc__") or ""
    if text.startswith(f"{owner.__name__}("):
        return ""
    paragraph = " ".join(parse_docstring(text).description.partition("\n\n")[0].split())
    end = _SENTENCE.search(paragraph)
    sentence = paragraph[: end.end()] if end is not None else paragraph
    if len(sentence) <= MAX_SENTENCE:
        return sentence
    return f"{sentence[:MAX_SENTENCE].rstrip()}…"


def parse_docstring(text: str | None) -> Docstring:
    """Parse a docstring for texts on annotated parameters: Google's style (``Args:``) or Sphinx's (``:param x:``)."""
    found = Docstring()
    lines = inspect.cleandoc(text or "").splitlines()
    prose: list[str] = []
    section: str | None = None
    entry: str | None = None
    for line in lines:
        bare = line.strip()
        if sphinx := _SPHINX.fullmatch(bare):
            section = "sphinx"
            entry = None
            if sphinx[1] in SPHINX_PARAMETERS and (named := (sphinx[2] or "").split()):
                entry = named[-1].lstrip("*")
                found.parameters[entry] = sphinx[3]
        elif (heading := _SECTION.fullmatch(line.rstrip())) and heading[1].lower() in SECTIONS:
            section = heading[1].lower()
            entry = None
        elif section is None:
            prose.append(line)
        elif not bare:
            entry = None if section == "sphinx" else entry
        elif section in PARAMETERS and 0 < len(line) - len(line.lstrip()) <= 4 and (start := _ENTRY.match(bare)):
            # A deeper line that looks like an entry continues the one above it.
            entry = start[1]
            found.parameters[entry] = start[2]
        elif entry is not None:
            found.parameters[entry] = f"{found.parameters[entry]} {bare}".strip()
    found.description = "\n".join(prose).strip()
    return found
