"""Requests to the client (elicitation, sampling, roots): their form in each revision, and the client's answers.

``method`` and ``params`` always have the form of the newest revision, whatever the client's is (2026-07-28,
client/elicitation, client/sampling, client/roots). On 2026-07-28 the wire forms are values of ``inputRequests``
(basic/patterns/mrtr); on older revisions the server sends them as requests.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from .errors import InvalidParams
from .versions import Revisions

# The first revision with ``mode`` and URLs in elicitation, and the first with tools and block lists in sampling.
MODES_SINCE: Final = "2025-11-25"
TOOLS_SINCE: Final = "2025-11-25"
# The only revision in which URL elicitation has an ``elicitationId``.
URL_ID_IN: Final = "2025-11-25"
BLOCKS_SINCE: Final[Mapping[str, str]] = {
    "text": "2024-11-05",
    "image": "2024-11-05",
    "audio": "2025-03-26",
    "tool_use": TOOLS_SINCE,
    "tool_result": TOOLS_SINCE,
}


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request to the client (elicitation, sampling, roots), in the form of the newest revision."""

    ELICITATION: ClassVar = "elicitation/create"
    SAMPLING: ClassVar = "sampling/createMessage"
    ROOTS: ClassVar = "roots/list"

    method: str
    params: Mapping[str, Any]

    def is_known(self, version: str) -> bool:
        """Return whether the revision has this request to the client, including URLs if the params ask for one."""
        if self._is_url():
            return Revisions.is_at_least(version, MODES_SINCE)
        return _has_method(self.method, version)

    def is_supported(self, capabilities: Mapping[str, Any]) -> bool:
        """Return whether a client with these capabilities supports this request (client/elicitation, Capabilities).

        ``elicitation: {}`` means forms but no URLs, like ``{"form": {}}``; tools in sampling need ``sampling.tools``.
        """
        if self.method == self.ELICITATION and not self._is_url():
            modes = capabilities.get("elicitation")
            return isinstance(modes, Mapping) and (isinstance(modes.get("form"), Mapping) or modes.get("url") is None)
        return _covers(capabilities, self.required_capability())

    def required_capability(self) -> dict[str, Any]:
        """Return the client's capabilities that the request needs, as ``data.requiredCapabilities`` lists them.

        Raises:
            ValueError: there is no such request to clients.
        """
        match self.method:
            case "elicitation/create":
                return {"elicitation": {"url" if self._is_url() else "form": {}}}
            case "sampling/createMessage":
                return {"sampling": {"tools": {}} if self._has_tools() else {}}
            case "roots/list":
                return {"roots": {}}
        raise ValueError(f"{self.method!r} is not a request to a client")

    def shape(self, version: str, *, as_text: bool = False) -> dict[str, Any]:
        """Return the params in the form of the revision; with ``as_text`` a form asks for numbers as text.

        Raises:
            ValueError: the revision does not have this request (see :meth:`is_known`), or a form cannot have a field.
        """
        if not self.is_known(version):
            raise ValueError(f"{version} does not have {self.method} like this")
        match self.method:
            case "elicitation/create":
                if self._is_url():
                    return _shape_url(self.params, version)
                return _shape_form(self.params, version, as_text)
            case "sampling/createMessage":
                return _shape_sampling(self.params, version)
        return dict(self.params)

    def read_result(self, version: str, result: Any) -> dict[str, Any]:
        """Read the client's answer to this request, without members that are null.

        An answer to a form that was converted for an older revision is converted back. This method does not check
        whether the values fit the form.

        Raises:
            ValueError: the result is not valid for the method in this revision; the text says briefly why.
        """
        if not isinstance(result, Mapping) or not _has_method(self.method, version):
            raise ValueError("the answer is not a result of the method")
        from mcp_types.methods import validate_client_result
        from pydantic import ValidationError

        try:
            # The modern revision has the same results, although its servers do not send requests.
            validate_client_result(self.method, Revisions.LATEST_LEGACY, result)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            where = ".".join(map(str, first["loc"]))[:100]
            raise ValueError(f"the answer is not a result of the method: {where}: {first['msg']}") from None
        found = {name: value for name, value in result.items() if value is not None}
        if self.method == self.ELICITATION:
            return _read_elicitation(found, version, self.params)
        if self.method == self.SAMPLING:
            _check_blocks(found["content"], version)
        return found

    @staticmethod
    def requested_schema(schema: Mapping[str, Any], version: str, *, as_text: bool = False) -> dict[str, Any]:
        """Return the ``requestedSchema`` of an elicitation in the client's revision; ``schema`` is in the newest one.

        With ``as_text`` it asks for numbers as text, for clients that cannot show number fields.

        Raises:
            ValueError: an elicitation cannot have one of the fields.
        """
        fields: Mapping[str, Any] = schema.get("properties", {})
        wire: dict[str, Any] = {
            "type": "object",
            "properties": {name: _field(name, field, version, as_text) for name, field in fields.items()},
        }
        if schema.get("required"):
            wire["required"] = list(schema["required"])
        return wire

    def _is_url(self) -> bool:
        return self.method == self.ELICITATION and self.params.get("mode") == "url"

    def _has_tools(self) -> bool:
        return self.method == self.SAMPLING and bool(self.params.get("tools") or self.params.get("toolChoice"))


