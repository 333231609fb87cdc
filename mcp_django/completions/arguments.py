"""What has arguments to complete: a project's functions, and the templates by which models are reached."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet

from ..exceptions import NotFound
from ..functions.signatures import ProjectFunction, resolved, speaking_plainly
from ..orm.access import ModelAccess, access_of
from ..orm.columns import is_file, pk_text
from ..orm.conditions import Condition
from ..orm.filters import find_filter
from ..orm.kinds import key_field
from ..orm.lookups import parse_condition
from ..orm.uris import MAX_URI, PAGE_TEMPLATE, SCHEMA, SCHEME
from ..protocol.uri_templates import UriTemplate, percent_decode
from ..schema.containers import AnyOf, Nullable, Row
from ..schema.types import Boolean, Choice, Type
from ..schema.values import to_jsonable
from .values import BOOLEANS, LIMIT, NOTHING, Completion, ModelValues, capped, complete_field, ranked

if TYPE_CHECKING:
    from ..context.request import MCPRequest

# Of the caller's request, what was typed, and the arguments that are filled in already, by name.
Hook = Callable[["MCPRequest", str, Mapping[str, str]], Iterable[Any] | Awaitable[Iterable[Any]]]
PARTS: Final = ("app_label", "model_name", "pk", "field")
QUERY: Final = UriTemplate(PAGE_TEMPLATE).query
_VARIABLE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,63})\}")
_QUERY: Final = re.compile(r"\{?\?")


class Completer:
    """Completes the parameters of one function.

    ``hooks`` says by the name of a parameter where its values come from: a function ``(request, value, context)``, sync
    or async, that returns them with the best first, or a field whose values they are, as "app_label.model.field".
    Without one, the annotation decides: rows, choices and truth values can be completed, others cannot.
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
        """Return values for the parameter; an async hook is run to its end in this thread."""
        hook = self.hooks.get(name)
        if isinstance(hook, str):
            label, _, field = hook.rpartition(".")
            return complete_field(request, label, field, value)
        if hook is not None:
            with speaking_plainly():
                found: Any = hook(request, value, context)
                return capped(_texts(resolved(found)))
        return self._by_type(request, self.types[name], value, context)

    def _by_type(self, request: MCPRequest, kind: Type, value: str, context: Mapping[str, str]) -> Completion:
        match kind:
            case Nullable():
                return self._by_type(request, kind.inner, value, context)
            case Row():
                exposure = request.mcp.site.exposures.get(kind.model)
                model = access_of(request)[exposure] if exposure is not None else None
                if model is None or not model.is_there:
                    return NOTHING
                return ModelValues(model).keys(value, self._conditions(model, context))
            case Choice():
                labels = kind.labels or ("",) * len(kind.options)
                stored = (option for option, _ in kind.options)
                texts = (option if isinstance(option, str) else orjson.dumps(option).decode() for option in stored)
                return ranked(zip(texts, labels, strict=True), value.strip())
            case Boolean():
                return ranked(BOOLEANS, value.strip())
            case AnyOf():
                parts = [self._by_type(request, member, value, context) for member in kind.members]
                merged = capped(text for part in parts for text in part.values)
                return Completion(merged.values, merged.more or any(part.more for part in parts))
        return NOTHING

    def _conditions(self, model: ModelAccess, context: Mapping[str, str]) -> Sequence[Condition]:
        """Return the conditions that other rows lay down: of a chosen author's books, where a book has an author."""
        found = []
        for name, value in context.items():
            kind = self.types.get(name)
            kind = kind.inner if isinstance(kind, Nullable) else kind
            target = find_filter(model, name) if isinstance(kind, Row) and value else None
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


def _texts(values: Any) -> Iterator[str]:
    """Return what a hook gave as texts, rows as their keys; a queryset is not read further than is shown."""
    for value in values[:LIMIT] if isinstance(values, QuerySet) else values:
        if isinstance(value, Model):
            yield pk_text(value.pk)
            continue
        plain = to_jsonable(value)
        if plain is not None:
            yield plain if isinstance(plain, str) else orjson.dumps(plain).decode()


@dataclass(frozen=True, slots=True)
class ModelTemplate:
    """One of the templates of models, or a URI in which some or all of its variables have their values already.

    ``names`` leads from what a client may call an argument to the variable that it means, as pages name the variable of
    the primary key by its field; ``given`` are the values in the URI.
    """

    names: Mapping[str, str]
    given: Mapping[str, str]

    @classmethod
    def read(cls, uri: str) -> ModelTemplate | None:
        """Return what a client's URI or template is, None when it is not of models."""
        if not uri.startswith(SCHEME) or len(uri) > MAX_URI:
            return None
        path, *query = _QUERY.split(uri[len(SCHEME) :], maxsplit=1)
        parts = path.split("/", len(PARTS))
        if not 2 <= len(parts) <= len(PARTS) or (query and len(parts) != 2):
            return None
        names = {name: name for name in QUERY} if len(parts) == 2 else {}
        given: dict[str, str] = {}
        if parts[2:] == [SCHEMA]:
            del parts[2]
        for variable, part in zip(PARTS, parts, strict=False):
            names[variable] = variable
            if match := _VARIABLE.fullmatch(part):
                names[match[1]] = variable
                continue
            try:
                given[variable] = percent_decode(part)
            except ValueError:
                return None
        return cls(names, given)

    def takes(self, name: str) -> bool:
        """Return whether the template has such a variable."""
        return name in self.names

    def is_slow(self, name: str) -> bool:
        """Return whether code of the project's own completes the variable."""
        return False

    def complete(self, request: MCPRequest, name: str, value: str, context: Mapping[str, str]) -> Completion:
        """Return values for the variable: not percent-encoded, as a client puts them into the template."""
        given = {**self.given, **{self.names[key]: text for key, text in context.items() if key in self.names}}
        variable = self.names[name]
        app_label, model_name = given.get("app_label", ""), given.get("model_name", "")
        access = access_of(request)
        if variable in ("app_label", "model_name"):
            known: list[Any] = [exposure.opts for exposure in access.exposures]
            if variable == "app_label":
                return ranked([(opts.app_label, str(opts.app_config.verbose_name)) for opts in known], value)
            within = [opts for opts in known if app_label in ("", opts.app_label)]
            return ranked([(str(opts.model_name), str(opts.verbose_name)) for opts in within], value)
        try:
            values = ModelValues(access[access.get_exposure(f"{app_label}.{model_name}")])
        except NotFound:
            return NOTHING
        match variable:
            case "pk":
                found = values.keys(value)
                # Where the template ends here, this key would be read as the model's description.
                keys = [key for key in found.values if key != SCHEMA or "field" in self.names]
                return Completion(keys, found.more)
            case "field":
                files = [name for name in values.access.fields if is_file(values.exposure, name)]
                return ranked([(name, "") for name in files], value)
            case "search":
                return values.searched(value)
            case "ordering" | "fields":
                return values.names(value, ordering=variable == "ordering")
        return NOTHING
