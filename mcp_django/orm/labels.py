"""Labels of rows and of their related rows, with a fixed number of queries for each relation of a page.

A label is what ``__str__`` returns, or a column that is proven to be the same. The label of a related row is shown if
the related model is exposed, the caller may view it, and the row is among the rows of its exposure; otherwise a foreign
key shows its bare key, and a many-to-many relation leaves the row out.
"""

import ast
import inspect
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from operator import itemgetter
from textwrap import dedent
from typing import Any, Final, cast

from django.db import models
from django.db.models import F, QuerySet, Window
from django.db.models.functions import RowNumber

from ..context.databases import LostDatesAsText
from ..context.request import MCPRequest
from ..exceptions import NotFound
from ..exposures.model_exposure import ModelExposure
from ..runtime.failing_hooks import call_hook
from ..schema.secrets import HIDDEN, clean_text, is_sensitive
from .access import ModelAccess, access_of
from .column_values import field_renderer, pk_text
from .columns import Column, is_replaced
from .fields import is_generic_relation, is_joinable, key_field, link_table, resolve_path
from .prefetch import each_row, learn, learned
from .undecodable_values import UNDECODABLE, VALUE_ERRORS, is_undecodable, salvaged_rows

logger = logging.getLogger("mcp_django")

MAX_LABEL: Final = 200
# Minimum length of a secret that is hidden: shorter ones would hide parts of words.
MIN_SECRET: Final = 4
# Relations that labels follow are learned under this name, like those of a column.
STR: Final = "__str__"
# Maximum number of relations, one after the other, through which a label is searched for secrets.
MAX_DEPTH: Final = 3


@lru_cache(maxsize=1024)
def plain_label(exposure: ModelExposure) -> str | None:
    """Return the name of the text field that is the label of a row, or None if a label needs the instance."""
    name = exposure.label_field or returned_attribute(exposure.model)
    if name in _secrets(exposure):
        return None
    path = resolve_path(exposure.model, name) if name and "__" not in name else None
    if path is None or path.nullable or not isinstance(path.field, (models.CharField, models.TextField)):
        return None
    plain = type(path.field).descriptor_class is models.Field.descriptor_class
    # Values of a custom class may have a text of their own.
    own = hasattr(path.field, "from_db_value") or is_replaced(path.field.model, path.field)
    return name if plain and not own else None


class Attribute(str):
    """An attribute of a :class:`Recorder`: a text that ``__str__`` can only return as it is."""

    def _refuse(self, *args: Any) -> Any:
        raise TypeError("a label that is made of it is more than the attribute")

    __str__ = __format__ = __bool__ = __len__ = __eq__ = __iter__ = __getitem__ = _refuse
    __hash__ = str.__hash__


class Recorder:
    """Stands in for a row whose ``__str__`` makes the label: each attribute is its own name."""

    def __getattribute__(self, name: str) -> Attribute:
        return Attribute(name)


def returned_attribute(model: type[Any]) -> str | None:
    """Return the attribute if ``__str__``, which makes labels, is exactly ``return self.<attribute>``; None otherwise.

    It runs the method on a :class:`Recorder` to get the attribute, and checks that the source has no other statement.
    """
    method: Any = model.__str__
    try:
        found = method(Recorder())
        (function,) = ast.parse(dedent(inspect.getsource(method))).body
    except Exception:
        return None
    match function:
        case ast.FunctionDef(args=ast.arguments(args=[ast.arg(arg=own)]), decorator_list=[]) if (
            type(found) is Attribute
        ):
            body = function.body[ast.get_docstring(function) is not None :]
            name = str.__str__(found)
            said = [ast.unparse(step) for step in body]
            if said == [f"return {own}.{name}"] and not hasattr(method, "__wrapped__"):
                return name
            return None
    return None


def labels_of(exposure: ModelExposure, rows: Sequence[models.Model]) -> list[str | None]:
    """Return the labels of the rows, and remember which relations they followed, for :func:`with_labels_of`."""
    followed: set[str] = set()
    labels, _ = each_row(rows, partial(label_of, exposure), followed)
    learn(exposure, {STR: followed})
    return labels


