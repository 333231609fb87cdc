"""Geometries that callers write: well-known text, with or without a reference system, or GeoJSON.

GeoDjango's form fields read text without a reference system, and GeoJSON, in the system of their map. Here text
without one is in the system of the model field, and GeoJSON is in degrees (RFC 7946, section 4).
"""

from collections.abc import Sequence
from typing import Any, Final

from django.core.exceptions import ValidationError

from ..orm.alternative_spellings import json_or_text

DEGREES: Final = 4326
# Depth of the lists around the positions of each geometry type.
DEPTHS: Final = {"Point": 0, "LineString": 1, "MultiPoint": 1, "Polygon": 2, "MultiLineString": 2, "MultiPolygon": 3}
EXPECTED: Final = "Give a geometry as WKT, EWKT or GeoJSON."


def geometry_text(field: Any, value: Any) -> str:
    """Return a client's geometry, WKT or GeoJSON, as extended well-known text for a GeoDjango form field."""
    value = json_or_text(value)
    if isinstance(value, dict):
        return f"SRID={DEGREES};{_well_known(value)}"
    if not isinstance(value, str):
        raise ValidationError(EXPECTED)
    text = value.strip()
    # Hexadecimal text (WKB) has a place of its own for the system.
    has_system = ";" in text or "(" not in text or not field.srid or field.srid < 0
    return text if has_system else f"SRID={field.srid};{text}"


def _well_known(found: Any) -> str:
    kind = str(found.get("type")) if isinstance(found, dict) else ""
    if kind == "GeometryCollection" and isinstance(found.get("geometries"), list):
        return f"GEOMETRYCOLLECTION ({', '.join(map(_well_known, found['geometries']))})"
    if kind not in DEPTHS:
        raise ValidationError(EXPECTED)
    positions = found.get("coordinates")
    if positions == []:
        return f"{kind.upper()} EMPTY"
    text = _positions(positions, DEPTHS[kind])
    solid = " Z" if len(_first(positions)) > 2 else ""
    return f"{kind.upper()}{solid} {text if DEPTHS[kind] else f'({text})'}"


def _positions(found: Any, depth: int) -> str:
    if not isinstance(found, list):
        raise ValidationError(EXPECTED)
    if depth:
        return f"({', '.join(_positions(item, depth - 1) for item in found)})"
    if not 2 <= len(found) <= 4 or not all(isinstance(part, (int, float)) and part is not True for part in found):
        raise ValidationError(EXPECTED)
    return " ".join(repr(part) for part in found[:3])


def _first(positions: Sequence[Any]) -> Sequence[Any]:
    """Return the first position of a geometry's nested lists of positions."""
    while positions and isinstance(positions[0], list):
        positions = positions[0]
    return positions
