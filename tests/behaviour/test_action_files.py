"""What an action of the admin hands out holds no column that is hidden from the caller, in whatever format."""

import csv
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin, messages
from django.http import FileResponse, HttpResponse, StreamingHttpResponse
from django.urls import path

from mcp_django import AdminExposure, MCPSite, ModelExposure
from mcp_django.checks.declarations import check_files
from mcp_django.testing import MCPClient
from tests.factories import make_author, make_superuser
from tests.testapp.models import Author

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]
HIDDEN = {"email": "ada@hidden.example", "secret_token": "Tok-4711-aardvark"}
ALL = ("name", "email", "secret_token")
SHOWN = ("name", "born")


def table(rows: Any, names: Any, *, head: bool = True, delimiter: str = ",") -> str:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL if delimiter == ";" else csv.QUOTE_MINIMAL)
    writer.writerows([names] if head else [])
    writer.writerows([[getattr(row, name) for name in names] for row in rows])
    return out.getvalue()


def objects(rows: Any, names: Any) -> str:
    return json.dumps([{name: str(getattr(row, name)) for name in names} for row in rows])


def markup(rows: Any, names: Any) -> str:
    cells = "".join(f"<{name}>{getattr(row, name)}</{name}>" for row in rows for name in names)
    return f"<rows>{cells}</rows>"


def lines(rows: Any, names: Any) -> str:
    return "".join(f"- {name}: {getattr(row, name)}\n" for row in rows for name in names)


