"""The filters that a caller is allowed: fields and paths, and the lookups of each, without revealing hidden rows.

Names are looked up in allow-lists, which give columns and lookups. The rows that a filter finds must not reveal what a
hidden row holds, so a path goes no further than the caller could follow it by reading.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from django.core.exceptions import FieldDoesNotExist
from django.db.models import ForeignObjectRel

from ..schema.secrets import is_withheld
from .access import MAX_NAME, ModelAccess
from .columns import Column
from .conditions import COMPARISONS
from .fields import FieldPath, is_file_field, is_joinable, kind_of, resolve_path
from .lookups import declared_lookups
from .path import Path, computed_target, guards_on, leads_to_hidden_rows

# Lookups for columns that the admin computes.
COMPUTED: Final = (*COMPARISONS, "in", "range", "isnull")


class AllowedFilter(NamedTuple):
    """A filter that the caller is allowed: the field to filter by, and the lookups that it takes."""

    path: FieldPath
    lookups: tuple[str, ...]

    @classmethod
    def all(cls, model: ModelAccess) -> "Iterator[tuple[str, AllowedFilter]]":
        """Yield the filters that the caller is allowed, each with its name."""
        declared = model.exposure.get_filter_fields(model.request)
        names: Iterable[str] = declared or ()
        if declared is None:
            names = dict.fromkeys([*model.fields, *(path for path in _admin_paths(model) if _is_of_admin(model, path))])
        for name in names:
            found = _filter(model, name, declared)
            if found is not None:
                yield name, found

    @classmethod
    def find(cls, model: ModelAccess, text: str) -> "AllowedFilter | None":
        """Return the allowed filter of a name; None for any other name."""
        if len(text) > MAX_NAME:
            return None
        declared = model.exposure.get_filter_fields(model.request)
        own = model.field_named(text)
        text = own or text
        if declared is not None:
            if text in declared:
                return _filter(model, text, declared)
            return None
        allowed = own is not None or _is_of_admin(model, text) or Path.read(model, text).shown_column is not None
        found = _filter(model, text, None) if allowed else None
        root, _, rest = text.partition("__")
        field = model.exposure.options.model_fields.get(root)
        if found is not None or (rest and field is not None and not field.is_relation):
            # A name that begins with a plain field is that field with a lookup: no computed column can be meant.
            return found
        # A computed column of numbers or dates only: the admin may show another text than the one that it sorts by.
        target = computed_target(model, text, lambda column: column.is_ordering())
        if target is None:
            return None
        lookups = tuple(name for name in kind_of(target.column.field).usual_lookups if name in COMPUTED)
        return cls(FieldPath(target.name, target.column.field, False, True, expression=target.expression), lookups)

    @staticmethod
    def is_open(model: ModelAccess, path: str) -> bool:
        """Return whether this caller is allowed the project's filters on a path: no row on it is hidden."""
        if path not in model.fields and not _is_of_admin(model, path):
            return False
        found = resolve_path(model.exposure.model, path)
        return found is not None and not leads_to_hidden_rows(model.access, model.exposure.model, found.column)


def _filter(model: ModelAccess, name: str, declared: Mapping[str, Sequence[str]] | None) -> AllowedFilter | None:
    exposure = model.exposure
    root, _, rest = name.partition("__")
    path = resolve_path(exposure.model, name)
    if path is None or not _is_open(model, root, rest, declared):
        return None
    # Only the first hop may lead to many rows: the rest of the path is resolved from the related model.
    field: Any = exposure.opts.pk if root == "pk" else exposure.opts.get_field(root)
    leads_to_many = bool(field.many_to_many or field.one_to_many)
    inner = resolve_path(field.related_model, rest) if path.many and rest and leads_to_many else None
    if path.many and (not leads_to_many or (rest and (inner is None or inner.many))):
        return None
    if path.field.many_to_many and not is_joinable(path.field):
        return None
    if rest:
        if model.is_kept_from(name):
            return None
        guards = guards_on(model.access, exposure.model, path.column)
        if guards is not None and inner is not None:
            guards = guards_on(model.access, field.related_model, inner.column)
        if guards is None:
            return None
        path = replace(path, guards=guards)
    lookups = kind_of(path.field).usual_lookups
    if declared is not None and isinstance(declared, Mapping):
        lookups = declared_lookups(path, declared[name])
    if not path.nullable and not is_file_field(path.field):
        lookups = tuple(lookup for lookup in lookups if lookup != "isnull")
    return AllowedFilter(path, lookups) if lookups else None


