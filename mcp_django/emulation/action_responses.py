"""An action's HTTP response for a caller without a browser: a file, a question, a redirect, a text.

HTML with its tokens, cookies and the addresses of pages are never passed on. A redirect to a row that the caller cannot
see looks like a redirect to any other page.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from email.message import Message
from functools import partial
from itertools import islice
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from asgiref.sync import async_to_sync
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied, ValidationError
from django.forms import BaseForm, Field, FileField, ModelChoiceField
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.urls import Resolver404, get_script_prefix, resolve

from ..conf import settings
from ..context.request import MCPRequest
from ..exceptions import NotFound, ToolError
from ..orm.access import access_of
from ..orm.column_values import pk_text, render
from ..orm.labels import label_of
from ..orm.nearest_names import alternatives
from ..orm.uris import Address
from ..schema.form_schemas import FormField, FormSchema
from .downloads import Download
from .form_filling import field_entries
from .html_forms import Button, Control, HtmlForm, Pair, posted, read_forms
from .page_requests import as_query
from .validation_errors import field_line

logger = logging.getLogger("mcp_django.actions")

LIST: Final = "_changelist"
# Endings of the URL names of the admin's own views, which have tools of their own.
DJANGOS: Final = frozenset({"_add", "_change", "_changelist", "_delete", "_history"})
ELSEWHERE: Final = "The action redirected to another admin page, which was not opened."
TEXT_TYPES: Final = re.compile(r"text/|application/([a-z.-]+\+)?(json|xml|yaml|csv|javascript|x-ndjson)")
UNSAFE_NAME: Final = re.compile(r"[^\w. -]+")
MAX_PAGE_TEXT: Final = 1_000
BUTTON: Final = "_button"
CANCELLING: Final = frozenset({"cancel", "_cancel", "back", "_back", "abort"})
# Maximum characters of the labels of a select.
MAX_LABELS: Final = 1_000
CSRF: Final = "csrfmiddlewaretoken"


# Intermediate pages


class ActionPage:
    """A page as the response of an action, which asks something before the action does anything. ``target`` is the path
    that it posts to, "" for the admin's list, which runs the action again."""

    def __init__(self, html: HtmlForm, form: BaseForm | None = None, title: str = "", target: str = "") -> None:
        self.html = html
        self.form = form
        self.title = title
        self.target = target
        # The fields of the page's Django form and its other visible controls, by name.
        self.fields: Mapping[str, Field] = form.fields if form is not None else {}
        taken = {html_name for name in self.fields for html_name in self._html_names(name)}
        self.controls: Mapping[str, Control] = {
            name: control for name, control in html.controls.items() if name not in taken
        }
        # The buttons that do not cancel, by name, or by name and value if several have the same name.
        going = [button for button in html.buttons if button.name.lower() not in CANCELLING]
        names = [button.name for button in going]
        self.buttons: Mapping[str, Button] = {
            button.name if names.count(button.name) == 1 else f"{button.name}={button.value}": button
            for button in going
        }

    @property
    def message(self) -> str:
        """What the page in an action's response says, without markup and the help texts that are in the schema."""
        help_texts = {" ".join(str(field.help_text).split()) for field in self.fields.values()}
        said = (text for text in self.html.text if text not in help_texts)
        return _shortened([f"{self.title}:" if self.title else "", *said])

    def said_since(self, before: "ActionPage") -> str:
        """Return the text of the page in an action's response that was not on the page before."""
        known = set(before.html.text)
        return _shortened(text for text in self.html.text if text not in known)

    @property
    def selected(self) -> list[str] | None:
        """The primary keys that the page in an action's response posts back, None when the page names none."""
        return [value for name, value in self.html.entries if name == ACTION_CHECKBOX_NAME] or None

    def _html_names(self, name: str) -> set[str]:
        assert self.form is not None
        html_name = self.form.add_prefix(name)
        return {html_name, *(part for part, _ in posted(self.fields[name].widget, html_name, None))}

    def required_names(self) -> list[str]:
        """Return which fields must be filled in on the page in an action's response."""
        names = []
        for name, item in self.fields.items():
            control = self.html.controls.get(self.form.add_prefix(name)) if self.form is not None else None
            shown = not item.widget.is_hidden and not item.disabled
            if shown and (FormField(item).is_required or (control is not None and control.required)):
                names.append(name)
        names += [name for name, control in self.controls.items() if control.required]
        return [*names, BUTTON] if len(self.buttons) > 1 else names

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the page in an action's response: form, other controls, and the button to press."""
        schema: dict[str, Any] = {"type": "object", "properties": {}}
        if self.form is not None:
            hidden = [name for name, item in self.fields.items() if item.widget.is_hidden]
            schema = FormSchema(self.form).for_tool(exclude=hidden)
        properties = dict(schema.get("properties", {}))
        for name, control in self.controls.items():
            properties[name] = control_schema(control)
        if len(self.buttons) > 1:
            labels = "; ".join(f"{key}: {button.label}" for key, button in self.buttons.items())
            about = f"The button to press. {labels}"
            properties[BUTTON] = {"type": "string", "enum": list(self.buttons), "description": about}
        schema = {**schema, "properties": properties, "required": self.required_names()}
        if schema["required"]:
            return schema
        return {name: part for name, part in schema.items() if name != "required"}

    def question(self, request: MCPRequest) -> dict[str, Any] | None:
        """Return the page in an action's response as an elicitation form, None where a field does not fit into one."""
        properties: dict[str, Any] = {}
        required = self.required_names()
        if self.form is not None:
            for name, asked in FormSchema(self.form).plain_fields(partial(visible_options, request)).items():
                if asked is not None:
                    properties[name] = asked
                elif not isinstance(self.fields[name], FileField) or name in required:
                    return None
        for name, control in self.controls.items():
            if control.many and not control.choices:
                return None
            properties[name] = {**control_schema(control), "title": name.replace("_", " ").strip().capitalize()}
        if len(self.buttons) > 1:
            choices = [{"const": key, "title": button.label} for key, button in self.buttons.items()]
            properties[BUTTON] = {"type": "string", "title": "Go on with", "oneOf": choices}
        return {"type": "object", "properties": properties, **({"required": required} if required else {})}

    def entries(self, request: MCPRequest, answer: Mapping[str, Any]) -> tuple[list[Pair], list[str]]:
        """Return the entries that post ``answer`` to the page in an action's response, and the errors."""
        entries = [pair for pair in self.html.entries if pair[0] != CSRF]
        shown = [name for name, item in self.fields.items() if not item.widget.is_hidden]
        known = [*shown, *self.controls, *([BUTTON] if len(self.buttons) > 1 else [])]
        wrong = [f"Unknown field {name[:60]!r}. {alternatives(name, known)}" for name in answer if name not in known]
        # The initial value of a required field does not count as an answer.
        absent = [name for name in self.required_names() if name != BUTTON and answer.get(name) in (None, "", [])]
        wrong += [f"{name}: {(self.fields.get(name) or Field()).error_messages['required']}" for name in absent]
        for name, value in answer.items():
            if name in absent:
                continue
            if name in self.fields and self.form is not None:
                try:
                    given = field_entries(request, self.fields[name], self.form.add_prefix(name), value)
                except ValidationError as error:
                    wrong.append(f"{name}: {' '.join(error.messages)}")
                    continue
                wrong += self._wrong(name, given)
                replaced = self._html_names(name)
                entries = [pair for pair in entries if pair[0] not in replaced] + given
            elif name in self.controls:
                items = value if isinstance(value, list) else [value]
                choices = self.controls[name].choices
                if choices and not all(str(item) in choices for item in items):
                    which = "any" if self.controls[name].many else "one"
                    wrong.append(f"{name}: choose {which} of {', '.join(choices)[:MAX_LABELS]}.")
                entries = [pair for pair in entries if pair[0] != name] + [(name, str(item)) for item in items]
        pressed = answer.get(BUTTON) if len(self.buttons) > 1 else next(iter(self.buttons), None)
        if isinstance(pressed, str) and pressed in self.buttons:
            entries.append((self.buttons[pressed].name, self.buttons[pressed].value))
        elif self.buttons:
            wrong.append(f"{BUTTON}: choose one of {', '.join(self.buttons)}.")
        return entries, wrong

    def _wrong(self, name: str, given: list[Pair]) -> list[str]:
        """Return why the field of the page's form refuses entries: whoever is asked to confirm them cannot mend
        them."""
        assert self.form is not None
        field = self.fields[name]
        if isinstance(field, FileField):
            return []
        try:
            field.clean(field.widget.value_from_datadict(as_query(given), {}, self.form.add_prefix(name)))
        except ValidationError as error:
            return [field_line(name, field, error)]
        return []


