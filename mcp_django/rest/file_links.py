"""Files in what a ViewSet answers: URLs of this endpoint, not those of the storage.

Those of a storage lead past it, to whoever holds them, or to nowhere from outside.
"""

import posixpath
from typing import Any

from django.db.models import Manager
from django.db.models.fields.files import FieldFile
from rest_framework.serializers import BaseSerializer, FileField, ListSerializer
from rest_framework.utils.serializer_helpers import ReturnDict, ReturnList

from ..context.request import MCPRequest
from ..orm.access import related_to, visible_fields
from ..orm.columns import is_file, pk_text
from ..orm.uris import Address, download_url, row_uri


def link_files(request: MCPRequest, data: Any) -> None:
    """Replace the URLs of files in the data that serializers made: by download links, or by the names of the files.

    A file has a link where the site exposes its row to the caller; whether they may have the file is asked again then.
    """
    if isinstance(data, (ReturnDict, ReturnList)):
        if _has_files(data.serializer):
            _link(request, data.serializer, data.serializer.instance, data)
    elif isinstance(data, (dict, list)):
        for item in data.values() if isinstance(data, dict) else data:
            link_files(request, item)


def _has_files(serializer: Any) -> bool:
    fields = getattr(getattr(serializer, "child", serializer), "fields", {})
    return any(
        isinstance(field, FileField) or (isinstance(field, BaseSerializer) and _has_files(field))
        for field in fields.values()
    )


def _link(request: MCPRequest, serializer: Any, found: Any, shown: Any) -> None:
    if isinstance(serializer, ListSerializer):
        rows = found.all() if isinstance(found, Manager) else found
        for row, item in zip(rows or (), shown, strict=False):
            _link(request, serializer.child, row, item)
        return
    for name, field in serializer.fields.items():
        if found is None or not isinstance(shown, dict) or not shown.get(name):
            continue
        if isinstance(field, FileField):
            file = field.get_attribute(found)
            if isinstance(file, FieldFile):
                shown[name] = _link_of(request, file)
        elif isinstance(field, BaseSerializer) and _has_files(field):
            _link(request, field, field.get_attribute(found), shown[name])


def _link_of(request: MCPRequest, file: FieldFile) -> str:
    row, name = file.instance, file.field.name
    exposure = related_to(request, type(row))
    if exposure is None or name not in visible_fields(request, exposure) or not is_file(exposure, name):
        return posixpath.basename(file.name or "")
    address = Address(exposure.label, pk_text(row.pk), name)
    return download_url(request, address) or f"{row_uri(exposure, row.pk)}/{name}"
