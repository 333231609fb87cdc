"""The yes or no of a question that only asks for consent, and of a form in which nothing else is required."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class ConsentForm:
    """A form that may ask for a yes or no; ``schema`` is its JSON Schema.

    ``FIELD`` is the name of the field in which a person says yes or no.
    ``ONLY_CONSENT`` is the schema of a form that asks for nothing else: clients accept an empty form by themselves,
    without showing it, and a choice is a form that every revision has.
    """

    FIELD: ClassVar = "_confirm"
    YES: ClassVar = "yes"
    ONLY_CONSENT: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {FIELD: {"type": "string", "title": "Confirm", "enum": [YES, "no"]}},
        "required": [FIELD],
    }

    schema: Mapping[str, Any]

    @property
    def is_only_consent(self) -> bool:
        """Whether the form asks for consent alone."""
        return self.schema["properties"].keys() == {self.FIELD}

    def with_consent(self) -> Mapping[str, Any]:
        """Return the schema with a yes or no if no field is required: accepting it unfilled would not be an answer."""
        if self.schema.get("required"):
            return self.schema
        properties = {**self.schema["properties"], **self.ONLY_CONSENT["properties"]}
        return {**self.schema, "properties": properties, "required": [self.FIELD]}

    def is_refused(self, content: Mapping[str, Any]) -> bool:
        """Return whether the form asks for consent and the content is not a yes."""
        return self.FIELD in self.schema["properties"] and content.get(self.FIELD) != self.YES
