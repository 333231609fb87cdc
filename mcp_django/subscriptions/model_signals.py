"""Receivers of the signals of Django's models: collect saved and deleted rows, and publish them on commit.

``QuerySet.update()`` sends no signals; projects call :func:`notify_changed` for it. Receivers are connected only to
models that some site may expose, because Django cannot use fast deletes for models with receivers. A change of a row
also counts as a change of the same row in proxies, parents and children, and of both ends of a many-to-many relation.
"""

import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

from django.apps import apps
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError, router, transaction
from django.db.backends.signals import connection_created
from django.db.models import ManyToManyField, Model, QuerySet
from django.db.models.signals import m2m_changed, post_delete, post_save
from django.db.transaction import TransactionManagementError

from ..conf import settings
from ..exceptions import NotFound
from ..signals import models_registered, rows_changed, switches_changed
from ..sites import MCPSite, _sites, is_open
from .changes import KINDS, MAX_ROWS, SWITCHES, Changes

Models = tuple[tuple[type[Model], str | None], ...]
# Labels of models with the primary keys of rows, or with None if the rows are unknown.
Rows = list[tuple[str, list[str] | None]]


@lru_cache(maxsize=4096)
def same_rows(model: type[Model]) -> Models:
    """Return the models that share rows with this one, and the attribute of an instance that has the key in each.

    These are the model itself and its proxies, its parents and their other children. The attribute is None if the
    instance does not have the primary key of that model.
    """
    concrete = model._meta.concrete_model or model
    tables = {concrete, *(parent._meta.concrete_model or parent for parent in concrete._meta.get_parent_list())}
    models: list[tuple[type[Model], str | None]] = []
    for other in apps.get_models():
        table: Any = other._meta.concrete_model or other
        if table is concrete:
            models.append((other, "pk"))
        elif table in tables:
            models.append((other, table._meta.pk.attname))
        elif not tables.isdisjoint(table._meta.get_parent_list()):
            # Find the parent among the tables whose primary key is also the child's.
            while table is not None and table not in tables:
                relation = table._meta.pk.remote_field
                is_parent = relation is not None and relation.parent_link
                table = relation.model._meta.concrete_model if is_parent else None
            models.append((other, None if table is None else table._meta.pk.attname))
    return tuple(models)


def relations_of(model: type[Model]) -> Iterator[type[Model]]:
    """Yield the through models of the many-to-many relations from and to the model."""
    for field in model._meta.get_fields(include_hidden=True):
        relation: Any = getattr(field, "field", field)
        through = relation.remote_field.through if isinstance(relation, ManyToManyField) else None
        if through is not None:
            yield through


@lru_cache(maxsize=4096)
def ends_of(model: type[Model]) -> tuple[tuple[type[Model], str], ...]:
    """Return the models at both ends of a many-to-many through model, and the attributes of their keys.

    The result is empty for a model that is not a through model.
    """
    ends: dict[str, type[Model]] = {}
    for owner in apps.get_models():
        for field in owner._meta.local_many_to_many:
            relation: Any = field.remote_field
            if relation.through is model:
                for name in (field.m2m_field_name(), field.m2m_reverse_field_name()):
                    key: Any = model._meta.get_field(name)
                    if key.target_field.primary_key:
                        ends[key.attname] = key.related_model
    return tuple((target, attname) for attname, target in ends.items())


logger = logging.getLogger("mcp_django")

# Models that some site may expose, with connected receivers; and models in an admin that no site may expose.
_exposed: set[type[Model]] = set()
_closed: set[type[Model]] = set()


def connect() -> None:
    """Connect receivers to the models that are registered now, and to those that are registered later.

    The admin's registry is read again at the first database connection after all apps are ready.
    """
    models_registered.connect(_registered, dispatch_uid="mcp_django")
    connection_created.connect(_first_used, dispatch_uid="mcp_django")
    rows_changed.connect(_changed_by_a_tool, dispatch_uid="mcp_django")
    switches_changed.connect(_switched, dispatch_uid="mcp_django")
    connect_models()


def _switched(**kwargs: Any) -> None:
    from .bus import bus

    bus.publish(SWITCHES, None)


def _registered(sender: MCPSite | None = None, **kwargs: Any) -> None:
    try:
        connect_models(_sites if sender is None else [sender])
    except Exception:
        logger.exception("Some models are not listened to")