def control_schema(control: Control) -> dict[str, Any]:
    """Return the JSON Schema of a control on the page in an action's response."""
    one: dict[str, Any] = {"type": "string"}
    if control.choices:
        one["enum"] = [choice for choice in control.choices if choice]
    if control.labels:
        one["description"] = "; ".join(f"{value}: {label}" for value, label in control.labels.items())[:MAX_LABELS]
    return {"type": "array", "items": one} if control.many else one


def visible_options(request: MCPRequest, field: Any) -> list[tuple[str, str]] | None:
    """Return the choices of a field on the page in an action's response, rows as far as the caller can see them."""
    if not isinstance(field, ModelChoiceField):
        return FormField(field).options()
    exposure = request.mcp.site.exposures.get(FormField(field).model)
    if exposure is None or not (access := access_of(request)[exposure]).may("view"):
        return None
    choices: Any = field.choices
    instances = (getattr(value, "instance", None) for value, _ in choices)
    rows = list(islice((row for row in instances if row is not None), FormField.MAX_CHOICES + 1))
    if len(rows) > FormField.MAX_CHOICES:
        return None
    visible = {
        row.pk
        for row in exposure.get_queryset(request).filter(pk__in=[row.pk for row in rows])
        if access.may_row("view", row)
    }
    return [(str(pk_text(row.pk)), field.label_from_instance(row)) for row in rows if row.pk in visible]


