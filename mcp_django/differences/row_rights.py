"""Whether a caller may write stored rows back: through the pages of the admin that would write them, row by row.

What the caller sees of a row of an exposed model decides, as for any write of it. An inline row goes with the page that
shows it, a link of a many-to-many field with the row that has the field. What a deletion took along of models that
nobody registered, the admin lets go without a permission of its own; so it can come back.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal

from django.contrib.contenttypes.fields import GenericForeignKey
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model, QuerySet

from ..context.request import MCPRequest
from ..context.stored_columns import Cell
from ..emulation.inline_rows import InlineRows, PageInlines, is_generic, link_of
from ..emulation.saving import RowPage
from ..exceptions import NotPermitted
from ..exposures.model_exposure import DeletionSite, ModelExposure
from ..orm.access import ModelAccess, access_of
from ..orm.column_values import pk_text
from ..orm.labels import label_of
from ..orm.pagination import chunks
from ..orm.row_finder import RowFinder
from ..orm.undecodable_values import all_readable
from .cascades import concrete, with_parents
from .differing_rows import Target, key_value
from .footprints import Change
from .restoration_order import foreign_keys
from .stored_rows import Key, stored_table

# What is done with a stored row.
Deed = Literal["add", "change", "delete"]
# The rows of one table that nobody has allowed yet.
Left = dict[Key, Deed]

NO_FIELDS: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})
INSTEAD: Final = (
    "Ask somebody who may write all of these rows to take it back in the admin, or write the values that you want to "
    "the rows that you see."
)
HIDDEN: Final = f"It also wrote rows that you cannot see or may not write now. Nothing was changed. {INSTEAD}"
REFUSED: Final = f"You may not {{}} {{}} now, which this needs. Nothing was changed. {INSTEAD}"


def deed_of(change: Change) -> Deed:
    """Return what is done with a row, by the row before and after."""
    before, after = change
    if before is None:
        return "add"
    return "change" if after is not None else "delete"


class RowRights:
    """The rights of a caller to write these rows, by table and key as they are and as they will be, on one database.

    ``labels`` are those of the models through which they were written: their exposures are asked first. ``fields`` are
    those that the caller gave values for, by label: they have to be open to the caller, in the row as it is or as it
    will be; what hooks wrote besides goes back with them.

    Call :meth:`check_before` before the rows are written and :meth:`check_after` afterwards: both raise
    ``NotPermitted``. ``shown`` are the rows that the caller sees by then, and ``pages`` those of which only links or
    inline rows are written; ``deeds`` says what is done with those of ``shown``.
    """

    def __init__(
        self,
        request: MCPRequest,
        using: str,
        planned: Mapping[type[Model], Mapping[Key, Change]],
        labels: Sequence[str],
        fields: Mapping[str, Sequence[str]] = NO_FIELDS,
    ) -> None:
        self.request = request
        self.using = using
        self.access = access_of(request)
        self.planned = planned
        self.shown: dict[ModelAccess, dict[Any, Model]] = defaultdict(dict)
        self.deeds: dict[tuple[ModelAccess, Any], Deed] = {}
        self.pages: dict[ModelAccess, dict[Any, Model]] = defaultdict(dict)
        exposures = request.mcp.site.exposures_by_label
        self.named = [self.access[exposures[label]] for label in labels if label in exposures]
        self.fields = fields
        # The fields of rows that were closed to the caller each time that they were looked at.
        self._closed: dict[tuple[ModelAccess, Any], set[str]] = {}
        self._refused: list[str] = []
        self._by_value: dict[type[Model], dict[Any, Key]] = {}
        self._moved: dict[tuple[type[Model], str], set[Cell]] = {}

    def check_before(self) -> None:
        """Raise ``NotPermitted`` unless the caller may write the rows that are there now."""
        self._check("change", "delete")

    def check_after(self) -> None:
        """Raise ``NotPermitted`` unless the caller sees, and may write, the rows that are there now."""
        self._check("add", "change")
        for (model, key), names in self._closed.items():
            if names:
                what = f"{', '.join(sorted(names))} of {model.exposure.label} {pk_text(key)}"
                raise NotPermitted(REFUSED.format("change", what))
        if not self.shown and not self.pages:
            raise NotPermitted(HIDDEN)

    @property
    def targets(self) -> list[Target]:
        """The rows that the caller sees of those that are written, and of the pages that have them."""
        found = {(model, pk_text(key)): Target(model, key) for model, rows in self.shown.items() for key in rows}
        for model, rows in self.pages.items():
            for key in rows:
                found.setdefault((model, pk_text(key)), Target(model, key))
        return list(found.values())

    def _check(self, *deeds: Deed) -> None:
        self._refused = []
        for table, changes in self.planned.items():
            left = {key: deed for key, change in changes.items() if (deed := deed_of(change)) in deeds}
            for allow in (self._allow_rows, self._allow_inlines, self._allow_links, self._allow_taken_along):
                if left:
                    allow(table, left)
            if left:
                raise NotPermitted(self._refused[0] if self._refused else HIDDEN)

    def _change_of(self, table: type[Model], value: Any) -> Change | None:
        """Return what is done with the row of a table that has this key as a Python value."""
        if table not in self._by_value:
            self._by_value[table] = {key_value(table, key): key for key in self.planned.get(table, ())}
        key = self._by_value[table].get(value)
        return None if key is None else self.planned[table][key]

    def _comes_or_goes(self, table: type[Model], value: Any) -> bool:
        change = self._change_of(table, value)
        return change is not None and None in change

    # Rows of exposed models

    def accesses(self, table: type[Model]) -> Iterator[ModelAccess]:
        """Yield the models through which the caller may see rows of a table, the named ones first."""
        exposed = [
            self.access[one] for one in self.request.mcp.site.exposures.values() if not isinstance(one, InlineRows)
        ]
        for model in dict.fromkeys([*self.named, *exposed]):
            if table in with_parents(model.exposure.model) and model.is_there:
                yield model

    def _allow_rows(self, table: type[Model], left: Left) -> None:
        for model in self.accesses(table):
            keys = {key_value(table, key): key for key in left}
            for value, row in RowFinder(model).by_key(list(keys)).items():
                deed = left[keys[value]]
                if not self._may(model, "view", row):
                    continue
                if not self._may(model, deed, row):
                    self._refused.append(
                        REFUSED.format(deed, f"{model.exposure.label} {label_of(model.exposure, row)}")
                    )
                    continue
                if deed == "change":
                    self._look_at_fields(model, row)
                self.shown[model][value] = row
                self.deeds[model, value] = deed
                del left[keys[value]]

    def _may(self, model: ModelAccess, deed: str, row: Model) -> bool:
        exposure = model.exposure
        if deed == "add":
            self.request.go_to(exposure, "add")
            return model.may_row("add")
        self.request.go_to(exposure, "delete" if deed == "delete" else "change", row.pk)
        return model.may_row(deed, row)

    def _look_at_fields(self, model: ModelAccess, row: Model) -> None:
        """Note which of the fields that were given are closed to the caller in the row as it is now."""
        exposure = model.exposure
        given = self.fields.get(exposure.label, ())
        names = [field.name for field in (*exposure.opts.fields, *exposure.opts.many_to_many) if field.name in given]
        if names:
            read_only = exposure.get_readonly_fields(self.request, row)
            open_fields = RowPage(model, row).nameable()
            closed = {name for name in names if name in read_only or name not in open_fields}
            key = model, row.pk
            self._closed[key] = closed & self._closed.get(key, closed)

    # Rows of pages

    def _may_change_page(self, model: ModelAccess, row: Model) -> bool:
        """Return whether the caller may save the page of a row: it is there before and after, or comes or goes."""
        if self._comes_or_goes(concrete(model.exposure.model), row.pk):
            # The right to delete or add it is asked for with its own row.
            return self._may(model, "view", row)
        if self._may(model, "view", row) and self._may(model, "change", row):
            self._look_at_fields(model, row)
            self.pages[model][row.pk] = row
            return True
        return False

    def _allow_inlines(self, table: type[Model], left: Left) -> None:
        for exposure in self.request.mcp.site.exposures.values():
            for inline in exposure.options.inlines:
                if left and table in with_parents(inline.model) and self.access[exposure].is_there:
                    self._allow_inline(self.access[exposure], inline, table, left)

    def _allow_inline(self, model: ModelAccess, inline: type[Any], table: type[Model], left: Left) -> None:
        """Allow rows that the caller may write as rows of an inline, on the pages of their parents."""
        exposure = model.exposure
        admin = inline(exposure.model, exposure.model_admin.admin_site)
        keys = {key_value(table, key): key for key in left}
        rows = []
        for chunk in chunks(list(keys)):
            with all_readable():
                rows += admin.get_queryset(self.request).filter(pk__in=chunk)
        for row, parent in self._with_parents(model, admin, rows):
            if not self._may_change_page(model, parent):
                continue
            shown = [one.admin for one in PageInlines(model, parent).all if type(one.admin) is inline]
            deed = left[keys[row.pk]]
            if any(self._inline_allows(one, deed, parent) for one in shown):
                del left[keys[row.pk]]

    def _inline_allows(self, admin: Any, deed: Deed, parent: Model) -> bool:
        return bool(getattr(admin, f"has_{deed}_permission")(self.request, parent))

    def _with_parents(self, model: ModelAccess, admin: Any, rows: Sequence[Model]) -> Iterator[tuple[Model, Model]]:
        """Yield inline rows with their parent rows, those that the caller sees."""
        exposure = model.exposure
        if is_generic(admin):
            kind = ContentType.objects.get_for_model(exposure.model).pk
            type_name = admin.opts.get_field(admin.ct_field).attname
            pointers = [(row, getattr(row, admin.ct_fk_field)) for row in rows if getattr(row, type_name) == kind]
            target: Any = exposure.opts.pk
        else:
            link = link_of(exposure, admin)
            if link is None:
                # Only the project's own code knows whose rows these are.
                return
            pointers = [(row, getattr(row, link.attname)) for row in rows]
            target = link.target_field
        values = {target.to_python(value) for _, value in pointers if value is not None}
        found = RowFinder(model).by_values([target.name], [(value,) for value in values])
        parents = {getattr(parent, target.attname): parent for parent in found}
        for row, value in pointers:
            parent = parents.get(target.to_python(value))
            if parent is not None:
                yield row, parent

    # Links of many-to-many fields

    def _allow_links(self, table: type[Model], left: Left) -> None:
        """Allow links of rows that the caller may change: they are part of the row that has the field."""
        owner: Any = table._meta.auto_created
        if not owner:
            return
        [field] = [one for one in owner._meta.local_many_to_many if one.remote_field.through is table]
        end: Any = table._meta.get_field(field.m2m_field_name())
        keys: dict[Any, list[Key]] = defaultdict(list)
        for key in left:
            for cell in self._cells(table, key, end.attname):
                keys[key_value(owner, (cell,))].append(key)
        for model in self.accesses(concrete(owner)):
            for value, row in RowFinder(model).by_key(list(keys)).items():
                if self._may_change_page(model, row):
                    for key in keys.pop(value):
                        left.pop(key, None)

    # Rows that a deletion takes along

    def _allow_taken_along(self, table: type[Model], left: Left) -> None:
        """Allow rows that refer to rows that come or go, as the admin's deletion page does: it asks the model for the
        permission, also where a queryset hides the row, and asks for none where nobody registered the model."""
        tied = [key for key in left if self._refers_to_what_comes_or_goes(table, key)]
        registry = DeletionSite(self.request.mcp.site)
        is_registered = registry.is_registered(table) and not isinstance(registry.exposures.get(table), InlineRows)
        if not is_registered:
            for key in tied:
                del left[key]
            return
        found = self._rows_now(table, tied)
        for key in tied:
            row = found.get(key_value(table, key))
            if self._permits(registry.get_model_admin(table), left[key], row):
                del left[key]

    def _permits(self, owner: Any, deed: Deed, row: Model | None) -> bool:
        """Return whether an exposure or a ``ModelAdmin`` has a permission for the caller."""
        about = () if deed == "add" or row is None else (row,)
        if isinstance(owner, ModelExposure):
            return self.access[owner].may_row(deed, *about)
        return bool(getattr(owner, f"has_{deed}_permission")(self.request, *about))

    def _rows_now(self, table: type[Model], keys: Sequence[Key]) -> dict[Any, Model]:
        # No manager: some rows of a deletion are hidden by managers.
        rows: QuerySet[Any] = QuerySet(table, using=self.using)
        found: dict[Any, Model] = {}
        for chunk in chunks([key_value(table, key) for key in keys]):
            with all_readable():
                found.update((row.pk, row) for row in rows.filter(pk__in=chunk))
        return found

    def _refers_to_what_comes_or_goes(self, table: type[Model], key: Key) -> bool:
        for pointer in foreign_keys(table):
            if not self._cells(table, key, pointer.name).isdisjoint(self._moving(pointer.target, pointer.target_name)):
                return True
        return any(self._is_generic_part(table, key, field) for field in table._meta.private_fields)

    def _moving(self, table: type[Model], name: str) -> set[Cell]:
        """Return what a column holds in the rows of a table that come or go."""
        if (table, name) not in self._moved:
            stored = stored_table(table, self.using)
            changes = [change for change in self.planned.get(table, {}).values() if None in change]
            rows = [before or after or () for before, after in changes]
            self._moved[table, name] = {stored.cell_of(row, name) for row in rows}
        return self._moved[table, name]

    def _is_generic_part(self, table: type[Model], key: Key, field: Any) -> bool:
        """Return whether a row refers to one that comes or goes by a generic relation."""
        if not isinstance(field, GenericForeignKey):
            return False
        kind: Any = table._meta.get_field(field.ct_field)
        types = ContentType.objects.db_manager(self.using)
        for number in self._cells(table, key, kind.attname) - {None}:
            target = types.get_for_id(number).model_class()  # type: ignore[arg-type]
            if target is None or len(target._meta.pk_fields) != 1:
                continue
            going = {str(cell) for cell in self._moving(concrete(target), target._meta.pk.attname)}
            if not going.isdisjoint(map(str, self._cells(table, key, field.fk_field))):
                return True
        return False

    def _cells(self, table: type[Model], key: Key, name: str) -> set[Cell]:
        """Return what a column of a row holds before and after."""
        stored = stored_table(table, self.using)
        return {stored.cell_of(row, name) for row in self.planned[table][key] if row is not None}