def _first_used(**kwargs: Any) -> None:
    _registered()
    if apps.ready:
        connection_created.disconnect(dispatch_uid="mcp_django")


def connect_models(sites: Iterable[MCPSite] = _sites) -> None:
    """Connect receivers, once each, to the models that one of the sites may expose now."""
    for site in tuple(sites):
        admin_site = site.admin_site if settings.AUTO_REGISTER else None
        new = site._registry.keys() - _exposed
        if admin_site is not None:
            for model in admin_site._registry.keys() - _exposed - _closed:
                (new if is_open(model) else _closed).add(model)
        for model in new:
            _exposed.add(model)
            _connect(model)


def _connect(model: type[Model]) -> None:
    for other, _ in same_rows(model):
        post_save.connect(_saved, sender=other, dispatch_uid="mcp_django")
        post_delete.connect(_saved, sender=other, dispatch_uid="mcp_django")
        for through in relations_of(other):
            m2m_changed.connect(_related, sender=through, dispatch_uid="mcp_django")
            if not through._meta.auto_created:
                post_save.connect(_saved, sender=through, dispatch_uid="mcp_django")
                post_delete.connect(_saved, sender=through, dispatch_uid="mcp_django")


# Transactions


class _Batch:
    """The changes within one transaction or savepoint, published when it commits."""

    def __init__(self, savepoints: tuple[Any, ...], changes: Changes) -> None:
        self.savepoints = savepoints
        self.changes = changes
        self.is_told = False

    def tell(self) -> None:
        # Importing the bus loads the channel layers, which a process without changes does not need.
        from .bus import bus

        self.is_told = True
        bus.put(self.changes)


# For each alias, a weak reference to the batch of this thread's open transaction. Only Django's list of on_commit
# callbacks keeps the batch alive: a rollback of the transaction or the savepoint drops it.
_open = threading.local()


def after_commit(using: str | None, changes: Changes, *, explicit: bool = False) -> None:
    """Publish changes when this thread's transaction commits, or at once if there is none.

    A rollback of the transaction, or of a savepoint around this call, discards them. If autocommit was turned off
    manually, Django does not see the commit: then only ``explicit`` changes are published, at once.
    """
    connection = transaction.get_connection(using)
    savepoints = tuple(connection.savepoint_ids)
    blocks = connection.atomic_blocks
    # Do not merge in a TestCase's own transaction: it never commits, and the test runs only callbacks that it captured.
    if blocks and not getattr(blocks[-1], "_from_testcase", False):
        reference = _open.__dict__.get(connection.alias)
        batch = reference() if reference is not None else None
        if batch is not None and batch.savepoints == savepoints and not batch.is_told:
            batch.changes.merge(changes)
            return
    batch = _Batch(savepoints, changes)
    try:
        transaction.on_commit(batch.tell, using=using, robust=True)
    except TransactionManagementError:
        if explicit:
            batch.tell()
    except (SynchronousOnlyOperation, DatabaseError):
        # A coroutine has no transaction, and neither has a database that is unavailable.
        batch.tell()
    else:
        _open.__dict__[connection.alias] = weakref.ref(batch)


# Signal receivers


def _recorded(read: Callable[..., Changes]) -> Callable[..., None]:
    """Return a receiver that collects what ``read`` returns, and never fails the project's own ``save()``."""

    def receive(*, using: str, **kwargs: Any) -> None:
        if not settings.EVENTS:
            return
        try:
            if changes := read(**kwargs):
                after_commit(using, changes)
        except Exception:
            logger.exception("A change of %s could not be announced", kwargs.get("sender"))

    return receive


@_recorded
def _saved(*, instance: Model, **kwargs: Any) -> Changes:
    """Receive ``post_save`` and ``post_delete``: collect the row, and both ends if it is of a through model."""
    return _changes(_rows_of(instance))


def _changed_by_a_tool(rows: list[Model], **kwargs: Any) -> None:
    try:
        notify_changed(rows)
    except Exception:
        logger.exception("A change of %s could not be announced", kwargs.get("sender"))


