import io
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.core.signals import request_finished
from django.forms import CharField, DecimalField, Form
from django.http import (
    FileResponse,
    HttpResponse,
    HttpResponseBase,
    HttpResponseForbidden,
    HttpResponseNotFound,
    HttpResponseRedirect,
    JsonResponse,
    StreamingHttpResponse,
)
from django.template import engines
from django.template.response import TemplateResponse

from mcp_django import ToolError
from mcp_django.emulation.action_responses import ResponseContent
from mcp_django.emulation.action_responses import read_response as read
from mcp_django.emulation.downloads import SHOWN
from mcp_django.exceptions import NotFound
from mcp_django.runtime.cache_and_rate_limits import cache
from tests.tool_calls import request_of


def read_response(request: Any, response: HttpResponseBase) -> Any:
    return read(request, response)


MARK = '<input type="hidden" name="action" value="x">'


@pytest.fixture
def request_():
    request = request_of(AnonymousUser())
    request.path = "/admin/shop/order/"
    return request


def attachment(name):
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def test_an_empty_response_or_a_way_back_is_nothing(request_):
    for kind in ("text/html", "application/json", "application/octet-stream"):
        assert read_response(request_, HttpResponse(b"", content_type=kind)) == ResponseContent()
    for url in ("", ".", "/admin/shop/order/", "/admin/shop/order/?q=1"):
        assert read_response(request_, HttpResponseRedirect(url)) == ResponseContent()


@pytest.mark.parametrize("url", ["/admin/shop/order/5/", "https://elsewhere.example/?token=1", "../refund/"])
def test_H144_the_way_to_another_page_is_not_shown(request_, url):
    answer = read_response(request_, HttpResponseRedirect(url))
    assert answer.note == "The action redirected to another admin page, which was not opened."


@pytest.mark.parametrize(
    ("response", "mime_type", "body"),
    [
        (HttpResponse("ü,1\n", content_type="text/csv; charset=utf-8"), "text/csv", "ü,1\n"),
        (HttpResponse("ü".encode("latin-1"), content_type="text/plain; charset=latin-1"), "text/plain", "ü"),
        (HttpResponse(b"\xff", content_type="text/plain"), "text/plain", b"\xff"),
        (HttpResponse(b"x", content_type="text/plain; charset=nonsense"), "text/plain", b"x"),
        (JsonResponse({"a": 1}), "application/json", '{"a": 1}'),
        (HttpResponse("<a/>", content_type="image/svg+xml"), "image/svg+xml", b"<a/>"),
        (HttpResponse(b"%PDF", content_type="application/pdf"), "application/pdf", b"%PDF"),
        (HttpResponse("<p>x</p>", headers=attachment("x.html")), "text/html", "<p>x</p>"),
        (StreamingHttpResponse(iter(["a", b"b"]), content_type="text/plain"), "text/plain", "ab"),
    ],
)
def test_a_download_is_text_or_bytes(request_, response, mime_type, body):
    file = read_response(request_, response).file
    assert (file.mime_type, file.body) == (mime_type, body)


def test_a_stream_of_an_async_generator_is_read(request_):
    async def parts():
        yield b"a"
        yield b"b"

    assert read_response(request_, StreamingHttpResponse(parts(), content_type="text/plain")).file.body == "ab"


def test_a_file_is_read_and_closed_without_ending_the_request(request_):
    ended: list[Any] = []
    request_finished.connect(ended.append)
    source = io.BytesIO(b"a,b")
    try:
        file = read_response(request_, FileResponse(source, as_attachment=True, filename="all.csv")).file
    finally:
        request_finished.disconnect(ended.append)
    assert (file.name, file.body, file.mime_type) == ("all.csv", "a,b", "text/csv")
    assert source.closed
    assert ended == []


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ("", "result"),
        ("attachment", "result"),
        ('attachment; filename="a.csv"', "a.csv"),
        ("attachment; filename*=utf-8''b%C3%BCcher.csv", "bücher.csv"),
        ('attachment; filename="../../etc/passwd"', "passwd"),
        ('attachment; filename="C:\\\\x\\\\a b.csv"', "a b.csv"),
        ('attachment; filename=".htaccess"', "htaccess"),
        ('attachment; filename="a<script>?.csv"', "a_script_.csv"),
        (f'attachment; filename="{"x" * 300}"', "x" * 100),
    ],
)
def test_names_of_files_are_made_harmless(request_, disposition, name):
    headers = {"Content-Disposition": disposition} if disposition else {}
    assert read_response(request_, HttpResponse(b"x", content_type="text/plain", headers=headers)).file.name == name


def test_H144_a_result_that_is_too_large_is_refused_as_soon_as_that_is_known(request_, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "MAX_FILE_BYTES": 10}
    made = []

    def endless():
        while True:
            made.append(1)
            yield b"1234"

    for response in (HttpResponse(b"x" * 11, content_type="text/plain"), StreamingHttpResponse(endless())):
        with pytest.raises(ToolError, match=r"larger than 10 bytes\. Nothing was changed\. Pick fewer rows\."):
            read_response(request_, response)
    assert len(made) == 3


