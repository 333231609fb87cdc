"""A user's permissions in one query, for the backend that most projects have.

``ModelBackend`` asks for a user's own permissions and for those of the groups by two queries of the ORM, for each
request anew. Where it is the only backend, its answer is had from one compiled query and left where it looks first.
"""

from collections.abc import Set as AbstractSet
from functools import cache
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.signals import setting_changed
from django.db import router
from django.db.models import F, Q
from django.db.models.lookups import Exact

if TYPE_CHECKING:
    from .plans import Plan

STOCK = ["django.contrib.auth.backends.ModelBackend"]
LOOKUP = ("has_perm", "get_all_permissions", "get_group_permissions", "get_user_permissions", "_get_permissions")
_plans: "dict[str, Plan]" = {}


def load_permissions(user: Any) -> None:
    """Let ``user.has_perm`` answer without a query of its own.

    Nothing is done for a superuser, who has every permission, for a user model without Django's permissions, and where
    a project has other backends, which are asked as always.
    """
    if settings.AUTHENTICATION_BACKENDS != STOCK or not user.is_active or hasattr(user, "_perm_cache"):
        return
    if getattr(user, "is_superuser", True) or not hasattr(type(user), "user_permissions"):
        return
    using = router.db_for_read(type(user))
    if using not in _plans:
        _plans[using] = _compile(using)
    names = _plans[using].columns(using, [user.pk])
    user._perm_cache = {f"{app_label}.{codename}" for app_label, codename in zip(*names, strict=True)}
    model: Any = type(user)
    # A user who was narrowed answers by methods of its own.
    user._mcp_decides_alone = _is_djangos(model) and "has_perm" not in vars(user)


def known_permissions(user: Any) -> AbstractSet[str] | None:
    """Return the permissions that the user has, where nothing else decides on ``user.has_perm``; None elsewhere."""
    kept = user.__dict__
    return kept.get("_perm_cache") if kept.get("_mcp_decides_alone") and kept["is_active"] else None


def has_perm(user: Any, perm: str) -> bool:
    """Return what ``user.has_perm(perm)`` does, without the way through the backends where it is known."""
    known = known_permissions(user)
    return bool(user.has_perm(perm)) if known is None else perm in known


@cache
def _is_djangos(model: Any) -> bool:
    """Return whether permissions of such users are looked up by Django's code alone."""
    # No model can be imported before the apps are loaded.
    from django.contrib.auth.backends import ModelBackend

    methods = (model.has_perm, *(getattr(ModelBackend, name) for name in LOOKUP))
    return all(method.__module__.startswith("django.contrib.auth.") for method in methods)


def _compile(using: str) -> "Plan":
    # Every exposure imports this module, and most commands read nothing.
    from .plans import Bind, Slot, compile_plan

    model = get_user_model()
    own, groups = model._meta.get_field("user_permissions"), model._meta.get_field("groups")
    granted: Any = groups.related_model._meta.get_field("permissions")

    def links(field: Any) -> Any:
        return field.remote_field.through._base_manager.using(using).order_by()

    def of_user(field: Any) -> Any:
        return links(field).filter(Q(Exact(F(field.m2m_field_name()), Bind(Slot(0)))))

    # From the tables between: by way of the permissions themselves SQLite looks at each that there is.
    member = of_user(groups).values(groups.m2m_reverse_field_name())
    by_groups = links(granted).filter(**{f"{granted.m2m_field_name()}__in": member})
    names = [f"{own.m2m_reverse_field_name()}__{name}" for name in ("content_type__app_label", "codename")]
    # What is there twice is once in the set: the database need not sort it out.
    both = of_user(own).values_list(*names).union(by_groups.values_list(*names), all=True)
    return compile_plan(both.order_by(), using)


def _forget(**kwargs: Any) -> None:
    _plans.clear()


setting_changed.connect(_forget)