# The first revision of each request.
SINCE: Final[Mapping[str, str]] = {
    ClientRequest.ROOTS: "2024-11-05",
    ClientRequest.SAMPLING: "2024-11-05",
    ClientRequest.ELICITATION: "2025-06-18",
}


def _has_method(method: str, version: str) -> bool:
    since = SINCE.get(method)
    return since is not None and Revisions.is_at_least(version, since)


def _covers(declared: Any, needed: Mapping[str, Any]) -> bool:
    return isinstance(declared, Mapping) and all(_covers(declared.get(name), inner) for name, inner in needed.items())


def _shape_form(params: Mapping[str, Any], version: str, as_text: bool) -> dict[str, Any]:
    schema = ClientRequest.requested_schema(params["requestedSchema"], version, as_text=as_text)
    mode = {"mode": "form"} if Revisions.is_at_least(version, MODES_SINCE) else {}
    return {**mode, "message": params["message"], "requestedSchema": schema}


def _shape_url(params: Mapping[str, Any], version: str) -> dict[str, Any]:
    wire = {"mode": "url", "message": params["message"], "url": params["url"]}
    if version == URL_ID_IN:
        text = f"{params['url']}\n{params['message']}"
        wire["elicitationId"] = params.get("elicitationId") or hashlib.sha256(text.encode()).hexdigest()[:32]
    return wire


def _shape_sampling(params: Mapping[str, Any], version: str) -> dict[str, Any]:
    if Revisions.is_at_least(version, TOOLS_SINCE):
        return dict(params)
    wire = {name: value for name, value in params.items() if name not in ("tools", "toolChoice")}
    wire["messages"] = [
        {"role": message["role"], "content": _block(block, version)}
        for message in params["messages"]
        for block in _blocks(message["content"])
    ]
    return wire


def _blocks(content: Any) -> list[Any]:
    """Return the blocks of a message, which has one or a list of them."""
    if isinstance(content, list):
        return content
    return [content]


def _block(block: Mapping[str, Any], version: str) -> Mapping[str, Any]:
    if Revisions.is_at_least(version, BLOCKS_SINCE[block["type"]]):
        return block
    text = f"[audio, {block['mimeType']}]" if block["type"] == "audio" else json.dumps(block, ensure_ascii=False)
    return {"type": "text", "text": text}


# Answers of the client

# Maximum number and bytes of the answers that one request carries.
MAX_RESPONSES: Final = 32
MAX_RESPONSE_BYTES: Final = 64 * 1024


