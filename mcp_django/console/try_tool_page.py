"""The console's page to try a tool as oneself, with Django forms made from JSON Schemas of tools and questions."""

import json
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponseBase
from django.utils.functional import cached_property
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..context.call_record import CallRecord
from ..oauth.resource_urls import resource_url
from ..operating.recorded_calls import counted
from ..orm.access import ModelAccess, access_of
from ..orm.allowed_filters import AllowedFilter
from ..orm.named_filters import NamedFilter
from ..protocol.client_requests import ClientRequest
from ..protocol.eras import client_meta
from ..protocol.headers import ParamHeader
from ..protocol.versions import Revisions
from ..routing import ENDPOINTS
from ..signin import SignIn
from ..tools.generic import ToolSet
from ..tools.model_overview import Overview
from ..transports.local_client import LocalClient
from .console_pages import Page
from .known_sites import known_sites
from .visibility_page import SiteForm, with_defaults
from .visibility_report import ask, request_of, tokens

MAX_HELP: Final = 600
# Maximum number of rows of a relation to choose from, and maximum characters of arguments in a link.
MAX_CHOICES: Final = 100
MAX_ARGUMENTS: Final = 20_000
# Separates the name of an argument from that of its member in the name of a form field.
WITHIN: Final = "."


class JSONText(forms.CharField):
    """A field for JSON, or for plain text if the schema allows text."""

    widget = forms.Textarea(attrs={"rows": 3, "dir": "ltr", "spellcheck": "false"})

    def __init__(self, *, takes_text: bool, **options: Any) -> None:
        self.takes_text = takes_text
        super().__init__(**options)

    def clean(self, value: Any) -> Any:
        """Return the value, None for none."""
        text: str = super().clean(value)
        return None if text == "" else _json(text, self.takes_text)


class Lines(forms.CharField):
    """A field for a list, one item per line."""

    widget = forms.Textarea(attrs={"rows": 3, "dir": "auto", "spellcheck": "false"})

    def clean(self, value: Any) -> Any:
        """Return the list, None for no line."""
        items = []
        for line in map(str.strip, super().clean(value).splitlines()):
            if line.startswith(("{", "[")):
                items.append(_json(line, True))
            elif line:
                items.append(line)
        return items or None


class Chosen(forms.ChoiceField):
    """A choice of the values of an ``enum``; ``none`` has the choices that stand for no value."""

    none: Sequence[tuple[str, str]] = (("", "-"),)

    def __init__(self, *, values: Mapping[str, Any], **options: Any) -> None:
        self.values = values
        choices = list(self.none)
        for key, (_value, title) in values.items():
            choices.append((key, key if title is None else title))
        super().__init__(choices=choices, **options)

    def clean(self, value: Any) -> Any:
        """Return the value, None for none."""
        key: str = super().clean(value)
        return self.values[key][0] if key else None


class SeveralChosen(Chosen, forms.MultipleChoiceField):
    """A field for several of the values of an ``enum``."""

    widget = forms.CheckboxSelectMultiple
    none = ()

    def clean(self, value: Any) -> Any:
        """Return the values, None for none."""
        return [self.values[key][0] for key in forms.MultipleChoiceField.clean(self, value)] or None


def _json(text: str, takes_text: bool) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        if takes_text:
            return text
        raise ValidationError(gettext_lazy("This is not JSON.")) from None


class Pairs(Lines):
    """A field for filters: a line for each, ``name=value``, or all of them as JSON."""

    def clean(self, value: Any) -> Any:
        """Return the filters, None for none."""
        if str(value).lstrip().startswith("{"):
            return _json(value, False)
        pairs = [str(line).partition("=") for line in super().clean(value) or ()]
        return {name.strip(): _json(text.strip(), True) for name, _sign, text in pairs} or None


