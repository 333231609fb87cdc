"""What deleting a row takes with it, by the rules and in the words of the admin's own deletion page."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.contrib import admin
from django.contrib.admin.utils import NestedObjects, get_deleted_objects
from django.db import router
from django.db.models import Model

from ..context import MCPRequest
from ..exceptions import NotFound, ToolError
from ..serializers import label_of, pk_text
from ..visibility import get_row, may_view

if TYPE_CHECKING:
    from ..exposures import ModelExposure

__all__ = ["Deletion", "deleted_objects", "plan_deletion"]

MAX_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Deletion:
    """What a deletion deletes: how many of which kind, and every single object."""

    counts: Mapping[str, int]
    objects: tuple[Model, ...]


class _Registry:
    """The exposures of a site in the place of an ``AdminSite``; models that are not exposed are the admin's."""

    def __init__(self, exposure: "ModelExposure") -> None:
        self.exposures = exposure.site.exposures
        self.admin_site = exposure.site.admin_site or admin.site
        self.name = self.admin_site.name

    def is_registered(self, model: type[Model]) -> bool:
        return model in self.exposures or self.admin_site.is_registered(model)

    def get_model_admin(self, model: type[Model]) -> Any:
        return self.exposures[model] if model in self.exposures else self.admin_site.get_model_admin(model)


def deleted_objects(exposure: "ModelExposure", objs: Iterable[Model], request: MCPRequest) -> tuple[Any, ...]:
    """Return what ``ModelAdmin.get_deleted_objects`` returns, for an exposure without a ``ModelAdmin``."""
    return get_deleted_objects(list(objs), request, _Registry(exposure))  # type: ignore[arg-type]


def plan_deletion(request: MCPRequest, exposure: "ModelExposure", row: Model) -> Deletion:
    """Return what deleting the row deletes.

    Raises:
        ToolError: it is protected, or takes rows with it that the caller may not delete.
    """
    _, counts, perms_needed, protected = exposure.get_deleted_objects([row], request)
    collector = NestedObjects(using=router.db_for_write(type(row), instance=row), origin=[row])
    collector.collect([row])
    if protected or collector.protected:
        raise ToolError(_protection(request, exposure, collector.protected or protected))
    if perms_needed:
        kinds = ", ".join(sorted(str(kind) for kind in perms_needed))
        raise ToolError(
            f"Deleting this row of {exposure.label} would also delete rows that you may not delete: {kinds}. "
            "Nothing was deleted."
        )
    objects = tuple(obj for objs in collector.model_objs.values() for obj in objs)
    return Deletion({str(kind): count for kind, count in dict(counts).items()}, objects)


def _protection(request: MCPRequest, exposure: "ModelExposure", protected: Iterable[Any]) -> str:
    """Return who is in the way: how many of which kind, and the names of those that the caller may see."""
    rows = [obj for obj in protected if isinstance(obj, Model)]
    kinds = Counter(str(obj._meta.verbose_name_plural) for obj in rows)
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "other rows"
    names = list(_visible_names(request, rows))
    named = f" (such as {'; '.join(names)})" if names else ""
    return (
        f"This row of {exposure.label} cannot be deleted, because rows that refer to it are protected: "
        f"{counted}{named}. Nothing was deleted. Change or delete those first."
    )


def _visible_names(request: MCPRequest, rows: Iterable[Model]) -> list[str]:
    names: list[str] = []
    for row in sorted(rows, key=lambda row: (row._meta.label, str(row.pk)))[:MAX_NAMED]:
        exposure = request.mcp.site.exposures.get(type(row))
        if exposure is None or not may_view(request, exposure):
            continue
        try:
            get_row(request, exposure, pk_text(row.pk))
        except NotFound:
            continue
        names.append(f"{exposure.label} {pk_text(row.pk)}: {label_of(exposure, row) or row.pk}")
    return names
