"""Access: which models, fields, actions, relations and rows a request may see and use, worked out once.

Anything that is missing, hidden, filtered out or forbidden gives the same answer, as if it did not exist. Names that
clients send are looked up in allow-lists and never become ORM keywords.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, Generic, Literal, TypeVar

import orjson
from django.contrib.admin import AdminSite
from django.contrib.auth import get_permission_codename
from django.db.models import CompositePrimaryKey, Field, Model, OneToOneRel, OuterRef, QuerySet

from ..context.admin_page import OwnPlace
from ..context.request import MCPRequest
from ..exceptions import NotFound, ToolError
from ..exposures.model_exposure import ModelExposure
from ..exposures.querysets import among, leaves_out_nothing
from ..models import Switch
from ..runtime.failing_hooks import call_hook, note_failure
from .column_values import iso_text, plain_key
from .columns import Column
from .compiled_queries import row_by_key
from .fields import (
    is_generic_key,
    is_generic_relation,
    is_joinable,
    is_json_field,
    kind_of,
    link_table,
    linked_reader,
    stored_field,
)
from .permission_queries import EVERYTHING, known_permissions
from .serializer_columns import read_fields
from .undecodable_values import all_readable

T = TypeVar("T")
D = TypeVar("D")
# Why a caller has no access: the model is switched off, the call is narrowed to other models, the admin site does not
# let them in, they lack the permission, or code of the project refuses it.
Reason = Literal["", "off", "narrowed", "not admitted", "no permission", "refused"]
MAX_NAME: Final = 200
# Maximum number of rows to try with hooks that decide by row.
MAX_SAMPLE: Final = 3


def access_of(request: MCPRequest) -> "Access":
    """Return the access rights of the request's user, worked out once; another user on the same request starts anew."""
    kept: Access | None = request.__dict__.get("_mcp_access")
    if kept is None or kept.user is not request.user:
        kept = request.__dict__["_mcp_access"] = Access(request)
    return kept


class Access:
    """What the user of one request can see and do: models, fields, actions, rows; ``access[exposure]`` is one model."""

    def __init__(self, request: MCPRequest) -> None:
        self.request = request
        self.user = request.user
        self._models: dict[ModelExposure, ModelAccess] = {}
        self._admitted: dict[AdminSite, bool] = {}
        self._verdicts: dict[str, bool] = {}
        # The models that were found so far, and the number of exposures that were checked for that.
        self._reached: list[ModelAccess] = []
        self._checked = 0

    def __getitem__(self, exposure: ModelExposure) -> "ModelAccess":
        found = self._models.get(exposure)
        if found is None:
            found = self._models[exposure] = ModelAccess(self, exposure)
        return found

    @cached_property
    def known(self) -> AbstractSet[str] | None:
        """The caller's permission names, if those alone decide on their access; None where other code decides too."""
        return known_permissions(self.user)

    @cached_property
    def _exposed(self) -> Mapping[str, ModelExposure]:
        by_label: Mapping[str, ModelExposure] = self.request.mcp.site.exposures_by_label
        return by_label

    def may_any(self, deed: str) -> bool:
        """Return whether the caller has access to view, add, change or delete any rows, or to run any action ("run").

        Checks no more models than it needs, or takes the caller's models if they are known already.
        """
        if deed not in self._verdicts:
            self._verdicts[deed] = self._may_any(deed)
        return self._verdicts[deed]

    def _may_any(self, deed: str) -> bool:
        for model in self.each_model():
            if deed == "view":
                return True
            if deed == "run":
                if model.actions:
                    return True
            elif model.may(deed):
                return True
        return False

    def each_model(self) -> "Iterator[ModelAccess]":
        """Yield the models that the caller has access to, in the site's order; each is checked when it is reached."""
        yield from self._reached
        off = self.request.mcp.off
        for exposure in self._exposures[self._checked :]:
            self._checked += 1
            model = self[exposure]
            # ``is_there``, without the cost of asking each model whether anything is switched off.
            if model.may("view") and (off is None or model.off is None):
                self._reached.append(model)
                yield model

    @cached_property
    def models(self) -> "list[ModelAccess]":
        """The models that the caller has access to, in the site's order."""
        return list(self.each_model())

    @cached_property
    def _exposures(self) -> list[ModelExposure]:
        return list(self._exposed.values())

    @cached_property
    def exposures(self) -> list[ModelExposure]:
        """The exposures of these models."""
        return [model.exposure for model in self.models]

    def get_model(self, label: Any) -> "ModelAccess":
        """Return the caller's access to a model named as in ``shop.order``, in any case.

        Raises ``NotFound`` if they have no access to such a model, ``CallRefused`` if it is switched off.
        """
        exposure = None
        if isinstance(label, str) and len(label) <= MAX_NAME:
            name = label.lower()
            exposure = self._exposed.get(name) or self.request.mcp.site.find_exposure(name)
        model = self[exposure] if exposure is not None else None
        if model is None or not model.may("view"):
            raise NotFound
        model.refuse_switched()
        return model

    def model_of(self, model: type[Model] | None) -> "ModelAccess | None":
        """Return the caller's access to a model by its class, None if they have none."""
        exposure = self._exposed.get(model._meta.label_lower) if model is not None else None
        if exposure is not None and exposure.model is model and self[exposure].is_there:
            return self[exposure]
        return None

    @cached_property
    def refusal(self) -> str:
        """The reason why the caller has access to no model, other than missing permissions; "" for none."""
        if self.exposures:
            return ""
        exposures = self._exposed.values()
        return next((text for exposure in exposures if (text := exposure.get_refusal(self.request))), "")

    def admits(self, admin_site: AdminSite) -> bool:
        """Return whether the admin site admits the caller; it is asked once.

        A site whose ``has_permission`` fails, such as one that needs a browser session, admits nobody.
        """
        if admin_site not in self._admitted:
            hook = admin_site.has_permission
            name = admin_site.name
            self._admitted[admin_site] = bool(call_hook(name, "has_permission", hook, self.request, default=False))
        return self._admitted[admin_site]