def check_responses(responses: Any) -> None:
    """Raise ``InvalidParams`` unless ``inputResponses``, the answers of a client by key, are an object within the
    bounds. This is cheap; whether each is an answer of its kind is seen later."""
    # Imported here, because few processes that import this module answer calls.
    from .messages import encode

    if not isinstance(responses, dict):
        raise InvalidParams("Invalid params: inputResponses must be an object")
    try:
        is_long = len(responses) > MAX_RESPONSES or len(encode(responses)) > MAX_RESPONSE_BYTES
    except TypeError:
        raise InvalidParams("Invalid params: inputResponses has a number over 64 bits") from None
    if is_long:
        raise InvalidParams(
            f"Invalid params: inputResponses has over {MAX_RESPONSES} members or {MAX_RESPONSE_BYTES} bytes"
        )


def _read_elicitation(found: dict[str, Any], version: str, params: Mapping[str, Any]) -> dict[str, Any]:
    if found["action"] != "accept":
        return {"action": found["action"]}
    content = {name: value for name, value in found.get("content", {}).items() if value is not None}
    if not Revisions.is_at_least(version, MODES_SINCE) and any(isinstance(value, list) for value in content.values()):
        raise ValueError("the answer is not a result of the method: content: lists are not known to the revision")
    if "requestedSchema" in params:
        content = restore(content, params["requestedSchema"], version)
    return {"action": "accept", "content": content}


def _check_blocks(content: Any, version: str) -> None:
    if isinstance(content, list) and not Revisions.is_at_least(version, TOOLS_SINCE):
        raise ValueError("the answer is not a result of the method: content: lists are not known to the revision")
    for block in content if isinstance(content, list) else [content]:
        if not Revisions.is_at_least(version, BLOCKS_SINCE[block["type"]]):
            raise ValueError(f"the answer is not a result of the method: content: {block['type']} is not known")


# The first revision with titled choices as ``oneOf``, multiple choice, and defaults for all types.
CHOICES_SINCE: Final = "2025-11-25"
COMMON: Final = frozenset({"type", "title", "description"})
KEYWORDS: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"minLength", "maxLength", "format", "default"}),
    "number": frozenset({"minimum", "maximum", "default"}),
    "integer": frozenset({"minimum", "maximum", "default"}),
    "boolean": frozenset({"default"}),
}
FORMATS: Final = frozenset({"date", "date-time", "email", "uri"})
# Pattern and description of a number that is asked for as text.
PATTERNS: Final[Mapping[str, tuple[str, str]]] = {
    "integer": (r"-?[0-9]+", "whole number"),
    "number": (r"-?[0-9]+(\.[0-9]+)?", "number"),
}
# Separators of several choices in one text; the first one that no choice contains is used.
SEPARATORS: Final = ",;|"