@_recorded
def _related(*, action: str, instance: Model, model: type[Model], pk_set: set[Any] | None, **kwargs: Any) -> Changes:
    if not action.startswith("post_") or pk_set == set():
        return Changes()
    return _changes([*_rows_of(instance), *_rows_by_keys(model, pk_set)])


def _changes(rows: Rows) -> Changes:
    changes = Changes()
    for label, pks in rows:
        changes.add_rows(label, pks)
    return changes


def _rows_of(instance: Model) -> Rows:
    model = type(instance)
    # Primary keys as text, by attribute: models that share a table share their primary key.
    texts: dict[str | None, list[str] | None] = {None: None}
    rows: Rows = []
    for other, attname in same_rows(model):
        if other in _exposed:
            if attname not in texts:
                texts[attname] = _texts(other, [getattr(instance, str(attname))])
            rows.append((other._meta.label_lower, texts[attname]))
    for target, attname in ends_of(model):
        rows += _rows_by_keys(target, [getattr(instance, attname)])
    return rows


def _rows_by_keys(model: type[Model], pks: Iterable[Any] | None) -> Rows:
    """Return the changed rows of a model and of those that share rows with it; None stands for unknown rows."""
    own = ("pk", model._meta.pk.attname)
    texts = None if pks is None else _texts(model, pks)
    rows: Rows = []
    for other, attname in same_rows(model):
        if other in _exposed:
            rows.append((other._meta.label_lower, texts if attname in own else None))
    return rows


def _texts(model: type[Model], pks: Iterable[Any]) -> list[str]:
    """Return primary keys as text, converted by their fields: the project may have set other types."""
    from ..orm.column_values import pk_text

    fields: Any = model._meta.pk_fields
    texts = []
    for pk in pks:
        if pk is not None:
            parts = pk if isinstance(pk, tuple) else (pk,)
            with suppress(Exception):
                parts = tuple(field.to_python(part) for field, part in zip(fields, parts, strict=True))
            texts.append(pk_text(parts if isinstance(pk, tuple) else parts[0]))
    return texts


# Notifications by the project


def notify_changed(*targets: Any, using: str | None = None) -> None:
    """Publish on commit changes for which Django sends no signals, such as those of ``QuerySet.update()``.

    A target is an instance, a list of instances, a queryset, a model class for any of its rows, or the URI of a
    resource. A queryset is evaluated here: call this before the update if the update changes which rows match. A
    queryset without rows stands for any rows of its model. ``using`` is the database whose transaction the change
    belongs to, for targets that do not have one.
    """
    if not settings.EVENTS:
        return
    connect_models()
    for target in targets:
        alias, changes = _read(target)
        if changes:
            after_commit(alias or using, changes, explicit=True)


def _read(target: Any) -> tuple[str | None, Changes]:
    """Return the database of a target of :func:`notify_changed`, if it is known, and the changes."""
    match target:
        case str():
            from ..orm.uris import ParsedURI

            with suppress(NotFound):
                address = ParsedURI.read(target)
                if address.pk is not None:
                    return None, Changes(rows={address.label: {address.pk}})
            return None, Changes(uris={target})
        case type() if issubclass(target, Model):
            return router.db_for_write(target), _changes(_rows_by_keys(target, None))
        case QuerySet():
            pks = list(target.values_list("pk", flat=True)[: MAX_ROWS + 1])
            return target.db, _changes(_rows_by_keys(target.model, pks or None))
    rows: Any = target if isinstance(target, (list, tuple, set, frozenset)) else [target]
    if not all(isinstance(row, Model) for row in rows):
        raise TypeError(f"{type(target).__name__} is not a row, queryset, model or URI")
    alias = next((row._state.db or router.db_for_write(type(row), instance=row) for row in rows), None)
    return alias, _changes([entry for row in rows for entry in _rows_of(row)])


def notify_list_changed(*kinds: str, site: MCPSite | None = None) -> None:
    """Publish that lists of "tools", "prompts" or "resources" have changed, by default all of them.

    ``site`` is the site whose lists have changed, None for all sites. Changes of users' permissions are noticed anyway.
    """
    if unknown := set(kinds) - set(KINDS):
        raise ValueError(f"Unknown list: {', '.join(sorted(unknown))}")
    name = site.name if site is not None else None
    if settings.EVENTS:
        after_commit(None, Changes(lists={(kind, name) for kind in kinds or KINDS}), explicit=True)
