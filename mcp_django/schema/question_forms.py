"""Build the flat form of a question, and convert what was entered to a Python value.

Clients show forms of plain fields only: texts, numbers, yes or no, one of some choices, several of them
(client/elicitation, Requested Schema).
"""

import dataclasses
import json
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.forms import BaseForm

from ..exceptions import Declined
from ..protocol.client_requests import ClientRequest
from ..protocol.versions import Revisions
from .annotations import members_of, parameter, unwrap
from .consent import ConsentForm
from .container_types import MISSING, Array, Nullable, Object, Parameter, object_schema
from .form_schemas import FormSchema, plain_number
from .json_values import to_jsonable
from .value_types import (
    Boolean,
    Choice,
    DecimalNumber,
    Integer,
    Invalid,
    Number,
    Parsed,
    String,
    Type,
    described,
    present,
)

# The name of the only field of a question that has no key.
VALUE: Final = "value"
# Separates the name of a field from the path to a problem within its value.
PLACE: Final = re.compile(r"[.\[]")


@dataclass(frozen=True, slots=True)
class QuestionForm:
    """The flat form of a question: its ``requestedSchema``, and ``read``, which converts the user's answer.

    ``read`` raises ``ValueError`` with a text for the user when the content does not fit.
    """

    schema: Mapping[str, Any]
    read: Callable[[Mapping[str, Any]], Any]


def question_form(kind: Any, key: str = "", default: Any = MISSING) -> QuestionForm:
    """Build the form of a question for a ``kind`` of :meth:`~mcp_django.context.request.MCPContext.ask`.

    If there is only one field, ``key`` is its name and ``default`` its initial value.
    """
    if kind is None:
        return QuestionForm(ConsentForm.ONLY_CONSENT, _consented)
    if isinstance(kind, BaseForm) or (isinstance(kind, type) and issubclass(kind, BaseForm)):
        form = FormSchema(kind() if isinstance(kind, type) else kind)
        schema = form.for_person()
        return QuestionForm(schema, lambda content: form.read(schema["properties"], content))
    if isinstance(kind, Mapping):
        try:
            ClientRequest.requested_schema(kind, Revisions.LATEST)
            required = kind.get("required", ())
            own = kind.get("properties", {})
            members = [Parameter(name, _type_of(field), name in required) for name, field in own.items()]
        except (ValueError, TypeError, KeyError) as error:
            raise ImproperlyConfigured(f"the schema is not one of a form: {error}") from None
        return QuestionForm(kind, _of_members(Object(tuple(members))).read)
    name = key or VALUE
    try:
        if isinstance(kind, (list, tuple)):
            given = {} if default is MISSING else {"required": False, "default": to_jsonable(default)}
            return _of_one(Parameter(name, _choice(kind), **given), default)
        if default is not MISSING:
            return _of_one(parameter(name, kind, required=False, default=default), default)
        return _of_annotation(kind, name)
    except ImproperlyConfigured as error:
        raise ImproperlyConfigured(f"{name} cannot be a question: {error}") from None


def _consented(content: Mapping[str, Any]) -> bool:
    if ConsentForm(ConsentForm.ONLY_CONSENT).is_refused(content):
        raise Declined
    return True


@lru_cache(maxsize=256)
def _of_annotation(annotation: Any, name: str) -> QuestionForm:
    cls = unwrap(annotation).annotation
    if isinstance(cls, type) and (dataclasses.is_dataclass(cls) or typing.is_typeddict(cls)):
        return _of_members(Object(members_of(cls, (cls,)), cls))
    return _of_one(parameter(name, annotation))


def _of_one(only: Parameter, default: Any = MISSING) -> QuestionForm:
    return _of_members(Object((only,), lambda **found: found.get(only.name, default)))


def _choice(options: Sequence[Any]) -> Choice:
    if not options:
        raise ImproperlyConfigured("there is nothing to choose from")
    if not all(isinstance(item, (list, tuple)) for item in options):
        return Choice(tuple((to_jsonable(value), value) for value in options))
    return Choice(tuple((to_jsonable(value), value) for value, _ in options), tuple(str(label) for _, label in options))