def _is_open(model: ModelAccess, name: str, rest: str, declared: Mapping[str, Sequence[str]] | None) -> bool:
    """Return whether filters on the field are allowed: the caller reads it as it is, or the admin's sidebar has it.

    A reverse relation is not a column: a path that begins with one is allowed by its declaration.
    """
    if name in model.fields:
        column = model.column(name)
        return column is not None and column.is_plain
    if rest and isinstance(_relation(model, name), ForeignObjectRel):
        return True
    return declared is None and _is_of_admin(model, f"{name}__{rest}" if rest else name)


# Filters of the admin


def _admin_paths(model: ModelAccess) -> Iterator[str]:
    """Yield the fields and paths on which filters are allowed because the admin's ``list_filter`` has them."""
    for item in model.exposure.get_list_filter(model.request):
        path = item[0] if isinstance(item, (list, tuple)) else item
        if isinstance(path, str):
            yield path


def _is_of_admin(model: ModelAccess, path: str) -> bool:
    """Return whether the admin's ``list_filter`` allows the caller to filter by the path."""
    if path not in _admin_paths(model):
        return False
    root, _, rest = path.partition("__")
    if not rest:
        return is_shown_by_admin(model, path)
    column = Column.of(model.exposure, root)
    if column is None or root in model.fields or not is_shown_by_admin(model, root):
        return _sees_path(model, path)
    related = followed(model, model, column.field.related_model)
    return related is not None and _sees_path(related, rest)


def followed(start: ModelAccess, model: ModelAccess, related: Any) -> ModelAccess | None:
    """Return the access to a related model on a path that the admin of ``start`` declares; None if there is none.

    Of a model that only the admin has, such as users, callers see in the admin what the path ends at, or which row it
    is: they have to be able to view all of it there.
    """
    there = model.access.model_of(related)
    if there is not None:
        return there
    closed = start.exposure.options.closed_exposure(related) if related is not None else None
    if closed is None or not (model.access[closed].is_there and model.access[closed].sees_every_row):
        return None
    return model.access[closed]


def is_shown_by_admin(model: ModelAccess, name: str) -> bool:
    """Return whether filters on a field that no page shows are allowed, as the admin's ``list_filter`` has it.

    An exposure with ``fields`` of its own has already said what callers may know of a row. A field that is hidden from
    this caller alone stays hidden, and so does a field that the exposure of its own model hides.
    """
    exposure = model.exposure
    if exposure.fields is not None or name in exposure.exclude or is_withheld(name, exposure.model):
        return False
    column = Column.of(exposure, name)
    if column is None or not column.is_plain or model.is_kept_from(name):
        return False
    if column.lists_rows and model.access.model_of(column.field.related_model) is None:
        return False
    owner = column.field.model
    if owner is exposure.model:
        return True
    parent = model.access.request.mcp.site.exposures.get(owner)
    return parent is None or name in model.access[parent].fields or is_shown_by_admin(model.access[parent], name)


def _sees_path(start: ModelAccess, path: str) -> bool:
    """Return whether filters on a path are allowed: the caller could follow it by reading one model after the other."""
    *hops, last = path.split("__")
    model = start
    for name in hops:
        relation = _relation(model, name)
        related = followed(start, model, relation.related_model) if relation is not None else None
        if related is None:
            return False
        model = related
    return model.field_named(last) is not None or is_shown_by_admin(model, last)


def _relation(model: ModelAccess, name: str) -> Any:
    """Return the relation that an allowed filter may follow: one that the caller reads, or one that points here."""
    try:
        field = model.exposure.opts.get_field(name)
    except FieldDoesNotExist:
        return None
    if isinstance(field, ForeignObjectRel):
        if model.access.model_of(field.related_model) is not None:
            return field
        return None
    column = model.column(name)
    if column is not None and column.is_plain and (column.is_foreign_key or column.lists_rows):
        return field
    return None