class SchemaForm(forms.Form):
    """A Django form made from the JSON Schema of a tool or a question. Nothing is required: the tool validates.

    ``initial`` has JSON values by name.
    """

    def __init__(
        self, schema: Mapping[str, Any], data: Any = None, *, initial: Mapping[str, Any] | None = None, prefix: str
    ) -> None:
        super().__init__(data, prefix=prefix, auto_id=f"{prefix}_%s")
        for name, part in schema.get("properties", {}).items():
            value = (initial or {}).get(name)
            if isinstance(part, Mapping) and "fields" in part:
                members = value if isinstance(value, Mapping) else {}
                for inner, inner_part in part["fields"].get("properties", {}).items():
                    self._add(f"{name}{WITHIN}{inner}", inner_part, members.get(inner), part["fields"])
            else:
                self._add(name, part if isinstance(part, Mapping) else {}, value, schema)

    def _add(self, name: str, part: Mapping[str, Any], value: Any, schema: Mapping[str, Any]) -> None:
        """Add the field of an argument, or of a member of one."""
        own = name.rpartition(WITHIN)[2]
        field: Any = field_of(own, part)
        field.is_asked_for = own in schema.get("required", ())
        value = part.get("default") if value is None else value
        if value is not None:
            field.initial = _shown(field, value)
        field.suggested = part.get("suggested")
        self.fields[name] = field

    def values_given(self) -> dict[str, Any]:
        """Return the JSON values that were entered, by name, without empty ones."""
        values: dict[str, Any] = {}
        for name, value in self.cleaned_data.items():
            outer, within, inner = name.partition(WITHIN)
            if value not in (None, ""):
                (values.setdefault(outer, {}) if within else values)[inner or outer] = value
        return values


def field_of(name: str, schema: Mapping[str, Any]) -> forms.Field:
    """Return the form field for a property of a JSON Schema; complex types are entered as JSON.

    Numbers and times are entered as text: a browser's own input for them leaves out a value that it cannot show.
    """
    help_text = str(schema.get("description", ""))[:MAX_HELP]
    options: dict[str, Any] = {"label": str(schema.get("title") or name), "help_text": help_text, "required": False}
    kind = schema.get("type")
    items = schema.get("items")
    if "const" in schema:
        return forms.CharField(widget=forms.HiddenInput, initial=schema["const"], **options)
    if values := _values(schema):
        return Chosen(values=values, **options)
    if kind == "object" and "suggested" in schema:
        return Pairs(**options)
    if kind == "array" and isinstance(items, Mapping):
        if values := _values(items):
            return SeveralChosen(values=values, **options)
        if items.get("type") == "string":
            return Lines(**options)
    match kind:
        case "string":
            return forms.CharField(strip=False, widget=forms.TextInput(attrs={"dir": "auto"}), **options)
        case "integer":
            return forms.IntegerField(widget=forms.TextInput, **options)
        case "number":
            return forms.FloatField(widget=forms.TextInput, **options)
    kinds = kind if isinstance(kind, list) else [kind]
    return JSONText(takes_text="string" in kinds or kind is None, **options)


def _values(schema: Mapping[str, Any]) -> dict[str, tuple[Any, str | None]]:
    """Return the values that a JSON Schema enumerates, with their titles, by their text in the form."""
    if schema.get("type") == "boolean":
        return {"true": (True, None), "false": (False, None)}
    titles = schema.get("enumNames") or ()
    titled: list[tuple[Any, str | None]] = []
    for number, value in enumerate(schema.get("enum", ())):
        titled.append((value, titles[number] if number < len(titles) else None))
    for part in schema.get("oneOf", schema.get("anyOf", ())):
        if isinstance(part, Mapping) and "const" in part:
            titled.append((part["const"], part.get("title")))
    return {_as_text(value): (value, title) for value, title in titled}


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _shown(field: forms.Field, value: Any) -> Any:
    """Return a JSON value as the initial value of a form field."""
    match field:
        case Lines() if isinstance(value, list):
            return "\n".join(map(_as_text, value))
        case SeveralChosen() if isinstance(value, list):
            return [_as_text(item) for item in value]
        case Chosen() | JSONText() | Pairs():
            if isinstance(value, str):
                return value
            return json.dumps(value, ensure_ascii=False)
    return value


GENERIC: Final = frozenset(tool.name for tool in ToolSet.GENERIC.value)
# Client name of the console in the log and in the admin's history.
NAME: Final = "console"
CAPABILITIES: Final[Mapping[str, Any]] = {"elicitation": {"form": {}}}
# Maximum number of rows and columns, and maximum characters of a cell, in the table of an answer.
MAX_ROWS: Final = 200
MAX_COLUMNS: Final = 40
MAX_CELL: Final = 300
# Maximum characters of JSON that are shown.
MAX_JSON: Final = 100_000