# Reading a response


@dataclass(frozen=True, slots=True)
class ResponseContent:
    """The content of an action's response: at most one of a page, a file, a text and a row."""

    page: ActionPage | None = None
    file: Download | None = None
    text: str = ""
    note: str = ""
    record: Mapping[str, Any] | None = None


def read_response(request: MCPRequest, response: HttpResponseBase) -> ResponseContent:
    """Read the HTTP response of an action for a caller without a browser. ``request`` is the action's."""
    status = response.status_code
    try:
        if 300 <= status < 400:
            return destination(request, response.headers.get("Location", ""))
        if status == 404:
            raise NotFound
        if status in (401, 403):
            raise PermissionDenied
        if status >= 400:
            raise ToolError(f"The action refused with HTTP status {status}. Nothing was changed.")
        if isinstance(response, HttpResponse) and hasattr(response, "render"):
            response.render()
        mime_type = response.headers.get("Content-Type", "application/octet-stream").split(";")[0].strip().lower()
        disposition = response.headers.get("Content-Disposition", "")
        body = _body(response)
        if mime_type in ("text/html", "application/xhtml+xml") and not disposition.startswith("attachment"):
            return _read_page(request, response, body.decode(response.charset, "replace"))
        if not body and not disposition:
            return ResponseContent()
        content: str | bytes = body
        if TEXT_TYPES.match(mime_type):
            with suppress(UnicodeDecodeError, LookupError):
                content = body.decode(response.charset)
        header = Message()
        header["Content-Disposition"] = disposition or "attachment"
        name = (header.get_filename() or "result").replace("\\", "/").rsplit("/", 1)[-1]
        return ResponseContent(
            file=Download(UNSAFE_NAME.sub("_", name)[:100].lstrip(".") or "result", mime_type, content)
        )
    finally:
        # Not response.close(), which would also send the signal request_finished.
        for closer in response._resource_closers:  # type: ignore[attr-defined]
            closer()


