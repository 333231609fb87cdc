"""Whether an admin has code of the project's own, beside Django's."""

from inspect import isfunction
from typing import Any


def asks_where(*items: Any, permissions: bool = False) -> bool:
    """Return whether objects or classes, such as a ModelAdmin, have code of the project that could read the admin page.

    With ``permissions``, only code counts that helps to decide what a caller may do.
    """
    kinds = (item if isinstance(item, type) else type(item) for item in items)
    classes = (owner for kind in kinds for owner in kind.__mro__ if owner.__module__.split(".")[0] != "django")
    owned = (named for item in (*items, *classes) for named in vars(item).items())
    return any(isfunction(getattr(value, "__func__", value)) for name, value in owned if _counts(name, permissions))


def _counts(name: str, permissions: bool) -> bool:
    return not permissions or name.startswith(("has_", "get_action", "get_permission", "__getattr"))
