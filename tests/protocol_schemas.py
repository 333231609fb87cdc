"""The schema of each revision: what of the specification's schema.json a server sends, without its texts."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator, Draft202012Validator

DIRECTORY = Path(__file__).parent / "wire_schemas"
# A definition that refuses members it does not name, which the specification leaves to the reader.
CLOSED = frozenset({"ServerCapabilities"})


def is_field(name: str) -> bool:
    """Whether the definition is of a field of a form: a client makes an input of what it knows, and of nothing else."""
    return name.endswith("Schema") and name != "JSONSchema"


@cache
def document(version: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DIRECTORY / f"{version}.json").read_text())
    for name, definition in found[keyword(found)].items():
        if "properties" in definition and (name in CLOSED or is_field(name)):
            definition["additionalProperties"] = False
    return found


def keyword(schema: dict[str, Any]) -> str:
    return "$defs" if "$defs" in schema else "definitions"


def has_definition(version: str, name: str) -> bool:
    found = document(version)
    return name in found[keyword(found)]


def check_wire(version: str, name: str, value: Any) -> None:
    """Assert that the JSON value is one of the definition in the revision's schema."""
    found = document(version)
    kind = Draft202012Validator if "2020-12" in found["$schema"] else Draft7Validator
    # With a reference at its root, draft 7 would not look at the definitions beside it.
    validator = kind({**found, "allOf": [{"$ref": f"#/{keyword(found)}/{name}"}]})
    errors = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]
    assert not errors, "\n".join(errors)