def _body(response: HttpResponseBase) -> bytes:
    """Return the whole body of an action's response, or raise ``ToolError`` if the body is too long."""
    body = bytearray()

    def add(part: bytes) -> None:
        body.extend(part)
        if len(body) > settings.MAX_FILE_BYTES:
            raise ToolError(
                f"The result is larger than {settings.MAX_FILE_BYTES} bytes. Nothing was changed. Pick fewer rows."
            )

    async def add_all(streaming: StreamingHttpResponse) -> None:
        async for part in streaming.streaming_content:  # type: ignore[union-attr]
            add(part)

    if isinstance(response, StreamingHttpResponse) and response.is_async:
        async_to_sync(add_all)(response)
    elif isinstance(response, StreamingHttpResponse):
        for part in response.streaming_content:  # type: ignore[union-attr]
            add(part)
    elif isinstance(response, HttpResponse):
        add(response.content)
    return bytes(body)


def _shortened(texts: Iterable[str]) -> str:
    text = " ".join(filter(None, texts))
    if len(text) <= MAX_PAGE_TEXT:
        return text
    return f"{text[:MAX_PAGE_TEXT]}…"


def _read_page(request: MCPRequest, response: HttpResponseBase, html: str) -> ResponseContent:
    context = getattr(response, "context_data", None) or {}
    form = next((value for value in context.values() if isinstance(value, BaseForm)), None)
    title = str(context.get("title") or "")
    every = read_forms(html)
    forms = [
        (urlsplit(urljoin(request.path, found.action)).path, found) for found in every[1:] if found.method == "post"
    ]
    asking = [(path, found) for path, found in forms if _asks(found, form)]
    for path, found in asking:
        if path == request.path:
            return ResponseContent(page=ActionPage(found, form, title))
    for path, found in forms:
        if own_view(request, path) is not None:
            return ResponseContent(page=ActionPage(found, form, title, target=path))
    # A form in the context counts only if the page renders it: the page may say why there is nothing to ask.
    if asking or (form is not None and any(_asks(found, form) for found in every)):
        raise ToolError("This action continues on a page of its own. Nothing was changed. Run it in the admin.")
    text = " ".join(part for found in every for part in found.text)
    return ResponseContent(text=text)


def _asks(html: HtmlForm, form: BaseForm | None) -> bool:
    names = {name for name, _ in html.entries} | html.controls.keys()
    wanted = {"action", ACTION_CHECKBOX_NAME, "post"}
    if form is not None:
        wanted |= {form.add_prefix(name) for name in form.fields}
    return bool(names & wanted)


# Other pages


def own_view(request: MCPRequest, path: str) -> Callable[..., HttpResponseBase] | None:
    """Return the view that takes the page in an action's response, if the ``ModelAdmin`` added the path to its URLs.
    ``request`` is the one that the action got, posted to the admin's list of the model."""
    here = request.resolver_match
    if here is None or not (here.url_name or "").endswith(LIST):
        return None
    try:
        match = resolve("/" + path.removeprefix(get_script_prefix()))
    except Resolver404:
        return None
    model = (here.url_name or "").removesuffix(LIST)
    name = match.url_name or ""
    own = match.namespaces == here.namespaces and name.startswith(f"{model}_")
    if not own or match.args or name.removeprefix(model) in DJANGOS:
        return None
    return partial(match.func, **match.kwargs)


def destination(request: MCPRequest, location: str) -> ResponseContent:
    """Return where the redirect in an action's response leads: a row, another page, or back to the list."""
    elsewhere = ResponseContent(note=ELSEWHERE)
    target = urlsplit(urljoin(request.path, location))
    if target.netloc and target.netloc not in (request.META.get("HTTP_HOST"), urlsplit(settings.BASE_URL or "").netloc):
        return elsewhere
    if target.path == request.path:
        return ResponseContent()
    try:
        match = resolve("/" + target.path.removeprefix(get_script_prefix()))
    except Resolver404:
        return elsewhere
    for model in access_of(request).models if "admin" in match.app_names else ():
        exposure = model.exposure
        page = f"{exposure.opts.app_label}_{exposure.opts.model_name}_"
        if match.url_name == f"{page}changelist":
            return ResponseContent(note=f"The action leads to a list of {exposure.label}.")
        if match.url_name == f"{page}change":
            try:
                row = model.get_row(unquote(match.kwargs["object_id"]))
            except NotFound:
                return elsewhere
            uri = Address(model).row(row.pk)
            label = label_of(exposure, row)
            return ResponseContent(record={"model": exposure.label, "pk": render(row.pk), "label": label, "uri": uri})
    return elsewhere
