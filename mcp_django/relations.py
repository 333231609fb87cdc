"""Labels of related rows, for the rows of one page: a fixed number of queries for each relation.

A label is shown when the related model is exposed, the caller may view it, and the row is among its exposure's rows;
otherwise a foreign key is its bare key, and a many-to-many relation does not list the row.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from django.db.models import F, Window
from django.db.models.functions import RowNumber

from .context import MCPRequest
from .serializers import MAX_LABEL, clean_text, field_renderer, label_of, label_relations, plain_label
from .visibility import has_every_row, related_exposure

if TYPE_CHECKING:
    from .exposures import ModelExposure

__all__ = ["MAX_RELATED", "joined_label", "labels_for", "related_lists"]

# Related rows of one many-to-many value.
MAX_RELATED: Final = 20


def joined_label(request: MCPRequest, field: Any) -> str | None:
    """Return the path of the column that is the label of a foreign key, where a join alone can give it."""
    related = related_exposure(request, field)
    if related is None or not has_every_row(related):
        return None
    label = plain_label(related)
    return f"{field.name}__{label}" if label is not None else None


def labels_for(request: MCPRequest, field: Any, keys: Iterable[Any]) -> dict[Any, str | None]:
    """Return the labels of the related rows that the caller may view, by the key that the relation stores."""
    related = related_exposure(request, field)
    wanted = {key for key in keys if key is not None}
    if related is None or not wanted:
        return {}
    target = related.model._meta.pk if field.many_to_many else field.target_field
    return _labels(request, related, target.attname, wanted)


def _labels(request: MCPRequest, related: "ModelExposure", target: str, wanted: set[Any]) -> dict[Any, str | None]:
    rows = related.get_queryset(request).order_by().filter(**{f"{target}__in": wanted})
    label = plain_label(related)
    if label is not None:
        return {key: clean_text(text, MAX_LABEL) for key, text in rows.values_list(target, label)}
    followed = label_relations(related.model)
    rows = rows.select_related(*followed) if followed else rows
    return {getattr(row, target): label_of(related, row) for row in rows}


def related_lists(request: MCPRequest, field: Any, pks: Sequence[Any]) -> tuple[dict[Any, list[Any]], bool]:
    """Return ``[key, label]`` pairs of a many-to-many relation by the pk of the row, and whether a list was cut.

    A list holds at most ``MAX_RELATED`` pairs; one that was cut ends with "…".
    """
    related = related_exposure(request, field)
    if related is None or not pks:
        return {}, False
    links = _links(request, related, field, pks)
    labels = labels_for(request, field, (target for _, target in links))
    renderer = field_renderer(related.model._meta.pk, None, "")
    found: dict[Any, list[Any]] = {}
    for source, target in links:
        listed = found.setdefault(source, [])
        if target in labels and len(listed) <= MAX_RELATED:
            listed.append([renderer(target) if renderer else target, labels[target]])
    cut = [listed for listed in found.values() if len(listed) > MAX_RELATED]
    for listed in cut:
        listed[MAX_RELATED:] = ["…"]
    return found, bool(cut)


def _links(request: MCPRequest, related: "ModelExposure", field: Any, pks: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return the pairs of keys that the relation's table holds for the rows, as many as can be shown of each."""
    through = field.remote_field.through
    source = through._meta.get_field(field.m2m_field_name()).attname
    target = through._meta.get_field(field.m2m_reverse_field_name()).attname
    links = through._default_manager.filter(**{f"{source}__in": pks}).order_by()
    if not has_every_row(related):
        links = links.filter(**{f"{target}__in": related.get_queryset(request).order_by().values("pk")})
    rank = Window(RowNumber(), partition_by=[F(source)], order_by=[F(target).asc()])
    pairs = links.annotate(mcp_rank=rank).filter(mcp_rank__lte=MAX_RELATED + 1).order_by(source, target)
    return list(dict.fromkeys(pairs.values_list(source, target)))
