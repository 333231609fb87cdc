"""The yes or no of a question that only asks for consent, and of a form in which nothing else is required."""

from collections.abc import Mapping
from typing import Any, Final

# The name of the field in which a person says yes or no.
CONFIRM: Final = "_confirm"
YES: Final = "yes"
# Clients accept an empty form by themselves, without showing it. A choice is a form that every revision has.
CONSENT: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {CONFIRM: {"type": "string", "title": "Confirm", "enum": [YES, "no"]}},
    "required": [CONFIRM],
}


def is_consent(schema: Mapping[str, Any]) -> bool:
    """Return whether the form asks for consent alone."""
    return schema["properties"].keys() == {CONFIRM}


def with_consent(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a form with a yes or no if it has no required field: accepting it unfilled would not be an answer."""
    if schema.get("required"):
        return schema
    return {**schema, "properties": {**schema["properties"], **CONSENT["properties"]}, "required": [CONFIRM]}


def is_refused(schema: Mapping[str, Any], content: Mapping[str, Any]) -> bool:
    """Return whether the form asks for consent and the content is not a yes."""
    return CONFIRM in schema["properties"] and content.get(CONFIRM) != YES