def schema_for(model: ModelAccess, tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input schema of a generic tool with the fields and choices of one model."""
    parts = tool["inputSchema"]["properties"]
    fields = list(model.fields)
    filters = []
    for name, allowed in AllowedFilter.all(model):
        choices = getattr(allowed.path.field, "flatchoices", ())
        filters += [f"{name}={value}" for value, _title in choices] or [f"{name}="]
        filters += [f"{name}__{lookup}=" for lookup in allowed.lookups if lookup != "exact"]
    for offer in NamedFilter.offers_of(model, described=True):
        filters += [f"{offer.name}={value}" for value, _title in offer.choices] or [f"{offer.name}="]
    offered: dict[str, dict[str, Any]] = {
        "model": {"const": model.exposure.label},
        "fields": {"suggested": fields},
        "ordering": {"suggested": [sign + name for name in fields for sign in ("", "-")]},
        "group_by": {"suggested": fields},
        "filters": {"suggested": filters},
        "action": {"enum": list(model.actions)},
    }
    writing = Overview(model).forms[tool["name"] == "update_record"]
    if "values" in parts and writing is not None:
        offered["values"] = {"fields": with_rows(writing.form, writing.schema())}
    parts = {name: {**part, **offered.get(name, {})} for name, part in parts.items()}
    return {**tool["inputSchema"], "properties": parts}


def with_rows(form: Any, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a form's fields with the rows of relations to choose from, where there are few."""
    for name, part in schema.get("properties", {}).items():
        field = form.fields[name]
        if isinstance(field, forms.ModelChoiceField) and field.queryset is not None:
            rows = list(field.queryset[: MAX_CHOICES + 1])
            if len(rows) <= MAX_CHOICES:
                choices = []
                for row in rows:
                    key = row.pk if isinstance(row.pk, int) else str(row.pk)
                    choices.append({"const": key, "title": field.label_from_instance(row)})
                offer = {"oneOf": choices}
                part.update({"items": offer} if part.get("type") == "array" else offer)
    return schema


class CallerForm(SiteForm):
    """The form that chooses site, scopes, tool and model."""

    tool = forms.ChoiceField(label=gettext_lazy("Tool"), required=False)
    model = forms.ChoiceField(label=gettext_lazy("Model"), required=False)

    def __init__(self, data: Any) -> None:
        super().__init__(with_defaults(data), auto_id="try_%s")

    def offer(self, tools: Iterable[str], models: Iterable[str]) -> None:
        """Offer these tools and these models."""
        fields: Any = self.fields
        for name, offered in (("tool", tools), ("model", models)):
            fields[name].choices = [("", "-"), *((item, item) for item in offered)]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells; ``more`` rows are not shown."""

    columns: list[str]
    rows: list[list[str]]
    more: int = 0


@dataclass(slots=True)
class Answer:
    """The answer of a tool call: result or refusal, record of the call, and ``duration`` in ms."""

    result: Mapping[str, Any] = field(default_factory=dict)
    refusal: str = ""
    record: CallRecord = field(default_factory=CallRecord)
    duration: float = 0.0

    @property
    def structured(self) -> Any:
        """The structured content, None without any."""
        return self.result.get("structuredContent")

    @property
    def texts(self) -> list[str]:
        """The text blocks, without the one that repeats the structured content."""
        blocks = [block["text"] for block in self.result.get("content", ()) if block.get("type") == "text"]
        return blocks[1:] if self.structured is not None else blocks

    @property
    def others(self) -> list[str]:
        """The types of the blocks that are not text."""
        return [block["type"] for block in self.result.get("content", ()) if block.get("type") != "text"]

    @property
    def json(self) -> str:
        """The result as JSON text."""
        return json.dumps(self.result, indent=1, ensure_ascii=False)[:MAX_JSON]

    @property
    def tokens(self) -> int:
        """The estimated tokens that an AI model reads of the answer."""
        return tokens(self.refusal or self.result.get("content", []))

    @property
    def table(self) -> Table | None:
        """The structured content as a table, None if there are no rows."""
        return table_of(self.structured)


class TryIt:
    """The answer to one request for the page."""

    def __init__(self, page: Page, request: HttpRequest) -> None:
        self.page = page
        self.request = request
        self.form = CallerForm(request.POST if request.method == "POST" else request.GET)
        self.tools: dict[str, dict[str, Any]] = {}
        self.takes_model = False

    def respond(self) -> HttpResponseBase:
        """Render the choice of a tool, the tool's form, a question of the call, or the call's answer."""
        self.form.offer((), ())
        self.form.full_clean()
        if self.form.errors.keys() - {"tool", "model"}:
            return self._page()
        request = request_of(self.client)
        self.tools = {item["name"]: item for item in ask(request, "tools/list")["tools"]}
        models = {model.exposure.label: model for model in access_of(request).models}
        initial = self._linked()
        data: Any = self.form.data
        data.setdefault("model", str(initial.get("model", "")))
        self.form.offer(self.tools, models)
        self.form.full_clean()
        tool = self.tools.get(self.form.cleaned_data.get("tool", ""))
        if tool is None:
            return self._page()
        self.takes_model = tool["name"] in GENERIC and "model" in tool["inputSchema"]["properties"]
        if self.takes_model and (model := models.get(self.form.cleaned_data.get("model", ""))):
            initial["model"] = model.exposure.label
            tool = {**tool, "inputSchema": schema_for(model, tool)}
            self.tools[tool["name"]] = tool
        if self.request.method != "POST":
            form = SchemaForm(tool["inputSchema"], prefix="arg", initial=initial)
            return self._page(tool=tool, arguments=form)
        if "asked_for" in self.request.POST:
            return self._answered(tool)
        return self._run(tool)

    def _linked(self) -> dict[str, Any]:
        """Return the arguments that a link gives as JSON, or by the key of a logged call that had them."""
        text = self.request.GET.get("arguments", "")
        key = self.request.GET.get("call", "")
        if key and self.request.user.has_perm("mcp_django.view_bodies"):
            text = getattr(self.page.home.get_object(self.request, key), "arguments", "")
        try:
            arguments = json.loads(text) if len(text) <= MAX_ARGUMENTS else None
        except (ValueError, RecursionError):
            return {}
        return arguments if isinstance(arguments, dict) else {}

    @cached_property
    def client(self) -> LocalClient:
        """The client that tries the tool as the page's user, with the chosen site and scopes."""
        chosen = self.form.cleaned_data
        return LocalClient(
            known_sites()[chosen["site"]],
            self.request.user,  # type: ignore[arg-type]
            chosen["scope"],
            SignIn(self.request).facts(),
            name=NAME,
            capabilities=CAPABILITIES,
            is_signed_in=True,
        )

    def _page(self, **more: Any) -> HttpResponseBase:
        tool = more.get("tool")
        writes = tool is not None and not tool.get("annotations", {}).get("readOnlyHint", False)
        context = {"form": self.form, "tools": self.tools, "writes": writes, "takes_model": self.takes_model}
        return self.page.render(self.request, {**context, **more})

    # Calls

    def _run(self, tool: dict[str, Any]) -> HttpResponseBase:
        """Call the tool with the form's arguments."""
        form = SchemaForm(tool["inputSchema"], self.request.POST, prefix="arg")
        whole = self.request.POST.get("json", "").strip()
        context = {"tool": tool, "arguments": form}
        if whole:
            try:
                arguments = json.loads(whole)
            except (ValueError, RecursionError):
                arguments = None
            if not isinstance(arguments, dict):
                return self._page(**context, json=whole, fault=_("The arguments are not a JSON object."))
        elif not form.is_valid():
            return self._page(**context)
        else:
            arguments = form.values_given()
        writes = not tool.get("annotations", {}).get("readOnlyHint", False)
        if writes and "confirmed" not in self.request.POST:
            fault = _("This tool can change data. Confirm that you want that.")
            return self._page(**context, json=whole, fault=fault)
        return self._call(tool, arguments, {**context, "json": whole})

    def _answered(self, tool: dict[str, Any]) -> HttpResponseBase:
        """Call the tool again, with the person's answers to its questions."""
        try:
            arguments, questions = (json.loads(self.request.POST.get(name, "")) for name in ("given", "asked_for"))
            arguments = {**arguments}
            parts = [(key, question["params"]) for key, question in questions.items()]
        except (ValueError, RecursionError, AttributeError, TypeError, KeyError):
            return self._page(tool=tool, arguments=SchemaForm(tool["inputSchema"], prefix="arg"))
        state = self.request.POST.get("state", "")
        context = {"tool": tool, "arguments": SchemaForm(tool["inputSchema"], prefix="arg", initial=arguments)}
        forms_of = self._questions(parts, self.request.POST)
        if "decline" in self.request.POST:
            responses: dict[str, Any] = {item["key"]: {"action": "decline"} for item in forms_of}
        elif all(item["form"].is_valid() for item in forms_of):
            responses = {item["key"]: {"action": "accept", "content": item["form"].values_given()} for item in forms_of}
        else:
            return self._ask(tool, arguments, {"inputRequests": questions, "requestState": state}, forms_of)
        more = {"inputResponses": responses, **({"requestState": state} if state else {})}
        return self._call(tool, arguments, context, **more)

    def _call(self, tool: dict[str, Any], given: Any, context: dict[str, Any], **more: Any) -> HttpResponseBase:
        answer = Answer()
        began = time.perf_counter()
        try:
            with counted(answer.record):
                answer.result = self.client.request("tools/call", name=tool["name"], arguments=given, **more)
        except LocalClient.CallFailed as refused:
            answer.refusal = str(refused)
        answer.duration = (time.perf_counter() - began) * 1000
        if answer.result.get("resultType") == "input_required":
            parts = [(key, item["params"]) for key, item in answer.result["inputRequests"].items()]
            return self._ask(tool, given, answer.result, self._questions(parts))
        python = {"url": repr(self._url), "tool": repr(tool["name"]), "arguments": repr(given)}
        call = json.dumps({"name": tool["name"], "arguments": given}, indent=1, ensure_ascii=False)
        return self._page(**context, answer=answer, curl=self._curl(tool, given), python=python, call=call)

    def _questions(self, parts: list[tuple[str, Any]], data: Any = None) -> list[dict[str, Any]]:
        return [
            {
                "key": key,
                "message": params.get("message", ""),
                "form": SchemaForm(params.get("requestedSchema", {}), data, prefix=f"answer{number}"),
            }
            for number, (key, params) in enumerate(parts)
        ]

    def _ask(
        self, tool: dict[str, Any], given: Any, asked: Mapping[str, Any], questions: list[dict[str, Any]]
    ) -> HttpResponseBase:
        """Show the questions as a client would show them."""
        elicitations = {
            key: item for key, item in asked["inputRequests"].items() if item.get("method") == ClientRequest.ELICITATION
        }
        return self._page(
            tool=tool,
            questions=questions,
            given=json.dumps(given, ensure_ascii=False),
            asked_for=json.dumps(elicitations),
            state=asked.get("requestState", ""),
        )

    @property
    def _url(self) -> str:
        """The URL of the endpoint of the site."""
        site = self.form.cleaned_data["site"]
        path = next((path for path, mounted in ENDPOINTS.by_path().items() if mounted.name == site), "/mcp")
        return resource_url(self.request, path)

    def _curl(self, tool: Mapping[str, Any], given: dict[str, Any]) -> str:
        """Return the call as a curl command."""
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": Revisions.LATEST,
            "Mcp-Method": "tools/call",
            "Mcp-Name": tool["name"],
        }
        for header in ParamHeader.of_schema(tool["inputSchema"]):
            if (value := header.value(given)) is not None:
                headers[header.header] = ParamHeader.encode(_as_text(value))
        params = {"name": tool["name"], "arguments": given, "_meta": client_meta("curl")}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, ensure_ascii=False)
        lines = [f"curl {shlex.quote(self._url)}", '-H "Authorization: Bearer $MCP_TOKEN"']
        lines += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items()]
        return " \\\n  ".join([*lines, f"--data {shlex.quote(body)}"])


