"""Container types: those made of other types, and rows of models."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from django.core.exceptions import ValidationError
from django.db import models

from ..exceptions import NotFound
from .value_types import (
    NULL,
    Anything,
    Boolean,
    Choice,
    Integer,
    Invalid,
    Number,
    String,
    Type,
    any_of,
    between,
    described,
    is_empty,
    json_type,
    key_type,
    present,
    show,
)

if TYPE_CHECKING:
    from django.http import HttpRequest

MISSING: Final = object()
MAX_UNKNOWN: Final = 5
MAX_NAME: Final = 64
# Maximum items of an array of rows, because each row takes a query.
MAX_ROWS: Final = 100


def object_schema(properties: Mapping[str, Any], required: Iterable[str], *, closed: bool = False) -> dict[str, Any]:
    """Return the JSON Schema of an object, a container type of these members; a ``closed`` one has no others."""
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    if names := list(required):
        schema["required"] = names
    if closed:
        return {**schema, "additionalProperties": False}
    return schema


def _json_text(value: Any, opening: str) -> Any:
    """Read the value of a container type from JSON text, because AI models send arrays and objects as text."""
    if isinstance(value, str) and value.lstrip().startswith(opening):
        from ..protocol.errors import ParseError
        from ..protocol.messages import decode

        try:
            return decode(value.encode())
        except (ParseError, UnicodeEncodeError):
            return value
    return value


def _convert_each(parts: Iterable[tuple[str, Type, Any]], request: HttpRequest) -> list[Any]:
    """Convert each part of a container type's value, and report every wrong one."""
    found: list[Any] = []
    wrong: list[tuple[str, str]] = []
    for place, kind, part in parts:
        try:
            found.append(kind.convert(part, request))
        except Invalid as error:
            wrong += error.within(place)
    if wrong:
        raise Invalid(problems=wrong)
    return found


@dataclass(frozen=True)
class Array(Type):
    """The container type of a list: values of one type, collected as the function takes them."""

    item: Type
    collect: Callable[[list[Any]], Any] = list
    min_items: int | None = None
    max_items: int | None = None
    noun = "an array"
    json_types = ("array",)

    @property
    def parts(self) -> tuple[Type, ...]:
        return (self.item,)

    @property
    def most(self) -> int | None:
        """The greatest number of items."""
        if self.max_items is None and self.needs_database:
            return MAX_ROWS
        return self.max_items

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.item.schema(), **present(minItems=self.min_items, maxItems=self.most)}

    def words(self) -> str:
        each = self.item.words()
        return "; ".join(filter(None, [between(self.min_items, self.most, "items"), each and f"each: {each}"]))

    def convert(self, value: Any, request: HttpRequest) -> Any:
        items = _json_text(value, "[")
        if not isinstance(items, list):
            raise self.refuse(value)
        if len(items) < (self.min_items or 0) or (self.most is not None and len(items) > self.most):
            raise Invalid(f"must have {between(self.min_items, self.most, 'items')}, got {len(items)}")
        return self.collect(
            _convert_each(((f"[{index}]", self.item, item) for index, item in enumerate(items)), request)
        )


@dataclass(frozen=True)
class Tuple(Type):
    """The container type of a tuple: a fixed number of values, each of its own type."""

    items: tuple[Type, ...]
    json_types = ("array",)

    @property
    def noun(self) -> str:
        return f"an array of {len(self.items)} items ({', '.join(item.noun for item in self.items)})"

    @property
    def parts(self) -> tuple[Type, ...]:
        return self.items

    def schema(self) -> dict[str, Any]:
        # The words say which item is which, because few clients know ``prefixItems``.
        schemas: list[dict[str, Any]] = []
        for item in self.items:
            if (schema := item.schema()) not in schemas:
                schemas.append(schema)
        size = len(self.items)
        items = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        return {"type": "array", "items": items, "minItems": size, "maxItems": size}

    def words(self) -> str:
        return self.noun

    def convert(self, value: Any, request: HttpRequest) -> Any:
        items = _json_text(value, "[")
        if not isinstance(items, list) or len(items) != len(self.items):
            raise self.refuse(value)
        parts = ((f"[{index}]", *pair) for index, pair in enumerate(zip(self.items, items, strict=True)))
        return tuple(_convert_each(parts, request))


@dataclass(frozen=True)
class Dictionary(Type):
    """The container type of a dict: any keys, with values of one type."""

    value: Type
    noun = "an object"
    json_types = ("object",)

    @property
    def parts(self) -> tuple[Type, ...]:
        return (self.value,)

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.value.schema() or True}

    def convert(self, value: Any, request: HttpRequest) -> Any:
        members = _json_text(value, "{")
        if not isinstance(members, Mapping):
            raise self.refuse(value)
        parts = ((f"[{show(key)}]", self.value, member) for key, member in members.items())
        return dict(zip(members, _convert_each(parts, request), strict=True))


# The types of a JSON Schema that says no more than "type".
_PLAIN: Final[Mapping[str, Type]] = {
    "string": String(),
    "integer": Integer(),
    "number": Number(),
    "boolean": Boolean(),
    "array": Array(Anything()),
    "object": Dictionary(Anything()),
}


