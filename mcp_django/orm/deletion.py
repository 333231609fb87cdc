"""Collect what a deletion would delete too, by the rules and in the words of the admin's deletion page."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.contrib.admin.utils import NestedObjects
from django.db import router
from django.db.models import Model

from ..context.request import MCPRequest
from ..exceptions import NotFound, NotPermitted, ToolError
from ..exposures.model_exposure import ModelExposure
from .access import access_of
from .column_values import pk_text
from .labels import label_of

MAX_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Deletion:
    """What a deletion deletes: how many of which kind, and every single object."""

    counts: Mapping[str, int]
    objects: tuple[Model, ...]


def plan_deletion(request: MCPRequest, exposure: ModelExposure, *rows: Model) -> Deletion:
    """Return what deleting the rows, of which there is one at least, deletes."""
    _, counts, perms_needed, protected = exposure.get_deleted_objects(rows, request)
    collector = NestedObjects(using=router.db_for_write(type(rows[0]), instance=rows[0]), origin=rows)
    collector.collect(rows)
    which = "This row" if len(rows) == 1 else "Some of these rows"
    if protected or collector.protected:
        raise ToolError(_protection(request, exposure, which, collector.protected or protected))
    if perms_needed:
        kinds = ", ".join(sorted(str(kind) for kind in perms_needed))
        raise NotPermitted(
            f"Deleting {which.lower()} of {exposure.label} would also delete rows that you may not delete: {kinds}. "
            "Nothing was deleted."
        )
    objects = tuple(obj for objs in collector.model_objs.values() for obj in objs)
    return Deletion({str(kind): count for kind, count in dict(counts).items()}, objects)


def _protection(request: MCPRequest, exposure: ModelExposure, which: str, protected: Iterable[Any]) -> str:
    return (
        f"{which} of {exposure.label} cannot be deleted, because rows that refer to it are protected: "
        f"{blockers(request, protected)}. Nothing was deleted. Change or delete those first."
    )


def blockers(request: MCPRequest, protected: Iterable[Any]) -> str:
    """Return how many rows of which kind are protected, and the names of those that the caller may see."""
    rows = [obj for obj in protected if isinstance(obj, Model)]
    kinds = Counter(str(obj._meta.verbose_name_plural) for obj in rows)
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "other rows"
    names = list(_visible_names(request, rows))
    return f"{counted} (such as {'; '.join(names)})" if names else counted


def _visible_names(request: MCPRequest, rows: Iterable[Model]) -> list[str]:
    names: list[str] = []
    for row in sorted(rows, key=lambda row: (row._meta.label, str(row.pk)))[:MAX_NAMED]:
        exposure = request.mcp.site.exposures.get(type(row))
        if exposure is None or not access_of(request)[exposure].is_there:
            continue
        try:
            access_of(request)[exposure].get_row(pk_text(row.pk))
        except NotFound:
            continue
        names.append(f"{exposure.label} {pk_text(row.pk)}: {label_of(exposure, row) or row.pk}")
    return names
