"""What every schema of a tool keeps to, so that no library on the way to a model refuses or misreads it."""

from collections.abc import Iterator
from typing import Any

SINGLE = frozenset({"object", "array", "string", "integer", "number", "boolean", "null"})


def walk(schema: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each schema within a schema, with where it stands."""
    assert isinstance(schema, dict), path
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from walk(inner, f"{path}.{name}")
    for number, inner in enumerate(schema.get("anyOf", [])):
        yield from walk(inner, f"{path}|{number}")
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield from walk(schema[keyword], f"{path}.{keyword}")


def check_schemas(tools: list[dict[str, Any]]) -> int:
    """Check the schemas of ``tools/list``; return how many free objects were among the arguments."""
    free = 0
    assert tools
    for tool in tools:
        for part in ("inputSchema", "outputSchema"):
            if part not in tool:
                continue
            assert tool[part]["type"] == "object"
            for path, schema in walk(tool[part], f"{tool['name']}.{part}"):
                if "type" in schema:
                    assert schema["type"] in SINGLE, path
                assert not schema.keys() & {"oneOf", "allOf", "$ref", "$defs", "const", "nullable"}, path
                assert all("anyOf" not in inner for inner in schema.get("anyOf", [])), path
                top = path.endswith(part)
                if schema.get("type") == "object" and not schema.get("properties") and not top:
                    assert "properties" not in schema, path
                    assert schema["additionalProperties"] or part == "outputSchema", path
                    free += part == "inputSchema" and schema["additionalProperties"] is True
    return free
