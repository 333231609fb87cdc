from types import SimpleNamespace

import pytest
from django.core.exceptions import ValidationError

from mcp_django.emulation.geometries import geometry_text

FIELD = SimpleNamespace(srid=25832)
LINE = [[1, 2], [3, 4.5]]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("POINT(1 2)", "SRID=25832;POINT(1 2)"),
        (" POINT(1 2) ", "SRID=25832;POINT(1 2)"),
        ("SRID=4326;POINT(1 2)", "SRID=4326;POINT(1 2)"),
        ("0101000000000000000000F03F0000000000000040", "0101000000000000000000F03F0000000000000040"),
        ({"type": "Point", "coordinates": [1, 2]}, "SRID=4326;POINT (1 2)"),
        ('{"type": "Point", "coordinates": [1, 2, 3]}', "SRID=4326;POINT Z (1 2 3)"),
        ({"type": "LineString", "coordinates": LINE}, "SRID=4326;LINESTRING (1 2, 3 4.5)"),
        ({"type": "MultiPoint", "coordinates": LINE}, "SRID=4326;MULTIPOINT (1 2, 3 4.5)"),
        ({"type": "Polygon", "coordinates": [LINE, LINE]}, "SRID=4326;POLYGON ((1 2, 3 4.5), (1 2, 3 4.5))"),
        ({"type": "MultiPolygon", "coordinates": [[LINE]]}, "SRID=4326;MULTIPOLYGON (((1 2, 3 4.5)))"),
        ({"type": "Polygon", "coordinates": []}, "SRID=4326;POLYGON EMPTY"),
        (
            {"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [1, 2]}]},
            "SRID=4326;GEOMETRYCOLLECTION (POINT (1 2))",
        ),
    ],
)
def test_what_has_no_system_has_that_of_the_field_and_geojson_has_degrees(value, expected):
    assert geometry_text(FIELD, value) == expected


def test_a_field_without_a_system_gives_none():
    assert geometry_text(SimpleNamespace(srid=None), "POINT(1 2)") == "POINT(1 2)"


@pytest.mark.parametrize(
    "value",
    [
        5,
        ["POINT(1 2)"],
        {"type": "Circle", "coordinates": [1, 2]},
        {"type": "Point"},
        {"type": ["Point"], "coordinates": [1, 2]},
        {"type": "Point", "coordinates": [1]},
        {"type": "Point", "coordinates": [[1, 2]]},
        {"type": "Point", "coordinates": ["1", "2); DROP"]},
        {"type": "LineString", "coordinates": [1, 2]},
        {"type": "GeometryCollection", "geometries": {"type": "Point"}},
        {"type": "GeometryCollection", "geometries": [5]},
    ],
)
def test_what_is_no_geometry_is_refused(value):
    with pytest.raises(ValidationError, match="WKT, EWKT or GeoJSON"):
        geometry_text(FIELD, value)
