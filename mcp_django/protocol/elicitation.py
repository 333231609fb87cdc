"""Forms of elicitation in the wire form of each revision (client/elicitation, Requested Schema).

A form is a flat object of strings, numbers, booleans and choices. What a revision does not know (titles of choices,
several choices, defaults) is turned into what it does, and :func:`restore` turns the answer back.
"""

from collections.abc import Mapping
from typing import Any, Final

from .versions import is_at_least

# Titled choices as ``oneOf``, several choices, and defaults of all types.
CHOICES_SINCE: Final = "2025-11-25"
COMMON: Final = frozenset({"type", "title", "description"})
KEYWORDS: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"minLength", "maxLength", "format", "default"}),
    "number": frozenset({"minimum", "maximum", "default"}),
    "integer": frozenset({"minimum", "maximum", "default"}),
    "boolean": frozenset({"default"}),
}
FORMATS: Final = frozenset({"date", "date-time", "email", "uri"})
# What a number looks like where it is asked for as a text.
PATTERNS: Final[Mapping[str, tuple[str, str]]] = {
    "integer": (r"-?[0-9]+", "whole number"),
    "number": (r"-?[0-9]+(\.[0-9]+)?", "number"),
}
# What may stand between several choices in a text; the first that is in none of them does.
SEPARATORS: Final = ",;|"


def requested_schema(schema: Mapping[str, Any], version: str, *, as_text: bool = False) -> dict[str, Any]:
    """Return ``requestedSchema`` for the revision; ``schema`` is one of the newest, and may use more keywords.

    With ``as_text`` numbers are asked for as texts, which are read as numbers: some clients can show nothing else.

    Raises:
        ValueError: a field is none that a form can have.
    """
    fields: Mapping[str, Any] = schema.get("properties", {})
    wire: dict[str, Any] = {
        "type": "object",
        "properties": {name: _field(name, field, version, as_text) for name, field in fields.items()},
    }
    if schema.get("required"):
        wire["required"] = list(schema["required"])
    return wire


def restore(content: Mapping[str, Any], schema: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return the answer in the form of ``schema``, which was asked as :func:`requested_schema` made it.

    Choices that a client of an older revision gave as one text become a list again, whether it named their values or
    their titles; a text that names no choice stays as it is, for validation to refuse.
    """
    found = dict(content)
    if is_at_least(version, CHOICES_SINCE):
        return found
    for name, field in schema.get("properties", {}).items():
        if field.get("type") == "array" and isinstance(found.get(name), str):
            choices = _choices(field["items"])
            by_title = {title: value for value, title in choices.items()}
            texts = [text.strip() for text in found[name].split(_separator(choices))]
            found[name] = [by_title.get(text, text) if text not in choices else text for text in texts if text]
    return found


def _field(name: str, field: Mapping[str, Any], version: str, as_text: bool) -> dict[str, Any]:
    kind = str(field.get("type"))
    if kind == "array" and isinstance(field.get("items"), Mapping) and _choices(field["items"]):
        return _several(field, version)
    if as_text and kind in PATTERNS:
        return _number_as_text(field, kind)
    if kind == "string" and _choices(field):
        return _one(field, version)
    if kind not in KEYWORDS:
        raise ValueError(f"{name!r} is no field of a form: a string, a number, a boolean, a choice or several choices")
    known = COMMON | KEYWORDS[kind]
    if kind != "boolean" and not is_at_least(version, CHOICES_SINCE):
        known -= {"default"}
    if field.get("format") not in FORMATS:
        known -= {"format"}
    return {keyword: value for keyword, value in field.items() if keyword in known}


def _choices(field: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a choice, each with its title."""
    titled = field.get("oneOf") or field.get("anyOf")
    if titled:
        return {choice["const"]: choice.get("title", choice["const"]) for choice in titled}
    values = field.get("enum", ())
    return dict(zip(values, field.get("enumNames") or values, strict=True))


def _keep(field: Mapping[str, Any], *keywords: str) -> dict[str, Any]:
    return {keyword: field[keyword] for keyword in ("type", "title", "description", *keywords) if keyword in field}


def _one(field: Mapping[str, Any], version: str) -> dict[str, Any]:
    choices = _choices(field)
    titled = any(value != title for value, title in choices.items())
    if not is_at_least(version, CHOICES_SINCE):
        names = {"enumNames": list(choices.values())} if titled else {}
        return {**_keep(field), "enum": list(choices), **names}
    if "enumNames" in field:
        # Newer revisions know the older form too; who asks for it gets it.
        return _keep(field, "default", "enum", "enumNames")
    if not titled:
        return {**_keep(field, "default"), "enum": list(choices)}
    return {**_keep(field, "default"), "oneOf": _titled(choices)}


def _number_as_text(field: Mapping[str, Any], kind: str) -> dict[str, Any]:
    pattern, noun = PATTERNS[kind]
    bounds = [f"{word} {field[bound]}" for bound, word in (("minimum", "from"), ("maximum", "to")) if bound in field]
    hint = f"({' '.join([noun, *bounds])})"
    given = field.get("description")
    described = {"type": "string", "description": f"{given} {hint}" if given else hint, "pattern": f"^{pattern}$"}
    return {**_keep(field), **described}


def _several(field: Mapping[str, Any], version: str) -> dict[str, Any]:
    choices = _choices(field["items"])
    if is_at_least(version, CHOICES_SINCE):
        titled = any(value != title for value, title in choices.items())
        items = {"anyOf": _titled(choices)} if titled else {"type": "string", "enum": list(choices)}
        return {**_keep(field, "minItems", "maxItems", "default"), "items": items}
    mark = _separator(choices)
    hint = f"Any of these, with {mark!r} between them: {f'{mark} '.join(choices.values())}"
    given = field.get("description")
    return {**_keep(field), "type": "string", "description": f"{given} {hint}" if given else hint}


def _titled(choices: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"const": value, "title": title} for value, title in choices.items()]


def _separator(choices: Mapping[str, str]) -> str:
    texts = [*choices, *choices.values()]
    return next((mark for mark in SEPARATORS if not any(mark in text for text in texts)), "\n")
