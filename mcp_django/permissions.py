"""A user's permissions in one query, for the backend that most projects have.

``ModelBackend`` asks for a user's own permissions and for those of the groups by two queries of the ORM, for each
request anew. Where it is the only backend, its answer is had from one compiled query and left where it looks first.
"""

from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.signals import setting_changed
from django.db import router
from django.db.models import F, Q
from django.db.models.lookups import Exact

from .plans import Bind, Plan, Slot, compile_plan

__all__ = ["load_permissions"]

STOCK = ["django.contrib.auth.backends.ModelBackend"]
_plans: dict[str, Plan] = {}


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
    rows = _plans[using].run(using, [user.pk])
    user._perm_cache = {f"{app_label}.{codename}" for app_label, codename in rows}


def _compile(using: str) -> Plan:
    model = get_user_model()
    own = model._meta.get_field("user_permissions")
    groups = model._meta.get_field("groups")
    permission = own.related_model

    def through(path: str) -> Any:
        chosen = permission._default_manager.using(using).filter(Q(Exact(F(path), Bind(Slot(0)))))
        return chosen.order_by().values_list("content_type__app_label", "codename")

    # What is there twice is once in the set: the database need not sort it out.
    both = through(own.related_query_name()).union(through(f"group__{groups.related_query_name()}"), all=True)
    return compile_plan(both.order_by(), using)


def _forget(**kwargs: Any) -> None:
    _plans.clear()


setting_changed.connect(_forget)