@dataclass(frozen=True)
class Parameter:
    """A named member of a container type (an object), or a parameter of a call.

    ``default`` is MISSING if the callee has its own default, or none.
    """

    name: str
    type: Type
    required: bool = True
    default: Any = MISSING
    description: str = ""
    keywords: Mapping[str, Any] | None = None

    @classmethod
    def of_schema(cls, name: str, schema: Any, *, required: bool) -> Parameter:
        """Return the parameter that JSON Schema describes, by ``type`` and ``enum`` alone."""
        about = schema if isinstance(schema, Mapping) else {}
        kind = about.get("type")
        type_: Type = Anything()
        if isinstance(about.get("enum"), list):
            type_ = Choice(tuple((option, option) for option in about["enum"]))
        elif isinstance(kind, str):
            type_ = _PLAIN.get(kind, type_)
        return cls(name, type_, required)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a container's member with a description, with the constraints in words."""
        # Leaving the member out means null, so the schema does not offer null.
        kind = self.type.inner if isinstance(self.type, Nullable) and self.default is None else self.type
        schema = {**kind.schema(), **(self.keywords or {})}
        notes = [self.type.words()]
        if self.default is not MISSING and self.default not in (None, ""):
            schema["default"] = self.default
            notes.append(f"default {show(self.default)}")
        return described(schema, [self.description], notes)


@dataclass(frozen=True)
class Object(Type):
    """The container type of a dataclass or ``TypedDict``, with named members; other names are refused."""

    parameters: tuple[Parameter, ...]
    build: Callable[..., Any] = dict
    noun = "an object"
    json_types = ("object",)

    @property
    def parts(self) -> tuple[Type, ...]:
        return tuple(parameter.type for parameter in self.parameters)

    def schema(self) -> dict[str, Any]:
        required = [parameter.name for parameter in self.parameters if parameter.required]
        return object_schema({item.name: item.schema() for item in self.parameters}, required, closed=True)

    def convert(self, value: Any, request: HttpRequest) -> Any:
        """Convert an object member by member, pass these to ``build``, report each wrong, missing and unknown one."""
        members = _json_text(value, "{")
        if not isinstance(members, Mapping):
            raise self.refuse(value)
        known = {parameter.name for parameter in self.parameters}
        wrong: list[tuple[str, str]] = []
        for name in [name for name in members if name not in known][:MAX_UNKNOWN]:
            near = difflib.get_close_matches(name[:MAX_NAME], known, n=1)
            wrong.append((name[:MAX_NAME] or '""', f"unknown, did you mean {near[0]}?" if near else "unknown"))
        found = {}
        for parameter in self.parameters:
            member = members.get(parameter.name, MISSING)
            if member is None and not parameter.required and "null" not in parameter.type.json_types:
                # Some clients send null for every member that they mean to leave out.
                continue
            if member is MISSING:
                wrong += [(parameter.name, "missing")] if parameter.required else []
                continue
            try:
                found[parameter.name] = parameter.type.convert(member, request)
            except Invalid as error:
                # Other clients send an empty value of another type.
                if parameter.required or not is_empty(_json_text(_json_text(member, "["), "{")):
                    wrong += error.within(parameter.name)
        if wrong:
            raise Invalid(problems=wrong)
        try:
            return self.build(**found)
        except ValidationError as error:
            raise Invalid("; ".join(error.messages)) from error
        except ValueError as error:
            raise Invalid(str(error)) from error


@dataclass(frozen=True)
class Nullable(Type):
    """A type or null."""

    inner: Type

    @property
    def not_null(self) -> Type:
        return self.inner.not_null

    @property
    def noun(self) -> str:
        return f"{self.inner.noun} or null"

    @property
    def json_types(self) -> tuple[str, ...]:
        return (*self.inner.json_types, "null")

    @property
    def parts(self) -> tuple[Type, ...]:
        return (self.inner,)

    def schema(self) -> dict[str, Any]:
        return any_of(self.inner.schema(), NULL)

    def words(self) -> str:
        return self.inner.words()

    def convert(self, value: Any, request: HttpRequest) -> Any:
        if value is None:
            return None
        return self.inner.convert(value, request)

    def limited(self, limits: Mapping[str, Any]) -> Type:
        if limits:
            return replace(self, inner=self.inner.limited(limits))
        return self


@dataclass(frozen=True)
class AnyOf(Type):
    """The container type of a union: the first member type that has the value's JSON type, or can convert it."""

    members: tuple[Type, ...]

    @property
    def alternatives(self) -> tuple[Type, ...]:
        return self.members

    @property
    def noun(self) -> str:
        return " or ".join(member.noun for member in self.members)

    @property
    def json_types(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(kind for member in self.members for kind in member.json_types))

    @property
    def parts(self) -> tuple[Type, ...]:
        return self.members

    def schema(self) -> dict[str, Any]:
        return any_of(*(member.schema() for member in self.members))

    def words(self) -> str:
        return "; or ".join(filter(None, [member.words() for member in self.members]))

    def convert(self, value: Any, request: HttpRequest) -> Any:
        kind = json_type(value)
        for member in sorted(self.members, key=lambda member: kind not in member.json_types):
            try:
                return member.convert(value, request)
            except Invalid:
                continue
        raise self.refuse(value)


@dataclass(frozen=True)
class Row(Type):
    """The container type of a model's row, given by its primary key, among the rows that the caller can see."""

    model: type[models.Model]
    needs_database = True

    @property
    def row_model(self) -> type[models.Model]:
        return self.model

    @property
    def noun(self) -> str:
        return f"the primary key of a {self.model._meta.verbose_name}"

    @property
    def json_types(self) -> tuple[str, ...]:
        return (key_type(self.model._meta.pk),)

    def words(self) -> str:
        return f"primary key of {self.model._meta.label_lower}"

    def convert(self, value: Any, request: Any) -> Any:
        if not isinstance(value, (str, int)) or isinstance(value, bool):
            raise self.refuse(value)
        try:
            return request.mcp.site.get_object(request, self.model, value)
        except NotFound as error:
            # A hidden row gets the same error as a missing one.
            meant = f". {error}" if str(error) else ""
            raise Invalid(f"no {self.model._meta.verbose_name} with pk {show(value)}{meant}") from None