@pytest.mark.parametrize("body", ["é" * SHOWN, "é" * (SHOWN + 1), b"\xff" * SHOWN, b"\xff" * (SHOWN + 1)])
def test_what_a_file_holds_is_in_the_result_once(request_, body, monkeypatch):
    kind = "text/plain" if isinstance(body, str) else "image/png"
    file = read_response(request_, HttpResponse(body, content_type=kind)).file
    said, blocks = file.result(request_, "testapp.book/export")
    raw = body.encode() if isinstance(body, str) else body
    assert said["bytes"] == len(raw)
    if len(body) > SHOWN:
        [link] = blocks
        assert (link.uri, link.name) == (said["uri"], "result")
        assert "text" not in said
        # Where nothing keeps it, it goes with its result.
        monkeypatch.setattr(cache, "has_key", lambda key: False, raising=False)
        said, [embedded] = file.result(request_, "testapp.book/export")
        assert (embedded.body, said.keys()) == (body, {"name", "mime_type", "bytes"})
    elif isinstance(body, str):
        assert (said["text"], blocks) == (body, [])
    else:
        assert [block.body for block in blocks] == [body]


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (HttpResponseNotFound("secret"), NotFound),
        (HttpResponseForbidden("secret"), PermissionDenied),
        (HttpResponse("secret", status=409), ToolError),
        (HttpResponse("secret", status=500), ToolError),
    ],
)
def test_an_error_page_is_an_error_and_not_shown(request_, response, error):
    with pytest.raises(error) as raised:
        read_response(request_, response)
    assert "secret" not in str(raised.value)


def test_a_page_that_posts_back_is_a_question(request_):
    page = read_response(request_, HttpResponse(f"<form method=post action='.'><p>Sure?</p>{MARK}</form>")).page
    assert (page.message, page.form, page.selected) == ("Sure?", None, None)


def test_the_form_of_the_page_is_told_from_those_around_it(request_):
    frame = (
        "<form method=post action='/admin/logout/'><input name=csrfmiddlewaretoken></form><form><input name=q></form>"
    )
    html = f"{frame}<form method=post><p>Sure?</p>{MARK}<input type=hidden name=_selected_action value=7></form>{frame}"
    page = read_response(request_, HttpResponse(html)).page
    assert (page.message, page.selected) == ("Sure?", ["7"])
    assert read_response(request_, HttpResponse(f"{frame}<p>Done</p>")) == ResponseContent(text="Done")


def test_the_form_and_the_title_come_from_the_context(request_):
    class Ask(Form):
        why = CharField()

    template = engines["django"].from_string("<form method=post>{{ form }}</form>")
    asked = Ask(prefix="p")
    page = read_response(
        request_, TemplateResponse(request_, template, {"x": 1, "form": asked, "title": "Refund"})
    ).page
    assert (page.form, page.title) == (asked, "Refund")
    assert page.html.entries == [("p-why", "")]
    # A page whose form is not where it should be cannot be answered.
    template = engines["django"].from_string("<form method=post action='/other/'>{{ form }}</form>")
    with pytest.raises(ToolError, match="page of its own"):
        read_response(request_, TemplateResponse(request_, template, {"form": asked}))


def test_the_help_texts_of_the_form_are_in_its_schema_and_not_in_the_message(request_):
    class Ask(Form):
        amount = DecimalField(required=False, help_text="Empty:  the total.")

    template = engines["django"].from_string("<form method=post><p>Money goes back.</p>{{ form }}<p>Go on?</p></form>")
    page = read_response(request_, TemplateResponse(request_, template, {"form": Ask()})).page
    assert page.message == "Money goes back. Go on?"
    assert page.question(request_)["properties"]["amount"]["description"] == "Empty:  the total."


def test_a_long_page_is_cut(request_):
    html = f"<form method=post>{MARK}<p>{'word ' * 1000}</p></form>"
    assert len(read_response(request_, HttpResponse(html)).page.message) == 1001
    assert len(read_response(request_, HttpResponse("word " * 100_000)).text) == 499_999


def test_a_page_that_says_why_there_is_nothing_to_ask_is_its_text(request_):
    source = "<h1>Closed orders</h1><p>They cannot be refunded.</p>{% if open %}{{ form }}{% endif %}"
    page = engines["django"].from_string(source)
    response = TemplateResponse(request_, page, {"form": type("Ask", (Form,), {"reason": CharField()})(), "open": []})
    assert read_response(request_, response) == ResponseContent(text="Closed orders They cannot be refunded.")
    asking = TemplateResponse(request_, page, {**response.context_data, "open": [1]})
    with pytest.raises(ToolError, match="Run it in the admin"):
        read_response(request_, asking)