def restore(content: Mapping[str, Any], schema: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Convert the response to a client request (elicitation) back to the request's original ``schema``.

    Multiple choices that a client of an older revision returned as one text become a list again, whether it named their
    values or their titles. A text that names no choice is kept, and validation refuses it.
    """
    found = dict(content)
    if Revisions.is_at_least(version, CHOICES_SINCE):
        return found
    for name, field in schema.get("properties", {}).items():
        if field.get("type") == "array" and isinstance(found.get(name), str):
            choices = _choices(field["items"])
            by_title = {title: value for value, title in choices.items()}
            texts = [text.strip() for text in found[name].split(_separator(choices))]
            # A text that is a value is meant as one, also where it is the title of another.
            known = by_title | {value: value for value in choices}
            found[name] = [known.get(text, text) for text in texts if text]
    return found


def _field(name: str, field: Mapping[str, Any], version: str, as_text: bool) -> dict[str, Any]:
    kind = str(field.get("type"))
    if kind == "array" and isinstance(field.get("items"), Mapping) and _choices(field["items"]):
        return _several(field, version)
    if as_text and kind in PATTERNS:
        return _number_as_text(field, kind)
    if kind == "string" and _choices(field):
        return _one(field, version)
    if kind not in KEYWORDS:
        raise ValueError(f"{name!r} is not a form field: a string, a number, a boolean, a choice or several choices")
    known = COMMON | KEYWORDS[kind]
    if kind != "boolean" and not Revisions.is_at_least(version, CHOICES_SINCE):
        known -= {"default"}
    if field.get("format") not in FORMATS:
        known -= {"format"}
    return {keyword: value for keyword, value in field.items() if keyword in known}


def _choices(field: Mapping[str, Any]) -> dict[str, str]:
    """Return the choices of a form in a request to the client (elicitation): each value with its title."""
    titled = field.get("oneOf") or field.get("anyOf")
    if titled:
        return {choice["const"]: choice.get("title", choice["const"]) for choice in titled}
    values = field.get("enum", ())
    return dict(zip(values, field.get("enumNames") or values, strict=True))


def _keep(field: Mapping[str, Any], *keywords: str) -> dict[str, Any]:
    return {keyword: field[keyword] for keyword in ("type", "title", "description", *keywords) if keyword in field}


def _one(field: Mapping[str, Any], version: str) -> dict[str, Any]:
    choices = _choices(field)
    titled = any(value != title for value, title in choices.items())
    if not Revisions.is_at_least(version, CHOICES_SINCE):
        names = {"enumNames": list(choices.values())} if titled else {}
        return {**_keep(field), "enum": list(choices), **names}
    if "enumNames" in field:
        # Newer revisions also allow the older form, so keep it if the schema uses it.
        return _keep(field, "default", "enum", "enumNames")
    if not titled:
        return {**_keep(field, "default"), "enum": list(choices)}
    return {**_keep(field, "default"), "oneOf": _titled(choices)}


def _number_as_text(field: Mapping[str, Any], kind: str) -> dict[str, Any]:
    pattern, noun = PATTERNS[kind]
    bounds = [f"{word} {field[bound]}" for bound, word in (("minimum", "from"), ("maximum", "to")) if bound in field]
    hint = f"({' '.join([noun, *bounds])})"
    given = field.get("description")
    described = {"type": "string", "description": f"{given} {hint}" if given else hint, "pattern": f"^{pattern}$"}
    return {**_keep(field), **described}


def _several(field: Mapping[str, Any], version: str) -> dict[str, Any]:
    choices = _choices(field["items"])
    if Revisions.is_at_least(version, CHOICES_SINCE):
        titled = any(value != title for value, title in choices.items())
        items = {"anyOf": _titled(choices)} if titled else {"type": "string", "enum": list(choices)}
        return {**_keep(field, "minItems", "maxItems", "default"), "items": items}
    mark = _separator(choices)
    hint = f"Any of these, with {mark!r} between them: {f'{mark} '.join(choices.values())}"
    given = field.get("description")
    return {**_keep(field), "type": "string", "description": f"{given} {hint}" if given else hint}


def _titled(choices: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"const": value, "title": title} for value, title in choices.items()]


def _separator(choices: Mapping[str, str]) -> str:
    texts = [*choices, *choices.values()]
    return next((mark for mark in SEPARATORS if not any(mark in text for text in texts)), "\n")


# Limitations of known client programs, by the name that they claim. The name proves nothing and grants nothing: it
# only avoids sending what a client would lose.


@dataclass(frozen=True, slots=True)
class Limits:
    """Known limits of one client program: requests and results that it cannot show completely.

    ``result_chars`` is the maximum number of characters of a result that reach its model, None if no limit is known.
    ``shows_numbers`` tells whether its forms can show number fields.
    """

    result_chars: int | None = None
    shows_numbers: bool = True

    @staticmethod
    def of(name: str) -> "Limits":
        """Return the known limits of the client program of this name."""
        return KNOWN.get(name, UNLIMITED)


# OpenAI Codex cuts out the middle of longer results, and accepts forms with number fields without showing them. Cline
# cuts out the middle too, beyond 8,000 characters. Copilot CLI writes more than 20 KiB to a file, of which its model
# reads parts. The numbers leave room for what surrounds the rows of a result.
CLINE: Final = Limits(result_chars=7_000)
KNOWN: Final[Mapping[str, Limits]] = {
    "codex-mcp-client": Limits(result_chars=10_000, shows_numbers=False),
    "Cline": CLINE,
    "@cline/core": CLINE,
    "cline-acp": CLINE,
    "cline-cli": CLINE,
    "github-copilot-developer": Limits(result_chars=18_000),
}
UNLIMITED: Final = Limits()