def with_labels_of(exposure: ModelExposure, rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return the rows, with the related rows loaded that their labels followed before."""
    # Without names, select_related() would follow every relation.
    followed = learned(exposure, (STR,))
    return rows.select_related(*sorted(followed)) if followed else rows


def label_of(exposure: ModelExposure, row: models.Model) -> str | None:
    """Return the label of a row, or None where the project's code fails to make one.

    Secrets of the row are hidden in it, except those in fields that the exposure names itself.
    """
    try:
        label = str(getattr(row, exposure.label_field)) if exposure.label_field else str(row)
    except Exception:
        logger.warning("The label of a %s could not be made", exposure.label, exc_info=True)
        return None
    for secret in _loaded_secrets(row, _secrets(exposure), MAX_DEPTH):
        label = label.replace(secret, HIDDEN)
    return clean_text(label, MAX_LABEL)


def _loaded_secrets(row: models.Model, names: Iterable[str], depth: int) -> Iterator[str]:
    """Yield the secrets that a label could show: those of the row and of the related rows that are loaded."""
    values = (row.__dict__.get(name) for name in names)
    yield from (value for value in values if isinstance(value, str) and len(value) >= MIN_SECRET)
    for related in list(row._state.fields_cache.values()) if depth else ():
        if isinstance(related, models.Model):
            yield from _loaded_secrets(related, _secret_columns(type(related)), depth - 1)


@lru_cache(maxsize=1024)
def _secret_columns(model: type[models.Model]) -> tuple[str, ...]:
    texts = (field for field in model._meta.concrete_fields if isinstance(field, (models.CharField, models.TextField)))
    return tuple(field.attname for field in texts if is_sensitive(field.name, field.model))


@lru_cache(maxsize=1024)
def _secrets(exposure: ModelExposure) -> frozenset[str]:
    return frozenset(_secret_columns(exposure.model)) - {exposure.label_field, *exposure.options.fields}


# Maximum number of related rows that a many-to-many value shows.
MAX_RELATED: Final = 20


def joined_label(request: MCPRequest, column: Column) -> str | None:
    """Return the ORM name by which a join reads the label of a foreign key's row; None if no join can."""
    field = column.field
    related = access_of(request).model_of(field.related_model)
    if related is None or not related.exposure.options.has_every_row or not is_joinable(field) or column.is_guarded:
        return None
    label = plain_label(related.exposure)
    if label is not None:
        return "__".join([*column.through, field.name, label])
    return None


def ways_to(path: str) -> list[str]:
    """Return the relations that lead to a label, one after the other: the first one, the first two, and so on."""
    names = path.split("__")[:-1]
    return ["__".join(names[: position + 1]) for position in range(len(names))]


def with_labels(rows: QuerySet[Any], paths: Sequence[str], followed: Collection[str]) -> QuerySet[Any]:
    """Select columns and the labels of related rows in one query, and keep rows whose key leads nowhere."""
    known = set(rows.query.alias_map)
    found: Any = rows.values_list(*paths)
    _keep_rows(found.query, followed, known)
    return cast("QuerySet[Any]", found)


def with_related(rows: QuerySet[Any], paths: Iterable[str], columns: Iterable[str]) -> QuerySet[Any]:
    """Let the labels of rows be made without further queries: select the related rows that they need.

    A row whose key leads nowhere is kept if the relation is one of ``columns``, which this app follows by itself.
    """
    found = rows.select_related(*sorted(paths))
    query: Any = found.query
    known = set(query.alias_map)
    relations = set(columns)
    for name in sorted(relations):
        query.setup_joins(name.split("__"), query.get_meta(), query.get_initial_alias())
    _keep_rows(query, relations, known)
    return found


def _keep_rows(query: Any, relations: Collection[str], known: Collection[str]) -> None:
    """Promote the joins that read labels to outer joins, except ``known`` joins of others."""
    fields = {_last_field(query.get_meta(), name) for name in relations}
    for alias, join in query.alias_map.items():
        if alias not in known and getattr(join, "join_field", None) in fields:
            query.alias_map[alias] = join.promote()


def _last_field(opts: Any, path: str) -> Any:
    *hops, last = path.split("__")
    for name in hops:
        opts = opts.get_field(name).related_model._meta
    return opts.get_field(last)


def labels_for(request: MCPRequest, field: Any, keys: Iterable[Any]) -> dict[Any, str | None]:
    """Return the labels of the related rows that the caller may view, by the key that the relation stores."""
    related = access_of(request).model_of(field.related_model)
    wanted = {key for key in keys if key is not None and key is not UNDECODABLE}
    if related is None or not wanted:
        return {}
    target = related.exposure.model._meta.pk if field.many_to_many else key_field(field)
    return _labels(related, target.attname, wanted)


def _labels(related: ModelAccess, target: str, wanted: set[Any]) -> dict[Any, str | None]:
    exposure = related.exposure
    visible = _visible(related)
    try:
        rows = visible.filter(**{f"{target}__in": list(wanted)})
    except VALUE_ERRORS:
        # SQLite may store text in a column of numbers.
        wanted = {key for key in wanted if is_key(exposure.opts.get_field(target), key)}
        rows = visible.filter(**{f"{target}__in": list(wanted)})
    label = plain_label(exposure)
    if label is not None:
        with LostDatesAsText():
            read = list(rows.values_list(target, label))
        return {key: clean_text(text, MAX_LABEL) for key, text in read}
    rows = with_labels_of(exposure, rows)
    try:
        with LostDatesAsText():
            loaded = list(rows)
    except Exception as error:
        if not is_undecodable(error):
            raise
        loaded = salvaged_rows([rows], visible, len(wanted))
    return {getattr(row, target): label for row, label in zip(loaded, labels_of(exposure, loaded), strict=True)}


def is_key(field: Any, key: Any) -> bool:
    """Return whether a value can be the key of a row to label, in this field of the row's model."""
    try:
        field.get_prep_value(key)
    except VALUE_ERRORS:
        return False
    return True


def _visible(related: ModelAccess) -> QuerySet[Any]:
    """Return the related rows that may have labels: those that the caller may view."""
    exposure = related.exposure
    none = exposure.model._base_manager.none()
    return call_hook(exposure.label, "get_queryset", exposure.get_queryset, related.request, default=none).order_by()


def linked_values(request: MCPRequest, field: Any, keys: Sequence[Any]) -> tuple[list[Any], bool]:
    """Return the key and label of each row linked to each key, as ``[key, label]`` pairs, and whether a list was cut.

    ``keys`` are primary keys for a many-to-many relation, otherwise the values that the related rows point to. A
    one-to-one relation has the pair itself, or None. A list has at most ``MAX_RELATED`` pairs, then "…" if it was cut.
    """
    related = access_of(request).model_of(field.related_model)
    links = _links(related, field, keys) if related is not None and keys else []
    if related is None or not links:
        if field.one_to_one:
            return [None for _ in keys], False
        return [[] for _ in keys], False
    pk = related.exposure.opts.pk
    labels = _labels(related, pk.attname, {target for _, target in links})
    renderer = pk_text if related.exposure.opts.is_composite_pk else field_renderer(pk, None, "")
    lists: dict[Any, list[Any]] = {}
    for source, target in links:
        listed = lists.setdefault(source, [])
        if target in labels and len(listed) <= MAX_RELATED:
            listed.append([renderer(target), labels[target]])
    if field.one_to_one:
        firsts = {key: pairs[0] for key, pairs in lists.items() if pairs}
        return [firsts.get(key) for key in keys], False
    cut = [listed for listed in lists.values() if len(listed) > MAX_RELATED]
    for listed in cut:
        listed[MAX_RELATED:] = ["…"]
    return [lists.get(key, []) for key in keys], bool(cut)


def _links(related: ModelAccess, field: Any, keys: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return whose labels to show for each key: pairs of it and the key of a linked row, as many as can be shown.

    ``field`` is the relation as seen from this model: many-to-many, the foreign key or one-to-one field of the other
    model, or a generic relation.
    """
    exposure = related.exposure
    # Columns with this row's key (source) and the linked row's (targets); spelt maps values of source to the keys.
    targets = [part.attname for part in exposure.opts.pk_fields]
    rows = exposure.model._base_manager.all()
    spelt = {key: key for key in keys}
    if field.many_to_many:
        through, source, target = link_table(field)
        rows = through._default_manager.all()
        targets = [target]
    elif is_generic_relation(field):
        remote: Any = exposure.opts.get_field(field.object_id_field_name)
        holder: Any = exposure.opts.get_field(field.content_type_field_name)
        types = holder.related_model.objects
        own = types.get_for_model(field.model, for_concrete_model=field.for_concrete_model)
        rows = rows.filter(**{holder.attname: own.pk})
        source = remote.attname
        spelt = {remote.to_python(key): key for key in keys}
    else:
        source = field.field.attname
    rows = rows.filter(**{f"{source}__in": list(spelt)}).order_by()
    if not exposure.options.has_every_row:
        visible = _visible(related)
        if not field.many_to_many:
            rows = rows.using(visible.db).filter(pk__in=visible.values("pk"))
        elif visible.db == rows.db:
            # Rows of another database are left out when their labels are read.
            rows = rows.filter(**{f"{targets[0]}__in": visible.values("pk")})
    # One more for each source than can be shown. The linked row's key may be the source column itself, as in a
    # one-to-one relation.
    names = list(dict.fromkeys([source, *targets]))
    rank = Window(RowNumber(), partition_by=[F(source)], order_by=[F(name).asc() for name in targets])
    found = rows.annotate(mcp_rank=rank).filter(mcp_rank__lte=MAX_RELATED + 1).order_by(*names)
    key_of = itemgetter(*(names.index(name) for name in targets))
    return list(dict.fromkeys((spelt.get(row[0], row[0]), key_of(row)) for row in found.values_list(*names)))


def generic_paths(field: Any) -> tuple[str, str]:
    """Return the two columns of a generic foreign key that its label needs: the content type and the key."""
    return field.model._meta.get_field(field.ct_field).attname, field.fk_field


def generic_values(request: MCPRequest, field: Any, types: Sequence[Any], keys: Sequence[Any]) -> list[Any]:
    """Return the labels of the rows that generic foreign keys point to, each as ``[key, label, model]``.

    None stands for a row that the caller may not see: its model is not exposed, or it is not among its exposure's rows.
    """
    holder: Any = field.model._meta.get_field(field.ct_field)
    found: list[Any] = [None] * len(types)
    for type_id in dict.fromkeys(kind for kind in types if kind is not None and kind is not UNDECODABLE):
        related = access_of(request).model_of(holder.related_model.objects.get_for_id(type_id).model_class())
        if related is None or related.exposure.opts.is_composite_pk:
            continue
        places = [at for at, kind in enumerate(types) if kind == type_id]
        known = labels_by_text(related, [keys[at] for at in places])
        for at in places:
            if keys[at] in known:
                found[at] = [*known[keys[at]], related.exposure.label]
    return found


def labels_by_text(related: ModelAccess, texts: Iterable[Any]) -> dict[Any, tuple[Any, str | None]]:
    """Return keys and labels of the rows that the caller may view, by the text of the key in generic foreign keys."""
    exposure = related.exposure
    wanted = {text: _key_of(related, text) for text in texts}
    labels = _labels(related, exposure.opts.pk.attname, {key for key in wanted.values() if key is not None})
    renderer = field_renderer(exposure.opts.pk, None, "")
    return {text: (renderer(key), labels[key]) for text, key in wanted.items() if key in labels}


def _key_of(related: ModelAccess, key: Any) -> Any:
    """Return the primary key of the row to label from the text of a generic foreign key, None if it is no key."""
    try:
        return related.parse_pk(key)
    except NotFound:
        return None
