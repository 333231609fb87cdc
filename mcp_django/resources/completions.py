"""Completions: values for an argument of a prompt or resource template (server/utilities/completion).

Values only come from what the caller may view: hidden things look as if they did not exist. Each completion makes a few
bounded queries, for one more value than it returns, and never counts.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet

from ..context.request import MCPRequest
from ..exceptions import NotFound
from ..functions.project_function import ProjectFunction, resolved, speaking_plainly
from ..orm.access import access_of
from ..orm.column_values import pk_text
from ..orm.completed_values import Completion, ModelValues
from ..orm.uris import Address, ParsedURI
from ..protocol.uri_templates import UriTemplate
from ..schema.json_values import to_jsonable
from ..schema.value_types import Type

NOTHING: Final = Completion()


def complete_field(request: MCPRequest, label: str, name: str, text: str) -> Completion:
    """Complete the value of a filter on a field of the model with this label; see :class:`ModelValues`."""
    try:
        model = access_of(request).get_model(label)
    except NotFound:
        return NOTHING
    return ModelValues(model).of_field(name, text)


# A function of the caller's request, the typed text, and the arguments that are already filled in, by name.
Hook = Callable[["MCPRequest", str, Mapping[str, str]], Iterable[Any] | Awaitable[Iterable[Any]]]
PARTS: Final = ("app_label", "model_name", "pk", "field")
QUERY: Final = UriTemplate(Address.PAGE_TEMPLATE).query
_VARIABLE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,63})\}")
_QUERY: Final = re.compile(r"\{?\?")


class Completer:
    """Completes the arguments of one prompt or resource function, by the project's hooks or the annotations.

    ``hooks`` maps a parameter to the source of its values: a function ``(request, value, context)``, sync or async,
    that returns them with the best first, or a field with these values, as "app_label.model.field". Without a hook, the
    annotation decides: rows, choices and booleans can be completed, other types cannot.
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
        """Return whether the prompt or resource function has this parameter to complete."""
        return name in self.types

    def is_slow(self, name: str) -> bool:
        """Return whether a function of the project completes the parameter."""
        return callable(self.hooks.get(name))

    @property
    def fields(self) -> Iterator[tuple[str, str, str]]:
        """The model fields that completion hooks name, as parameter, label of the model, and field."""
        for name, hook in self.hooks.items():
            if isinstance(hook, str):
                label, _, field = hook.rpartition(".")
                yield name, label.lower(), field

    def complete(self, request: MCPRequest, name: str, value: str, context: Mapping[str, str]) -> Completion:
        """Return the completion of a parameter's value; an async hook also runs in this thread."""
        hook = self.hooks.get(name)
        if isinstance(hook, str):
            label, _, field = hook.rpartition(".")
            return complete_field(request, label, field, value)
        if hook is not None:
            with speaking_plainly():
                found: Any = hook(request, value, context)
                return Completion.of(_texts(resolved(found)))
        return self._by_type(request, self.types[name], value, context)

    def _by_type(self, request: MCPRequest, kind: Type, value: str, context: Mapping[str, str]) -> Completion:
        kind = kind.not_null
        if kind.row_model is not None:
            exposure = request.mcp.site.exposures.get(kind.row_model)
            model = access_of(request)[exposure] if exposure is not None else None
            if model is None or not model.is_there:
                return NOTHING
            return ModelValues(model).keys(value, self._chosen(context))
        if kind.alternatives:
            parts = [self._by_type(request, member, value, context) for member in kind.alternatives]
            merged = Completion.of(text for part in parts for text in part.values)
            return Completion(merged.values, merged.more or any(part.more for part in parts))
        if kind.closed_list:
            return Completion.ranked(kind.closed_list, value.strip())
        return NOTHING

    def _chosen(self, context: Mapping[str, str]) -> Mapping[str, tuple[Any, str]]:
        """Return the rows that other arguments have chosen already, with model and key of each, by parameter."""
        found = {}
        for name, value in context.items():
            kind = self.types.get(name)
            related = kind.not_null.row_model if kind is not None else None
            if related is not None and value:
                found[name] = (related, value)
        return found


def _texts(values: Any) -> Iterator[str]:
    """Return the values of a completion hook as text, rows as their keys; of a queryset read only what can be shown."""
    for value in values[: Completion.LIMIT] if isinstance(values, QuerySet) else values:
        if isinstance(value, Model):
            yield pk_text(value.pk)
            continue
        plain = to_jsonable(value)
        if plain is not None:
            yield plain if isinstance(plain, str) else orjson.dumps(plain).decode()


@dataclass(frozen=True, slots=True)
class ModelTemplate:
    """Completes the variables of a resource template of models, or of a URI in which some variables have values.

    ``names`` maps the names that a client may use for an argument to the template's variables: a URI may call the
    primary key by the name of its field. ``given`` are the values in the URI.
    """

    names: Mapping[str, str]
    given: Mapping[str, str]

    @classmethod
    def read(cls, uri: str) -> ModelTemplate | None:
        """Read the URI or template that a completion is asked for; None if it is not one of models."""
        if not uri.startswith(ParsedURI.SCHEME) or len(uri) > ParsedURI.MAX_LENGTH:
            return None
        path, *query = _QUERY.split(uri[len(ParsedURI.SCHEME) :], maxsplit=1)
        parts = path.split("/", len(PARTS))
        if not 2 <= len(parts) <= len(PARTS) or (query and len(parts) != 2):
            return None
        names = {name: name for name in QUERY} if len(parts) == 2 else {}
        given: dict[str, str] = {}
        if parts[2:] == [ParsedURI.SCHEMA]:
            del parts[2]
        for variable, part in zip(PARTS, parts, strict=False):
            names[variable] = variable
            if match := _VARIABLE.fullmatch(part):
                names[match[1]] = variable
                continue
            try:
                given[variable] = UriTemplate.decode(part)
            except ValueError:
                return None
        return cls(names, given)

    def takes(self, name: str) -> bool:
        """Return whether the resource template has this variable to complete."""
        return name in self.names

    def is_slow(self, name: str) -> bool:
        """Return whether a completion of the variable runs code of the project: never for a template of models."""
        return False

    def complete(self, request: MCPRequest, name: str, value: str, context: Mapping[str, str]) -> Completion:
        """Complete a variable of the resource template; values are not percent-encoded: the client does that."""
        given = {**self.given, **{self.names[key]: text for key, text in context.items() if key in self.names}}
        variable = self.names[name]
        app_label = given.get("app_label", "")
        model_name = given.get("model_name", "")
        access = access_of(request)
        if variable in ("app_label", "model_name"):
            known: list[Any] = [exposure.opts for exposure in access.exposures]
            if variable == "app_label":
                return Completion.ranked([(opts.app_label, str(opts.app_config.verbose_name)) for opts in known], value)
            within = [opts for opts in known if app_label in ("", opts.app_label)]
            return Completion.ranked([(str(opts.model_name), str(opts.verbose_name)) for opts in within], value)
        try:
            values = ModelValues(access.get_model(f"{app_label}.{model_name}"))
        except NotFound:
            return NOTHING
        match variable:
            case "pk":
                found = values.keys(value)
                # If the template ends with the key, this key would be read as the URI of the model's schema.
                keys = [key for key in found.values if key != ParsedURI.SCHEMA or "field" in self.names]
                return Completion(keys, found.more)
            case "field":
                files = [name for name in values.model.fields if values.model.is_file(name)]
                return Completion.ranked([(name, "") for name in files], value)
            case "search":
                return values.searched(value)
            case "ordering" | "fields":
                return values.names(value, ordering=variable == "ordering")
        return NOTHING