def _of_members(members: Object) -> QuestionForm:
    nullable = {item.name for item in members.parameters if isinstance(item.type, Nullable)}
    required = [item.name for item in members.parameters if item.required and item.name not in nullable]
    schema = object_schema({item.name: _field(item) for item in members.parameters}, required)
    absent = {item.name: None for item in members.parameters if item.required and item.name in nullable}
    known = schema["properties"].keys()
    # Some clients send an empty text for a field that was left blank.
    blanks = {
        item.name
        for item in members.parameters
        if item.name not in required and not isinstance(_inner(item.type), String)
    }

    def read(content: Mapping[str, Any]) -> Any:
        entered = {name: value for name, value in content.items() if not (value == "" and name in blanks)}
        # Ignore values that nobody asked for.
        given = {**absent, **{name: value for name, value in entered.items() if name in known}}
        try:
            # Plain fields convert without the request.
            return members.convert(given, typing.cast(Any, None))
        except Invalid as error:
            texts = []
            for path, cause in error.problems:
                # If there are several fields, name this one by its title in the form.
                name = PLACE.split(path)[0]
                title = schema["properties"].get(name, {}).get("title", name) if len(known) > 1 else ""
                told = "This field is required" if cause == "missing" else cause.rstrip(".")
                texts.append(f"{title}: {told}." if title else f"{told}.")
            raise ValueError(" ".join(texts)) from None

    return QuestionForm(schema, read)


# Fields


def _inner(kind: Type) -> Type:
    return kind.inner if isinstance(kind, Nullable) else kind


def _field(parameter: Parameter) -> dict[str, Any]:
    kind = _inner(parameter.type)
    title = "Answer" if parameter.name == VALUE else parameter.name.replace("_", " ").strip().capitalize()
    schema = {**_primitive(kind, parameter.name), "title": title}
    # The schema has the labels of choices and the limits of numbers; only a notation needs words.
    words = [kind.words()] if isinstance(kind, Parsed) and not kind.format else []
    schema = described(schema, [parameter.description], words)
    if parameter.default is not MISSING and parameter.default is not None:
        schema["default"] = _default(schema, parameter.default)
    return schema


def _primitive(kind: Type, name: str) -> dict[str, Any]:
    match kind:
        case Boolean() | String():
            return kind.schema()
        case Integer() | Number() | DecimalNumber():
            limits = present(minimum=plain_number(kind.minimum), maximum=plain_number(kind.maximum))
            return {"type": "integer" if isinstance(kind, Integer) else "number", **limits}
        case Parsed():
            return {"type": "string", **({"format": kind.format} if kind.format else {})}
        case Choice():
            return {"type": "string", **_options(kind, "oneOf")}
        case Array(item=Choice() as item):
            options = {**({} if item.labels else {"type": "string"}), **_options(item, "anyOf")}
            return {"type": "array", "items": options, **present(minItems=kind.min_items, maxItems=kind.max_items)}
    raise ImproperlyConfigured(f"{name} is {kind.noun}, but a form has only plain fields")


def _options(kind: Choice, titled: str) -> dict[str, Any]:
    values = [_text(value) for value, _ in kind.options]
    if not kind.labels:
        return {"enum": values}
    labels = zip(values, kind.labels, strict=True)
    return {titled: [{"const": value, "title": label or value} for value, label in labels]}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _default(schema: Mapping[str, Any], value: Any) -> Any:
    match schema["type"]:
        case "array":
            return [_text(item) for item in value]
        case "string":
            return _text(value)
        case "number":
            if isinstance(value, (int, float)):
                return value
            return float(Decimal(value))
    return value


# Forms that the project wrote as JSON Schema


def _type_of(field: Mapping[str, Any]) -> Type:
    options = field.get("oneOf") or field.get("anyOf")
    values = [choice["const"] for choice in options] if options else field.get("enum")
    if values:
        return Choice(tuple((value, value) for value in values))
    match field.get("type"):
        case "array":
            return Array(_type_of(field["items"]), list, field.get("minItems"), field.get("maxItems"))
        case "integer":
            return Integer(field.get("minimum"), field.get("maximum"))
        case "number":
            return Number(field.get("minimum"), field.get("maximum"))
        case "boolean":
            return Boolean()
    return String(field.get("minLength"), field.get("maxLength"))
