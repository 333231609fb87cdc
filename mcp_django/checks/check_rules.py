"""Rules of system checks: one shape for messages, a decorator, and a table for checks of one expression.

Ids: ``E0xx``/``W0xx`` for exposures, tools and mounts, ``E1xx``/``W1xx`` for OAuth.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any, Final, NamedTuple

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Info, Warning

from ..conf import faults, settings
from ..conf.defaults import DEFAULTS

Check = Callable[..., list[CheckMessage]]
Find = Callable[[], Iterable[CheckMessage]]
LEVELS: Final = {"E": Error, "W": Warning, "I": Info}


def problem(id: str, what: str, remedy: str | None = None, obj: Any = None) -> CheckMessage:
    """Return the message of a check; an id of digits alone is an error, or a warning in ``DEBUG``."""
    if id.isdigit():
        id = ("W" if django_settings.DEBUG else "E") + id
    return LEVELS[id[0]](what, hint=remedy, obj=obj, id=f"mcp_django.{id}")


class Rule(NamedTuple):
    """A check whose test is one expression; its texts can name settings of ``MCP_DJANGO`` in braces."""

    id: str
    is_broken: Callable[[], Any]
    what: str
    remedy: str


class _Values(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        return getattr(settings, name)


def broken(rules: Iterable[Rule]) -> Iterator[CheckMessage]:
    """Yield a message for each broken rule."""
    values = _Values(DEFAULTS=DEFAULTS)
    for rule in rules:
        if rule.is_broken():
            yield problem(rule.id, rule.what.format_map(values), rule.remedy.format_map(values))


def check(group: list[Check], *conditions: Callable[[], bool]) -> Callable[[Find], Check]:
    """Decorate a generator of messages, and add it to a group of checks.

    The check finds nothing while a setting cannot be read, or while one of the conditions is false.
    """

    def make(find: Find) -> Check:
        @wraps(find)
        def checked(**kwargs: Any) -> list[CheckMessage]:
            if not faults() and all(holds() for holds in conditions):
                return list(find())
            return []

        group.append(checked)
        return checked

    return make