class _OfUser(Generic[T]):
    """A property of a ``ModelAccess``, worked out once. Raises ``NotFound`` once the request has another user."""

    def __init__(self, function: Callable[["ModelAccess"], T]) -> None:
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__

    def __get__(self, model: "ModelAccess", owner: type | None = None) -> T:
        if model.access.request.user is not model.access.user:
            raise NotFound
        values = model._values
        if self.name not in values:
            values[self.name] = self.function(model)
        found: T = values[self.name]
        return found


class ModelAccess:
    """A caller's access to one model: permissions, actions, fields, relations and rows.

    Functions take it in place of a request and an exposure. It belongs to one user in one call: once the request has
    another user, its permissions, fields and rows raise ``NotFound``, and :func:`access_of` works out new ones. It is
    never kept beyond the call, neither in a cache nor in the key of a compiled query.
    """

    def __init__(self, access: Access, exposure: ModelExposure) -> None:
        self.access = access
        self.exposure = exposure
        self._verdicts: dict[str, bool] = {}
        self._values: dict[str, Any] = {}

    @property
    def request(self) -> MCPRequest:
        """The request of the call. Raises ``NotFound`` if its user is no longer the one whose access this is."""
        request = self.access.request
        if request.user is not self.access.user:
            raise NotFound
        return request

    # Permissions

    def may(self, deed: str) -> bool:
        """Return whether the caller has access to view, add, change or delete rows, even of a switched-off model."""
        if self.access.request.user is not self.access.user:
            raise NotFound
        if deed not in self._verdicts:
            verdict = self.stock_verdict(deed)
            if verdict is None:
                hook = f"has_{deed}_permission"
                verdict = not self.is_narrowed and bool(
                    self._on_list(hook, getattr(self.exposure, hook), default=False)
                )
            self._verdicts[deed] = verdict
        return self._verdicts[deed]

    def may_row(self, deed: str, *row: Model) -> bool:
        """Return whether the caller has access to view, change or delete this row or, without a row, to add rows now.

        If the call is narrowed to other models, nobody has access.
        """
        verdict = self.stock_verdict(deed)
        if verdict is not None:
            return verdict
        return not self.is_narrowed and bool(getattr(self.exposure, f"has_{deed}_permission")(self.request, *row))

    def stock_verdict(self, deed: str) -> bool | None:
        """Return whether the caller's permissions allow it, for each row alike; None if hooks have to be asked."""
        if self.access.request.user is not self.access.user:
            raise NotFound
        enough = self.exposure.options.permissions.get(deed)
        known = self.access.known
        if enough is None or known is None:
            return None
        return self.is_admitted and (known is EVERYTHING or not known.isdisjoint(enough))

    @cached_property
    def is_narrowed(self) -> bool:
        """Whether the call was narrowed to other models."""
        narrowing = self.access.request.mcp.narrowing
        return narrowing is not None and not narrowing.admits(self.exposure.model)

    @cached_property
    def is_admitted(self) -> bool:
        """Whether access to the model is open to the caller: its site admits them, and the call is not narrowed."""
        admin_site = self.exposure.options.admin_site
        return not self.is_narrowed and (admin_site is None or self.access.admits(admin_site))

    def why_not(self) -> Reason:
        """Return why the caller has no access to the model, "" if they have."""
        if self.may("view"):
            return "off" if self.off is not None else ""
        if not self.is_admitted:
            return "narrowed" if self.is_narrowed else "not admitted"
        opts = self.exposure.opts
        names = (f"{opts.app_label}.{get_permission_codename(name, opts)}" for name in ("view", "change"))
        if any(map(self.access.user.has_perm, names)):
            return "refused"
        return "no permission"

    def _on_list(self, hook: str, ask: Callable[..., T], *, default: D) -> T | D:
        """Ask a hook for the caller's access, called as on the admin's list; return ``default`` if it fails."""
        exposure = self.exposure
        # Those who call this have checked whose request it is.
        request = self.access.request
        if not exposure.options.permits_by_place:
            # The same as call_hook(), without the cost of calling it for each model.
            try:
                return ask(request)
            except Exception as error:
                note_failure(exposure.label, hook, error)
                return default
        with OwnPlace(request):
            request.go_to(exposure, "changelist")
            return call_hook(exposure.label, hook, ask, request, default=default)

    # Switches

    @property
    def off(self) -> Switch | None:
        """The switch that turns the model off at present, None if it is on."""
        off = self.access.request.mcp.off
        return None if off is None else off.model(self.exposure.label)

    @property
    def is_there(self) -> bool:
        """Whether the caller has access to the model at all; a model that is switched off gives access to nobody."""
        off = self.access.request.mcp.off
        return (off is None or off.model(self.exposure.label) is None) and self.may("view")

    def refuse_switched(self, action: str = "") -> None:
        """Raise ``CallRefused`` if an operator has switched off the model, or its action of this name."""
        off = self.access.request.mcp.off
        found = self.off or (off.action(self.exposure.label, action) if action and off is not None else None)
        if found is not None:
            raise found.refusal()

    # Actions

    @_OfUser
    def permitted_actions(self) -> Mapping[str, Any]:
        """The actions that the caller has access to, switched off or not."""
        if self.is_narrowed:
            return {}
        return self._on_list("get_actions", self.exposure.get_actions, default={})

    @property
    def actions(self) -> Mapping[str, Any]:
        """The actions that the caller has access to, without those that are switched off."""
        found = self.permitted_actions
        off = self.access.request.mcp.off
        if off is None:
            return found
        return {name: action for name, action in found.items() if off.action(self.exposure.label, name) is None}

    # Fields

    @_OfUser
    def fields(self) -> tuple[str, ...]:
        """The names of the fields that the caller has access to for reading, the primary key's first."""
        return self._fields_of(None)

    def fields_of(self, row: Model | None) -> tuple[str, ...]:
        """Return the names of a row's fields that the caller has access to for reading, the primary key's first."""
        if row is None or not self.exposure.options.has_own_pages:
            return self.fields
        return self._fields_of(row)

    def _fields_of(self, row: Model | None) -> tuple[str, ...]:
        exposure = self.exposure
        only_key = exposure.options.with_primary_key(())
        request = self.access.request
        names = call_hook(exposure.label, "get_fields", exposure.get_fields, request, row, default=only_key)
        if exposure.serializer_class is not None:
            shown = read_fields(exposure)
            if exposure.fields is not None and exposure.fields != "__all__":
                shown = tuple(name for name in shown if name in names)
            names = exposure.options.with_primary_key(name for name in shown if name not in exposure.exclude)
        return self.readable(names)

    def readable(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names that the caller has access to for reading: columns that no other exposure hides."""
        names = tuple(names)
        if _are_its_own(self.exposure, names):
            return names
        return tuple(name for name in names if self._is_readable(name))

    def _is_readable(self, name: str) -> bool:
        exposure = self.exposure
        column = Column.of(exposure, name)
        if column is None:
            return False
        field = column.field
        if column.lists_rows:
            return self.access.model_of(field.related_model) is not None
        if column.is_computed and field is not None:
            related = self.access.model_of(field.related_model)
            return related is not None and related.exposure.options.has_every_row
        if field is None or field.model is exposure.model or field.primary_key:
            return True
        # For an inherited field: does the exposure of the parent model show it?
        parent = self.access.request.mcp.site.exposures.get(field.model)
        return (
            parent is None
            or exposure.options.declares_field(name)
            or field.name in call_hook(parent.label, "get_fields", parent.get_fields, self.request, default=())
        )

    @_OfUser
    def page_fields(self) -> tuple[str, ...]:
        """Of the fields that the caller has access to, the names of those that a page shows if none are chosen."""
        exposure = self.exposure
        fields = self.fields
        if exposure.serializer_class is not None and not exposure.list_display:
            return fields
        shown = set(exposure.get_list_display(self.access.request))
        return tuple(name for name in fields if name in shown)

    def field_named(self, text: str) -> str | None:
        """Return the accessible field that a client means, also by ``pk`` or ``customer_id``; None if there is none."""
        fields = self.fields
        if text in fields:
            return text
        if text == "pk":
            return fields[0]
        for name in fields:
            column = Column.of(self.exposure, name)
            if column is not None and column.is_foreign_key and column.field.attname == text:
                return name
        return None

    def column(self, name: str) -> Column | None:
        """Return the accessible column of a name, None if the caller has no access to it."""
        if name in self.fields:
            return Column.of(self.exposure, name)
        return None

    def is_file(self, name: str) -> bool:
        """Return whether the column of a name is one for files, on the model itself, accessible or not."""
        column = Column.of(self.exposure, name) if "__" not in name else None
        return column is not None and column.is_file()

    def column_named(self, text: str) -> Column | None:
        """Return the accessible column that a client's name means, None if the caller has no access to it."""
        name = self.field_named(text)
        if name is not None:
            return Column.of(self.exposure, name)
        return None

    def is_kept_from(self, path: str) -> bool:
        """Return whether the field at the end of a path could be one that code of the project keeps from this caller.

        They do not read it, and a hook decides who does. Names that are not those of fields end the path.
        """
        model = self
        for name in path.split("__"):
            options = model.exposure.options
            opts = model.exposure.opts
            field = opts.pk if name == "pk" else options.model_fields.get(name)
            if field is None:
                field = next((item for item in opts.concrete_fields if item.attname == name), None)
            if field is None:
                return False
            if not field.auto_created and options.may_take(field) and model.field_named(name) is None:
                return True
            related = field.related_model if field.is_relation else None
            there = self.access.request.mcp.site.exposures.get(related) if related is not None else None
            if there is None:
                return False
            model = self.access[there]
        return False

    # Relations

    def to_one(self, name: str) -> Any:
        """Return the accessible relation to one row: a foreign key, or the end of a one-to-one."""
        column = self.column(name)
        if column is not None and column.is_foreign_key:
            return column.field if column.is_plain and is_joinable(column.field) else None
        link = self.link(name)
        # Instances and queries must know the relation by the same name.
        if link is None or not isinstance(link.field, OneToOneRel) or link.field.name != link.field.get_accessor_name():
            return None
        if not link.exposure.opts.is_composite_pk:
            return link.field
        return None

    def link(self, text: str) -> "Link | None":
        """Return the accessible relation of a name, None if the caller has no access to the related rows.

        The caller must be able to read the relation on this model, or its foreign key on the related model. ``text`` is
        the name of the field, or the name of a reverse relation in queries or on instances.
        """
        field: Any
        if (column := self.column(text)) is not None:
            field = column.field if column.is_plain or column.lists_rows else None
        else:
            field = _pointing(self.exposure).get(text)
            there = self.access.model_of(field.related_model) if field is not None else None
            if there is None or there.field_named(field.field.name) is None:
                return None
        if field is None or not field.is_relation or is_generic_key(field) or is_generic_relation(field):
            return None
        related = self.access.model_of(field.related_model)
        return Link(text, field, related) if related is not None and is_joinable(field) else None

    @property
    def links(self) -> "list[Link]":
        """The relations to several rows that the caller has access to from this model, each by one name."""
        pointing = (rel.get_accessor_name() for rel in self.exposure.opts.related_objects)
        found: dict[Any, Link] = {}
        for name in dict.fromkeys([*self.fields, *pointing]):
            link = self.link(name) if name else None
            if link is not None and link.to_many:
                found.setdefault(link.field, link)
        return list(found.values())

    # Rows

    @_OfUser
    def sees_every_row(self) -> bool:
        """Whether this caller has access to all rows of the table, by what ``get_queryset`` gives them."""
        exposure = self.exposure
        return exposure.options.has_every_row or call_hook(
            exposure.label,
            "get_queryset",
            lambda: leaves_out_nothing(exposure.get_queryset(self.request)),
            default=False,
        )

    def sample_rows(self) -> Iterator[Model]:
        """Yield rows that decide on access to the model if the caller names none: an empty one, then visible ones.

        They are for hooks that decide by row: Django calls these without a row only for its add page.
        """
        empty = call_hook("", "__init__", self.exposure.model, default=None)
        if empty is not None:
            yield empty
        yield from self._first_rows

    @_OfUser
    def _first_rows(self) -> list[Model]:
        def read() -> list[Model]:
            rows = self.exposure.get_queryset(self.request).order_by("pk")[:MAX_SAMPLE]
            return [row for row in rows if self.may_row("view", row)]

        none: list[Model] = []
        return call_hook(self.exposure.label, "get_queryset", read, default=none)

    def bare_pk(self, given: Any) -> Any:
        """Return the primary key that a caller wrote, without the label that results show beside it: a relation, such
        as that of a child model to its parent, is shown as ``[key, label]``."""
        return given if self.exposure.opts.is_composite_pk else plain_key(given)

    def parse_pk(self, raw: Any) -> Any:
        """Return a primary key from its text, of which only one spelling is read. Raises ``NotFound`` for others."""
        fields: Sequence[Any] = self.exposure.opts.pk_fields
        if len(fields) == 1:
            return _strict(fields[0], self.bare_pk(raw))
        if isinstance(raw, str) and len(raw) <= 1000:
            try:
                raw = orjson.loads(raw)
            except orjson.JSONDecodeError:
                raise NotFound from None
        if not isinstance(raw, list) or len(raw) != len(fields):
            raise NotFound
        return tuple(_strict(field, part) for field, part in zip(fields, raw, strict=True))

    def get_row(self, pk: Any, *, lock: bool = False) -> Model:
        """Return the row with this primary key, if the caller has access to it.

        ``lock`` locks the row until the transaction ends. Raises ``NotFound`` if they have no access to such a row, and
        ``Unreadable`` if it holds a value that cannot be read.
        """
        rows = self.exposure.get_queryset(self.request)
        key = self.parse_pk(pk)
        with all_readable():
            try:
                found = row_by_key(rows, key) if not lock else None
            except ToolError:
                found = []
            if found is None:
                rows = rows.select_for_update() if lock else rows
                found = list(rows.filter(pk=key)[:1])
        # The database may ignore case, and spaces at the end.
        if not found or not has_key(found[0], key) or not self.may_row("view", found[0]):
            raise NotFound
        return found[0]


@dataclass(frozen=True, slots=True)
class Link:
    """A relation that a caller has access to: its name, Django's field, and the access to the related model."""

    name: str
    field: Any
    related: ModelAccess

    @property
    def exposure(self) -> ModelExposure:
        """The exposure of the related rows."""
        return self.related.exposure

    @property
    def to_many(self) -> bool:
        """Whether a row can have several related rows."""
        return bool(self.field.many_to_many or self.field.one_to_many)

    def rows(self, through: Sequence[str] = ()) -> QuerySet[Any]:
        """Return the accessible rows related to the row of the outer query, or to the one that ``through`` leads to."""
        rows = self.exposure.model._base_manager.order_by()
        if self.field.many_to_many:
            rows = rows.filter(pk__in=self._keys_linked_to(OuterRef(OuterRef("__".join([*through, "pk"])))))
        else:
            rows = rows.filter(**self._linked(through))
        if self.related.sees_every_row:
            return rows
        return rows.filter(among(self.exposure.get_queryset(self.related.request)))

    def _linked(self, through: Sequence[str]) -> Mapping[str, Any]:
        """Return the conditions by which rows are related to that of the outer query, without a table of links."""
        theirs, ours = self._columns()
        return {theirs: OuterRef("__".join([*through, ours]))}

    def rows_of(self, row: Model, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows of the queryset, which is one of the related model, that the row is linked to."""
        if self.field.many_to_many:
            return queryset.filter(pk__in=self._keys_linked_to(row.pk))
        theirs, ours = self._columns()
        return queryset.filter(**{theirs: getattr(row, ours)})

    def _keys_linked_to(self, pk: Any) -> QuerySet[Any]:
        """Return the keys of the rows that a many-to-many relation links to the row with this key."""
        field = self.field
        if isinstance(field, Field) and linked_reader(field) is not None:
            # A custom relation class stores its links in its own way, so follow the field by name.
            return field.model._base_manager.filter(pk=pk).order_by().values(field.name)
        through, source, target = link_table(field)
        return through._base_manager.filter(**{source: pk}).order_by().values(target)

    def _columns(self) -> tuple[str, str]:
        """Return the column of the related model and that of this model which are equal in linked rows."""
        field = self.field
        if field.concrete:
            return field.target_field.attname, field.attname
        return field.field.attname, field.field.target_field.attname


@lru_cache(maxsize=1024)
def _pointing(exposure: ModelExposure) -> Mapping[str, Any]:
    """Return the relations of accessible models that point here, by their names in queries and on instances."""
    found: dict[str, Any] = {}
    for rel in exposure.opts.related_objects:
        if not rel.hidden and not isinstance(rel.field.target_field, CompositePrimaryKey):
            found |= {str(rel.get_accessor_name()): rel, rel.name: rel}
    return found


@lru_cache(maxsize=1024)
def _are_its_own(exposure: ModelExposure, names: tuple[str, ...]) -> bool:
    """Return whether the names are columns of the exposure's own table, to which no other exposure bars access."""
    columns = Column.all(exposure, names)
    own = (column.is_stored and column.field.model is exposure.model for column in columns)
    return len(columns) == len(names) and all(own)


def has_key(row: Model, key: Any) -> bool:
    """Return whether a row that was found by a key has that very key."""
    own = row.pk
    return type(own) is not type(key) or own == key


def _strict(field: Any, raw: Any) -> Any:
    text = str(raw) if isinstance(raw, int) and not isinstance(raw, bool) and abs(raw) < 2**64 else raw
    stored = stored_field(field)
    if not isinstance(text, str) or is_json_field(stored):
        raise NotFound
    try:
        value = kind_of(field).parse(stored, text)
    except ValueError:
        raise NotFound from None
    written = iso_text(value) if hasattr(value, "isoformat") else str(value)
    if written != text:
        raise NotFound
    return value