def archive(text: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("xl/sharedStrings.xml", f"<sst><si><t>{text}</t></si></sst>")
    return out.getvalue()


def attached(body: Any, kind: str) -> HttpResponse:
    return HttpResponse(body, kind, headers={"Content-Disposition": "attachment; filename=x"})


FORMATS: dict[str, Callable[[Any, Any], Any]] = {
    "csv": lambda rows, names: attached(table(rows, names), "text/csv"),
    "csv without a head": lambda rows, names: attached(table(rows, names, head=False), "text/csv"),
    "quoted": lambda rows, names: attached(table(rows, names, delimiter=";"), "text/csv"),
    "tabs": lambda rows, names: attached(table(rows, names, delimiter="\t"), "text/tab-separated-values"),
    "json": lambda rows, names: attached(objects(rows, names), "application/json"),
    "xml": lambda rows, names: attached(markup(rows, names), "application/xml"),
    "html": lambda rows, names: attached(markup(rows, names), "text/html"),
    "yaml": lambda rows, names: attached(lines(rows, names), "application/yaml"),
    "utf-16": lambda rows, names: attached(table(rows, names).encode("utf-16"), "text/csv"),
    "gzip": lambda rows, names: attached(gzip.compress(table(rows, names).encode()), "application/gzip"),
    "a spreadsheet": lambda rows, names: attached(archive(table(rows, names)), "application/vnd.ms-excel"),
    "streamed": lambda rows, names: StreamingHttpResponse(
        iter(table(rows, names).splitlines(True)), content_type="text/csv"
    ),
    "a file": lambda rows, names: FileResponse(io.BytesIO(table(rows, names).encode()), as_attachment=True),
    "inline": lambda rows, names: HttpResponse(table(rows, names), "text/plain"),
    "bytes": lambda rows, names: attached(table(rows, names), "application/octet-stream"),
}
# Nobody can search these.
OPAQUE: dict[str, Callable[[Any, Any], Any]] = {
    "pdf": lambda rows, names: attached(b"%PDF-1.7 \xff\x00" + table(rows, names)[::-1].encode(), "application/pdf"),
    "an archive in an archive": lambda rows, names: attached(
        archive(archive(table(rows, names)).decode("latin-1")), "application/zip"
    ),
    "a broken archive": lambda rows, names: attached(b"PK\x03\x04" + table(rows, names).encode(), "application/zip"),
    "old excel": lambda rows, names: attached(b"\xd0\xcf\x11\xe0\x00" + table(rows, names).encode(), "application/x"),
}
made = {**FORMATS, **OPAQUE}


class AuthorAdmin(admin.ModelAdmin):
    fields = ["name", "born"]
    actions = ["export", "export_shown", "tell", "give", "page", "named"]

    def export(self, request: Any, queryset: Any) -> Any:
        return self.make(queryset, ALL)

    def export_shown(self, request: Any, queryset: Any) -> Any:
        return self.make(queryset, SHOWN)

    def tell(self, request: Any, queryset: Any) -> None:
        for author in queryset:
            messages.info(request, f"{author.name} has {author.secret_token} and {author.email}")

    def give(self, request: Any, queryset: Any) -> Any:
        return [{"name": author.name, "email": author.email, "of": author.secret_token} for author in queryset]

    def page(self, request: Any, queryset: Any) -> Any:
        return HttpResponse("".join(f"<p>{author.name} {author.secret_token}</p>" for author in queryset))

    def named(self, request: Any, queryset: Any) -> Any:
        return self.make(queryset, ALL)

    named.mcp_file = True
    for function in (export, export_shown, tell, give, page, named):
        function.mcp_destructive = False

    make: Any = staticmethod(FORMATS["csv"])


class Narrowed(AdminExposure):
    fields = ["name", "born"]


class WholeAdmin(AuthorAdmin):
    fields = ["name", "born", "email"]


def site_of(name: str, model_admin: type, exposure: type[ModelExposure] | None = None) -> MCPSite:
    pages = admin.AdminSite(name)
    pages.register(Author, model_admin)
    site = MCPSite(name, admin_site=pages, history=False)
    if exposure is not None:
        site.register(Author, exposure)
    return site


SITES = {
    "by-page": site_of("by page", AuthorAdmin),
    "by-fields": site_of("by fields", WholeAdmin, Narrowed),
}
urlpatterns = [path(name, site.urls) for name, site in SITES.items()]


@pytest.fixture(params=SITES)
def client(request: Any) -> MCPClient:
    return MCPClient(make_superuser(), path=f"/{request.param}")


def run(client: MCPClient, name: str) -> Any:
    pk = make_author("Ada", **HIDDEN).pk
    return client.call("run_action", model="testapp.author", action=name, pks=[pk])


@pytest.mark.parametrize("kind", made)
def test_a_file_with_hidden_columns_is_not_handed_out(client: MCPClient, monkeypatch: Any, kind: str) -> None:
    monkeypatch.setattr(AuthorAdmin, "make", staticmethod(made[kind]))
    done = run(client, "export")
    assert not done.is_error, done.text
    assert "file" not in done.structured
    assert "hidden from you" in done.structured["note"]
    assert not any(value in str(done.content) for value in HIDDEN.values())
    assert [block["type"] for block in done.content] == ["text"]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_of_what_the_caller_sees_is_handed_out(client: MCPClient, monkeypatch: Any, kind: str) -> None:
    monkeypatch.setattr(AuthorAdmin, "make", staticmethod(FORMATS[kind]))
    done = run(client, "export_shown")
    assert not done.is_error, done.text
    assert "note" not in done.structured
    assert done.structured["file"]["bytes"] > 2


@pytest.mark.parametrize("kind", made)
def test_a_file_of_an_action_that_the_project_names_is_handed_out(
    client: MCPClient, monkeypatch: Any, kind: str
) -> None:
    monkeypatch.setattr(AuthorAdmin, "make", staticmethod(made[kind]))
    assert "file" in run(client, "named").structured


@pytest.mark.parametrize("name", ["tell", "give", "page"])
def test_texts_of_an_action_hold_no_secret(client: MCPClient, name: str) -> None:
    done = run(client, name)
    assert not done.is_error, done.text
    assert "Ada" in done.text
    assert not any(value in done.text for value in HIDDEN.values())


def test_a_check_names_actions_that_may_hand_out_hidden_columns(monkeypatch: Any) -> None:
    monkeypatch.setattr("mcp_django.checks.declarations.all_sites", lambda: [SITES["by-page"]])
    (found,) = check_files()
    assert found.id == "mcp_django.I164"
    assert found.msg.endswith("export, export_shown.")
    assert "mcp_file = True" in found.hint
