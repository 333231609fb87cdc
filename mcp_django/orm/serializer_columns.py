"""Columns of an exposure that has a DRF serializer: which fields it writes, and what it makes of each row."""

import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from ..context.request import MCPRequest
from ..exposures.model_exposure import ModelExposure
from .prefetch import each_row
from .undecodable_values import UNDECODABLE

logger = logging.getLogger("mcp_django")


def _fields(serializer: Any) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = getattr(serializer, "fields", {})
    return fields


@lru_cache(maxsize=256)
def read_fields(exposure: ModelExposure) -> tuple[str, ...]:
    """Return the names of the columns that the exposure's DRF serializer writes out, in its order."""
    assert exposure.serializer_class is not None
    fields = _fields(exposure.serializer_class())
    return tuple(name for name, field in fields.items() if not field.write_only)


@lru_cache(maxsize=256)
def unchanged_fields(exposure: ModelExposure) -> frozenset[str]:
    """Return the columns that the DRF serializer writes as stored; other serializer fields may mask their value."""
    from rest_framework import serializers

    assert exposure.serializer_class is not None
    known = {*serializers.ModelSerializer.serializer_field_mapping.values(), serializers.ChoiceField}
    known.add(serializers.PrimaryKeyRelatedField)
    fields = _fields(exposure.serializer_class())
    # A file field that was declared with use_url shows a URL, not what is stored.
    plain = {name: field for name, field in fields.items() if type(field) in known and not hasattr(field, "use_url")}
    return frozenset(name for name, field in plain.items() if field.source == name)


def represented(
    request: MCPRequest, exposure: ModelExposure, rows: Sequence[Any], followed: set[str] | None = None
) -> list[Mapping[str, Any]]:
    """Return the columns that the DRF serializer makes of each row, ``UNDECODABLE`` for each that it fails to make.

    Relations that it follows are added to ``followed`` (:func:`~mcp_django.orm.prefetch.each_row`).
    """
    assert exposure.serializer_class is not None
    serializer = exposure.serializer_class(context={"request": request})
    _name_files(serializer)
    return each_row(rows, partial(_represented, exposure, serializer), followed)[0]


def _name_files(field: Any) -> None:
    """Make a serializer show files in its columns by name: the URLs of a storage may carry its credentials.

    DRF fields that were declared with ``use_url`` are left as they are.
    """
    from rest_framework.fields import FileField

    if isinstance(field, FileField) and not hasattr(field, "use_url"):
        field.use_url = False
    for inner in (*_fields(field).values(), getattr(field, "child", None)):
        if inner is not None:
            _name_files(inner)


def _represented(exposure: ModelExposure, serializer: Any, row: Any) -> Mapping[str, Any]:
    try:
        shown: Mapping[str, Any] = serializer.to_representation(row)
        return shown
    except Exception:
        logger.warning("A row of %s could not be serialized", exposure.label, exc_info=True)
    fields = _fields(serializer)
    return {name: _value(field, row) for name, field in fields.items() if not field.write_only}


def _value(field: Any, row: Any) -> Any:
    from rest_framework.fields import SkipField

    try:
        value = field.get_attribute(row)
        return None if value is None else field.to_representation(value)
    except SkipField:
        return None
    except Exception:
        return UNDECODABLE
