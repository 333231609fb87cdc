"""Load a user's permissions by one query, for the authentication backend that most projects have.

On each request, ``ModelBackend`` loads a user's own permissions and those of the groups with two ORM queries. If it is
the only backend, one compiled query does that here, or the query of the user's token if there is one. The result is
stored where the backend looks first.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import orjson
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.signals import setting_changed
from django.db import connections, router
from django.db.models import F, Func, OuterRef, Q, Subquery, TextField
from django.db.models.lookups import Exact

if TYPE_CHECKING:
    from .compiled_queries import Bind, CompiledQuery

STOCK = ["django.contrib.auth.backends.ModelBackend"]
LOOKUP = ("has_perm", "get_all_permissions", "get_group_permissions", "get_user_permissions", "_get_permissions")
# SQL that makes one JSON text of many names, by database vendor. MariaDB would cut it at ``group_concat_max_len``.
AS_ONE: Final = {"postgresql": "JSON_AGG(%(expressions)s)::text", "sqlite": "JSON_GROUP_ARRAY(%(expressions)s)"}
# Attribute of a user that keeps the values of :func:`permission_columns` until they are needed.
FOUND: Final = "_mcp_permissions"
_plans: "dict[str, CompiledQuery]" = {}


class Names(Func):
    """The names of a user's permissions, ``app_label.codename``, which a query reads as one JSON text."""

    arg_joiner = " || '.' || "
    output_field = TextField()


def permission_columns(using: str, user: str) -> list[Subquery]:
    """Return subqueries of a user's permissions, own and of groups, for a query that reads the user anyway.

    ``user`` is the path to the user's key. The list is empty if the database has no such JSON function, or if
    :func:`load_permissions` would not use the result.
    """
    template = AS_ONE.get(connections[using].vendor)
    if template is None or not _is_in_tables(get_user_model()) or router.db_for_read(get_user_model()) != using:
        return []
    # The permissions' query reads the user's groups in a subquery of its own, hence the second OuterRef.
    both = _links(using, OuterRef(user), OuterRef(OuterRef(user)))
    return [Subquery(links.values_list(Names(*names, template=template))) for links, names in both]


class Everything(frozenset[str]):
    """The permissions of a superuser, known without a query: every name is among them."""

    def __contains__(self, name: object) -> bool:
        """Return True: a superuser has every permission."""
        return True

    def isdisjoint(self, names: Iterable[object]) -> bool:
        """Return False: a superuser has some of the named permissions."""
        return False


EVERYTHING: Final = Everything()


def load_permissions(user: Any) -> None:
    """Load a user's permissions by one query, so that ``user.has_perm`` makes none.

    Nothing is done for a user model without Django's permissions, or if the project has other backends: these are asked
    as usual.
    """
    found = user.__dict__.pop(FOUND, None)
    if not user.is_active or not _is_in_tables(type(user)):
        return
    granted: AbstractSet[str] = EVERYTHING
    if not user.is_superuser:
        if not hasattr(user, "_perm_cache"):
            # All of them: code of the project may ask this user for any. No Python code runs for each.
            lists = [_ask(user)] if found is None else [orjson.loads(text or "[]") for text in found]
            user._perm_cache = set[str]().union(*lists)
        granted = user._perm_cache
    model: Any = type(user)
    user._mcp_known = granted if _is_djangos(model) else None


def _is_in_tables(model: Any) -> bool:
    """Return whether users' permissions are in the tables that the permission query reads."""
    return (
        settings.AUTHENTICATION_BACKENDS == STOCK
        and hasattr(model, "user_permissions")
        and hasattr(model, "is_superuser")
    )


def _ask(user: Any) -> set[str]:
    # Imported here because every exposure imports this module, but most commands do not query permissions.
    from .compiled_queries import Bind, CompiledQuery

    using = router.db_for_read(type(user))
    key = user._meta.pk.get_db_prep_value(user.pk, connections[using])
    if CompiledQuery.is_on():
        if using not in _plans:
            _plans[using] = CompiledQuery.for_values(_names(using, Bind.slot(0)), using)
        names = _plans[using].run(using, [key])
    else:
        names = list(_names(using, Bind(key)))
    return {f"{app_label}.{codename}" for app_label, codename in names}


def known_permissions(user: Any) -> AbstractSet[str] | None:
    """Return the user's permissions that the query loaded, None if something else decides on ``user.has_perm``.

    They are known only after :func:`load_permissions` has run for the user.
    """
    kept = user.__dict__
    known: AbstractSet[str] | None = kept.get("_mcp_known")
    # A user instance with its own has_perm() answers differently from the tables.
    if known is not None and kept["is_active"] and "has_perm" not in kept:
        return known
    return None


@cache
def _is_djangos(model: Any) -> bool:
    """Return whether Django's code alone looks up the permissions of users of the model."""
    # Imported here because no model can be imported before the apps are loaded.
    from django.contrib.auth.backends import ModelBackend

    methods = (model.has_perm, *(getattr(ModelBackend, name) for name in LOOKUP))
    return all(method.__module__.startswith("django.contrib.auth.") for method in methods)


def _links(using: str, user: Any, member: Any) -> list[tuple[Any, list[str]]]:
    """Return the queries for a user's own permissions and for those of the groups, with the paths of their names.

    ``user`` is the user's key in the first query, and ``member`` the same key in the query for the groups. The
    querysets start from the link tables: from the permissions, SQLite would look at every permission that exists.
    """
    model = get_user_model()
    own = model._meta.get_field("user_permissions")
    groups = model._meta.get_field("groups")
    granted: Any = groups.related_model._meta.get_field("permissions")

    def links(field: Any) -> Any:
        return field.remote_field.through._base_manager.using(using).order_by()

    def of(field: Any, key: Any) -> Any:
        return links(field).filter(Q(Exact(F(field.m2m_field_name()), key)))

    joined = of(groups, member).values(groups.m2m_reverse_field_name())
    by_groups = links(granted).filter(**{f"{granted.m2m_field_name()}__in": joined})
    return [
        (rows, [f"{field.m2m_reverse_field_name()}__{name}" for name in ("content_type__app_label", "codename")])
        for rows, field in ((of(own, user), own), (by_groups, granted))
    ]


def _names(using: str, user: "Bind") -> Any:
    """Return the app labels and code names of a user's permissions, own and of groups."""
    own, by_groups = (links.values_list(*names) for links, names in _links(using, user, user))
    # UNION ALL spares the database a sort: the set drops duplicates anyway.
    return own.union(by_groups, all=True).order_by()


def _forget(**kwargs: Any) -> None:
    _plans.clear()


setting_changed.connect(_forget)