def respond(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Answer a request for the page."""
    return TryIt(page, request).respond()


def table_of(structured: Any) -> Table | None:
    """Return structured content as a table, None if there are no rows in it."""
    if not isinstance(structured, Mapping):
        return None
    columns = structured.get("columns")
    rows = structured.get("rows")
    if isinstance(columns, list) and isinstance(rows, list):
        names = [_column_name(column) for column in columns]
        values = []
        for row in rows:
            values.append(row if isinstance(row, list) else [row])
    else:
        lists = (item for item in structured.values() if isinstance(item, list) and item)
        objects = next((item for item in lists if all(isinstance(row, Mapping) for row in item)), None)
        if objects is None:
            return None
        names = list(dict.fromkeys(str(name) for row in objects[:MAX_ROWS] for name in row))
        values = [[row.get(name) for name in names] for row in objects]
    cells = [[cell(value) for value in row[:MAX_COLUMNS]] for row in values[:MAX_ROWS]]
    return Table(names[:MAX_COLUMNS], cells, max(0, len(values) - MAX_ROWS))


def _column_name(column: Any) -> str:
    if isinstance(column, Mapping):
        column = column.get("name", column)
    return str(column)


def cell(value: Any) -> str:
    """Return a JSON value as the text of a cell; a relation is shown by its label."""
    if value is None:
        return ""
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], str) and not isinstance(value[0], list):
        value = value[1]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 1]}…"
