"""Restrict a call to models, or to reading: by the user's choice at the consent page, and by the query of the URL.

A restriction narrows and never widens. For a model that it leaves out, the user has no permission: this module narrows
the user's permissions, and each exposure asks :meth:`Narrowing.admits` before any hook of the project.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, ClassVar, Final
from urllib.parse import parse_qsl, urlencode

from django.apps import apps
from django.contrib.auth import get_permission_codename

from ..scopes import Scope

# The label of an app or of a model.
LABEL: Final = re.compile(r"[a-z_][a-z0-9_]{0,99}(\.[a-z_][a-z0-9_]{0,99})?")
MAX_LABELS: Final = 1_000
CHANGES: Final = "mcp.change"
READ_ONLY: Final = "read_only"
MODELS: Final = "models"
SWITCHES: Final = {"1": True, "true": True, "0": False, "false": False}
# Methods of a user that return sets of permissions.
LISTED: Final = ("get_user_permissions", "get_group_permissions", "get_all_permissions")


class UnreadableAddress(ValueError):
    """The query of the endpoint's URL does not say clearly to which models, or to reading, calls are restricted."""


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The restriction of a call to models (``labels``, None for all) and to reading; ``named`` are those in the URL."""

    labels: frozenset[str] | None = None
    read_only: bool = False
    named: tuple[str, ...] = field(default=())

    # Name of the fact that holds a token's restriction.
    FACT: ClassVar[str] = "narrowed_to"

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Narrowing | None":
        """Read the call restriction kept with a token, None without one; an unreadable restriction leaves nothing."""
        kept = facts.get(cls.FACT)
        if kept is None:
            return None
        models = kept.get(MODELS) if isinstance(kept, dict) else ()
        if not isinstance(kept, dict) or not isinstance(models, list | None):
            return NOTHING
        labels = None if models is None else frozenset(map(str, models))
        return cls(labels, bool(kept.get(READ_ONLY)), tuple(kept.get("named", ())))

    @classmethod
    def apply(cls, request: Any) -> None:
        """Restrict a call by the facts of its token; the call's request must have its user and scopes already."""
        context = request.mcp
        context.narrowing = found = cls.of(context.facts)
        if found is None:
            return
        if found.read_only:
            context.scopes -= {Scope.WRITE}
        if found.labels is not None:
            request.user = _narrowed_user(request.user, found)

    @classmethod
    def fact(cls, labels: Collection[str]) -> dict[str, Any]:
        """Return the restriction to these apps and models, as a fact by its name, to be kept with a token."""
        wide = [label for label in labels if label.partition(".")[0] == label or not _is_in(label, labels)]
        return {cls.FACT: {MODELS: sorted(wide)}}

    @staticmethod
    def can_name(labels: Collection[str]) -> bool:
        """Return whether a call can be restricted to these: labels of apps and models, and not too many."""
        return len(labels) <= MAX_LABELS and all(map(LABEL.fullmatch, labels))

    def admits(self, model: Any) -> bool:
        """Return whether the call's restriction admits the model; for a many-to-many table, both models."""
        if self.labels is None:
            return True
        opts = model._meta
        # The caller's own changes: those of models that are left out are left out of its rows.
        if opts.label_lower == CHANGES:
            return True
        if opts.auto_created:
            return all(self.admits(item.related_model) for item in opts.fields if item.is_relation)
        return opts.app_label in self.labels or opts.label_lower in self.labels

    def admits_permission(self, permission: str) -> bool:
        """Return whether the call's restriction leaves the user a permission, such as ``shop.change_order``."""
        if self.labels is None or permission.partition(".")[0] in self.labels:
            return True
        return any(permission in _permissions_of(label) for label in self.labels)

    def admits_app(self, app_label: str) -> bool:
        """Return whether the call's restriction leaves any model of the app."""
        return self.labels is None or any(label.partition(".")[0] == app_label for label in self.labels)


NOTHING: Final = Narrowing(frozenset(), read_only=True)


@lru_cache(maxsize=1024)
def _permissions_of(label: str) -> frozenset[str]:
    try:
        opts = apps.get_model(label)._meta
    except (LookupError, ValueError):
        return frozenset()
    names = [get_permission_codename(action, opts) for action in opts.default_permissions]
    return frozenset(f"{opts.app_label}.{name}" for name in (*names, *(name for name, _ in opts.permissions)))


