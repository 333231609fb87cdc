"""Completion of the templates by which models are reached: what stands further left says what may stand here."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..context.request import Exposure, MCPRequest
from ..exceptions import NotFound
from ..orm.access import get_exposure, visible_exposures, visible_fields
from ..orm.columns import is_file
from ..orm.ordering import client_order_key
from ..orm.relations import plain_label
from ..orm.uris import MAX_URI, PAGE_TEMPLATE, SCHEMA, SCHEME
from ..protocol.uri_templates import UriTemplate, percent_decode
from .base import NOTHING, Completion, last_member, ranked
from .fields import complete_field
from .rows import complete_rows

PARTS: Final = ("app_label", "model_name", "pk", "field")
QUERY: Final = UriTemplate(PAGE_TEMPLATE).query
_VARIABLE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,63})\}")
_QUERY: Final = re.compile(r"\{?\?")


@dataclass(frozen=True, slots=True)
class ModelTemplate:
    """One of the templates of models, or a URI in which some or all of its variables have their values already.

    ``names`` leads from what a client may call an argument to the variable that it means, as pages name the variable of
    the primary key by its field; ``given`` are the values in the URI.
    """

    names: Mapping[str, str]
    given: Mapping[str, str]

    @classmethod
    def read(cls, uri: str) -> "ModelTemplate | None":
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
        if variable in ("app_label", "model_name"):
            return _complete_label(request, variable, value, given)
        try:
            exposure = get_exposure(request, f"{given.get('app_label', '')}.{given.get('model_name', '')}")
        except NotFound:
            return NOTHING
        match variable:
            case "pk":
                found = complete_rows(request, exposure, value)
                # Where the template ends here, this key would be read as the model's description.
                values = [key for key in found.values if key != SCHEMA or "field" in self.names]
                return Completion(values, found.more)
            case "field":
                names = visible_fields(request, exposure)
                return ranked([(name, "") for name in names if is_file(exposure, name)], value)
            case "search":
                return _complete_search(request, exposure, value)
            case "ordering" | "fields":
                return _complete_names(request, exposure, variable, value)
        return NOTHING


def _complete_label(request: MCPRequest, variable: str, value: str, given: Mapping[str, str]) -> Completion:
    known: list[Any] = [exposure.opts for exposure in visible_exposures(request)]
    if variable == "app_label":
        return ranked([(opts.app_label, str(opts.app_config.verbose_name)) for opts in known], value)
    app_label = given.get("app_label", "")
    within = [opts for opts in known if app_label in ("", opts.app_label)]
    return ranked([(str(opts.model_name), str(opts.verbose_name)) for opts in within], value)


def _complete_search(request: MCPRequest, exposure: Exposure, value: str) -> Completion:
    """Return labels of rows, where a search looks for them."""
    label = plain_label(exposure)
    searched = {name.lstrip("^=@") for name in exposure.get_search_fields(request)}
    return complete_field(request, exposure.label, label, value) if label is not None and label in searched else NOTHING


def _complete_names(request: MCPRequest, exposure: Exposure, variable: str, value: str) -> Completion:
    """Return comma lists whose last member is completed to a field that the caller may see, or sort by."""
    written, member = last_member(value)
    sign = member[:1] if variable == "ordering" and member[:1] in ("-", "+") else ""
    used = {name.strip().lstrip("-+") for name in written.split(",")}
    names = [name for name in visible_fields(request, exposure) if name not in used]
    if variable == "ordering":
        names = [name for name in names if client_order_key(request, exposure, name, descending=False) is not None]
    found = ranked([(name, "") for name in names], member[len(sign) :])
    return Completion([f"{written}{sign}{name}" for name in found.values], found.more)
