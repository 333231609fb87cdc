"""Completion of the parameters of a project's functions: by what the project says, or else by their annotations."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet

from ..functions.project import ProjectFunction, speaking_plainly
from ..schema.containers import AnyOf, Nullable, Row
from ..schema.jsonable import to_jsonable
from ..schema.types import Boolean, Choice, Type
from .base import MAX_VALUES, NOTHING, Completion, capped, ranked

if TYPE_CHECKING:
    from ..context.request import MCPRequest
    from ..orm.lookups import Condition

# Of the caller's request, what was typed, and the arguments that are filled in already, by name.
Hook = Callable[["MCPRequest", str, Mapping[str, str]], Iterable[Any] | Awaitable[Iterable[Any]]]
BOOLEANS: Final = (("true", ""), ("false", ""))


class Completer:
    """Completes the parameters of one function.

    ``hooks`` says by the name of a parameter where its values come from: a function ``(request, value, context)``, sync
    or async, that returns them with the best first, or a field whose values they are, as "app_label.model.field".
    Without one, the annotation decides: rows, choices and truth values can be completed, others cannot.

    Raises:
        ImproperlyConfigured: a hook is for no parameter of the function, or is neither of the two.
    """

    def __init__(self, function: ProjectFunction, hooks: Mapping[str, Hook | str] | None = None) -> None:
        self.types = {name: parameter.type for name, parameter in function.arguments.parameters.items()}
        self.hooks = dict(hooks or {})
        for name, hook in self.hooks.items():
            if name not in self.types:
                raise ImproperlyConfigured(f"{function.name} has no parameter {name}, which complete names")
            if not callable(hook) and not (isinstance(hook, str) and hook.count(".") == 2):
                raise ImproperlyConfigured(
                    f'{function.name}: complete takes a function or a field such as "shop.order.status" for {name}'
                )

    def takes(self, name: str) -> bool:
        """Return whether the function has such a parameter."""
        return name in self.types

    def is_slow(self, name: str) -> bool:
        """Return whether code of the project's own completes the parameter."""
        return callable(self.hooks.get(name))

    @property
    def fields(self) -> Iterator[tuple[str, str, str]]:
        """The fields that hooks name: the parameter, the label of the model, and the field."""
        for name, hook in self.hooks.items():
            if isinstance(hook, str):
                label, _, field = hook.rpartition(".")
                yield name, label.lower(), field

    def complete(self, request: MCPRequest, name: str, value: str, context: Mapping[str, str]) -> Completion:
        """Return values for the parameter; an async hook is run to its end in this thread.

        Raises:
            ToolError: the hook refused in one of Django's ways.
        """
        hook = self.hooks.get(name)
        if isinstance(hook, str):
            from .fields import complete_field

            label, _, field = hook.rpartition(".")
            return complete_field(request, label, field, value)
        if hook is not None:
            with speaking_plainly():
                found: Any = hook(request, value, context)
                return capped(_texts(async_to_sync(_finish)(found) if inspect.isawaitable(found) else found))
        return self._by_type(request, self.types[name], value, context)

    def _by_type(self, request: MCPRequest, kind: Type, value: str, context: Mapping[str, str]) -> Completion:
        match kind:
            case Nullable():
                return self._by_type(request, kind.inner, value, context)
            case Row():
                from ..orm.access import may_view
                from .rows import complete_rows

                exposure = request.mcp.site.exposures.get(kind.model)
                if exposure is None or not may_view(request, exposure):
                    return NOTHING
                return complete_rows(request, exposure, value, self._conditions(request, exposure, context))
            case Choice():
                labels = kind.labels or ("",) * len(kind.options)
                return ranked(zip(map(_option, kind.options), labels, strict=True), value.strip())
            case Boolean():
                return ranked(BOOLEANS, value.strip())
            case AnyOf():
                parts = [self._by_type(request, member, value, context) for member in kind.members]
                merged = capped(text for part in parts for text in part.values)
                return Completion(merged.values, merged.more or any(part.more for part in parts))
        return NOTHING

    def _conditions(self, request: MCPRequest, exposure: Any, context: Mapping[str, str]) -> Sequence[Condition]:
        """Return the conditions that other rows lay down: of a chosen author's books, where a book has an author."""
        from ..orm.filters import find_filter
        from ..orm.kinds import key_field
        from ..orm.lookups import parse_condition

        found = []
        for name, value in context.items():
            kind = self.types.get(name)
            kind = kind.inner if isinstance(kind, Nullable) else kind
            target = find_filter(request, exposure, name) if isinstance(kind, Row) and value else None
            if target is None or "exact" not in target[1]:
                continue
            field = target[0].field
            by_key = field.is_relation and (field.many_to_many or key_field(field).primary_key)
            if isinstance(kind, Row) and by_key and field.related_model is kind.model:
                try:
                    found.append(parse_condition(target[0], "exact", value))
                except ValueError:
                    continue
        return found


def _option(option: tuple[Any, Any]) -> str:
    value = option[0]
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _texts(values: Any) -> Iterator[str]:
    """Return what a hook gave as texts, rows as their keys; a queryset is not read further than is shown."""
    from ..orm.columns import pk_text

    for value in values[: MAX_VALUES + 1] if isinstance(values, QuerySet) else values:
        if isinstance(value, Model):
            yield pk_text(value.pk)
            continue
        plain = to_jsonable(value)
        if plain is not None:
            yield plain if isinstance(plain, str) else orjson.dumps(plain).decode()


async def _finish(value: Awaitable[Any]) -> Any:
    return await value