# The user


def _narrowed_user(user: Any, narrowing: Narrowing) -> Any:
    """Restrict the user of a call: return a copy without permissions for the models left out."""
    found = copy(user)
    asked = {"has_perm": narrowing.admits_permission, "has_module_perms": narrowing.admits_app}
    for name in (*asked, *LISTED):
        for spelling in (name, f"a{name}"):
            own = getattr(type(user), spelling, None)
            if own is not None:
                is_async = spelling != name
                setattr(found, spelling, _narrowed(partial(own, found), asked.get(name), narrowing, is_async=is_async))
    return found


def _narrowed(
    own: Callable[..., Any], admits: Callable[[str], bool] | None, narrowing: Narrowing, *, is_async: bool
) -> Callable[..., Any]:
    """Wrap a permission method of the user so that it denies everything outside the call's restriction."""

    def ask(*given: Any) -> Any:
        if admits is None:
            return {name for name in own(*given) if narrowing.admits_permission(name)}
        if not isinstance(given[0], str) or admits(given[0]):
            return own(*given)
        return False

    async def ask_async(*given: Any) -> Any:
        if admits is None:
            return {name for name in await own(*given) if narrowing.admits_permission(name)}
        if not isinstance(given[0], str) or admits(given[0]):
            return await own(*given)
        return False

    return ask_async if is_async else ask


def _is_in(label: str, labels: Collection[str]) -> bool:
    return label.partition(".")[0] in labels


def _meet(some: Iterable[str], others: Iterable[str]) -> set[str]:
    """Return the labels of the models that both restrictions contain."""
    one = set(some)
    two = set(others)
    return {label for label in one if label in two or _is_in(label, two)} | {
        label for label in two if label in one or _is_in(label, one)
    }


# Query of the URL


class NarrowingQuery:
    """The query of an endpoint's URL, which can restrict calls: ``read_only=1&models=shop,crm.customer``."""

    def __init__(self, query: str) -> None:
        self.query = query

    @property
    def only_narrows(self) -> bool:
        """Whether the query has no parameters but those that restrict calls."""
        return {name for name, _ in parse_qsl(self.query, keep_blank_values=True)} <= {READ_ONLY, MODELS}

    def facts(self, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the facts of a token with the restriction of a call by this query."""
        given = _choices(self.query)
        if not given:
            return facts
        kept = Narrowing.of(facts) or Narrowing()
        read_only = kept.read_only or any(_switch(value) for value in given.get(READ_ONLY, ()))
        labels = kept.labels
        named = [label for value in given.get(MODELS, ()) for label in _labels(value)]
        if MODELS in given:
            labels = frozenset(named) if labels is None else frozenset(_meet(labels, named))
        found = {MODELS: None if labels is None else sorted(labels), READ_ONLY: read_only, "named": named}
        return {**facts, Narrowing.FACT: found}

    def kept(self) -> str:
        """Return the part that restricts calls, for a URL that a client is sent to."""
        return urlencode([(name, value) for name, values in _choices(self.query).items() for value in values])


def _choices(query: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in (READ_ONLY, MODELS):
            found.setdefault(name, []).append(value)
            continue
        # Refuse misspelt names: ignored, they would leave everything open.
        meant = {"readonly": READ_ONLY, "model": MODELS, "models": MODELS}.get(re.sub(r"[^a-z]", "", name.lower()))
        if meant is not None:
            raise UnreadableAddress(f"The URL has {name[:20]!r}. Did you mean {meant}?")
    return found


def _switch(value: str) -> bool:
    found = SWITCHES.get(value.strip().lower())
    if found is None:
        raise UnreadableAddress(f"read_only in the URL must be 1 or 0, not {value[:20]!r}.")
    return found


def _labels(value: str) -> list[str]:
    labels = [label.strip().lower() for label in value.split(",")]
    unreadable = [label for label in labels if not LABEL.fullmatch(label)]
    if unreadable or len(labels) > MAX_LABELS:
        told = repr(unreadable[0][:60]) if unreadable else f"{len(labels)} names"
        raise UnreadableAddress(
            f"models in the URL names apps (shop) and models (shop.order), separated by commas, not {told}."
        )
    return labels
