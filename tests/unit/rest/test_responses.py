"""What ViewSets answer: rows, refusals, answers that are too long, and files."""

import json
from posixpath import basename
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.http import FileResponse, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.test import override_settings
from rest_framework import exceptions, permissions, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.response import Response

from mcp_django import MCPSite, ModelExposure, ToolError
from mcp_django.exceptions import NotFound
from tests.factories import make_superuser, make_user
from tests.fileapp.models import Manual, Page
from tests.restapp import views
from tests.restapp.calls import answering, fresh_site, make_order, mcp, raising
from tests.restapp.models import Order
from tests.tool_calls import call, refusal, request_of, result_of

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.restapp.urls")]
SMALL = {"BASE_URL": "http://testserver", "RESULT_CHARS": 2_000, "MAX_FILE_BYTES": 100}


@pytest.fixture
def ann():
    return make_user("ann", staff=False)


@pytest.mark.parametrize(
    ("data", "structured"),
    [
        ({"a": 1}, {"a": 1}),
        ([1, 2], {"results": [1, 2]}),
        ("text", {"result": "text"}),
        (3, {"result": 3}),
        ({"big": 2**60, "text": "ä"}, {"big": str(2**60), "text": "ä"}),
        # Links of a page are those beside rows alone.
        ({"next": "http://testserver/x"}, {"next": "http://testserver/x"}),
        ({"next": "http://internal/x?page=2", "results": []}, {"results": []}),
        ({"next": None, "previous": 3, "rows": []}, {"previous": 3, "rows": []}),
        ({"next": "monday", "rows": []}, {"next": "monday", "rows": []}),
        ({"links": {"next": "/things/answer/?x", "first": "/", "prev": None}, "rows": []}, {"next": {}, "rows": []}),
        ({"links": {"next": "/things/answer/?x"}}, {"links": {"next": "/things/answer/?x"}}),
    ],
)
def test_data_becomes_an_object(data, structured):
    assert call(*answering(lambda: Response(data), paged=True)) == structured


def test_a_row_may_have_a_field_that_is_named_as_a_link():
    row = {"next": None, "previous": "/things/answer/", "links": {"next": "x"}, "tags": []}
    assert call(*answering(lambda: Response(row))) == row


def test_an_empty_answer_says_what_was_done():
    assert call(*answering(lambda: Response(status=204), "post")) == {"done": True}
    assert call(*answering(lambda: Response(status=204), "post", detail=True), pk=3) == {"done": True, "pk": 3}


def test_links_become_arguments(ann):
    for number in range(5):
        make_order(ann, f"A{number}")
    page = mcp(ann).call("list_orders", page=2, search="A", page_size=2).structured
    assert (page["next"], page["previous"]) == ({"page": 3}, {"page": None})
    assert "http" not in json.dumps(page)


def test_a_text_file_comes_once_and_a_long_one_as_a_link(ann, monkeypatch):
    make_order(ann, "A1")
    result = mcp(ann).call("export_orders")
    assert (result.structured["file"]["name"], result.structured["file"]["text"]) == ("orders.csv", "A1\n")
    assert len(result.content) == 1
    monkeypatch.setattr("mcp_django.emulation.downloads.SHOWN", 2)
    client = mcp(ann)
    result = client.call("export_orders")
    assert result.content[1]["uri"] == result.structured["file"]["uri"]
    assert "A1" not in result.content[0]["text"]
    assert client.request("resources/read", uri=result.content[1]["uri"])["contents"][0]["text"] == "A1\n"


@override_settings(MCP_DJANGO=SMALL)
@pytest.mark.parametrize(
    "make",
    [
        lambda: HttpResponse(b"x" * 101, "application/pdf"),
        lambda: StreamingHttpResponse((b"x" * 60 for _ in range(10**9)), content_type="application/pdf"),
        lambda: StreamingHttpResponse((b"[" for _ in range(10**9)), content_type="application/json"),
    ],
)
def test_a_file_is_bounded(make):
    assert "larger than 100 bytes" in refusal(*answering(make))


def test_a_file_is_closed(tmp_path):
    path = tmp_path / "file.bin"
    path.write_bytes(b"\x00\x01")
    opened = path.open("rb")
    tool, request = answering(lambda: FileResponse(opened, as_attachment=True))
    assert result_of(tool, request).structured["file"]["bytes"] == 2
    assert opened.closed


def test_a_page_is_only_its_text():
    found = call(*answering(lambda: HttpResponse("<form><p>Hello</p></form><script>token</script>")))
    assert "token" not in json.dumps(found)


def test_a_write_that_leads_on_is_done():
    found = call(*answering(lambda: HttpResponseRedirect("http://internal/"), "post"))
    assert found["done"] is True
    assert "internal" not in json.dumps(found)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Response({"a": ["Wrong.", "Bad."], "b": {"c": ["No."]}}, 400), "Refused:\na: Wrong. Bad.\nb.c: No."),
        (lambda: Response({"rows": [{}, {"n": ["No."]}]}, 400), "Refused:\nrows[1].n: No."),
        (lambda: Response({"non_field_errors": ["Both."]}, 400), "Refused:\nBoth."),
        (lambda: Response(["First.", "Second."], 400), "Refused:\nFirst. Second."),
        (raising(exceptions.ParseError()), "Refused:\nMalformed request."),
        (raising(exceptions.PermissionDenied("Not today.")), "Permission denied. Not today."),
        (raising(exceptions.NotAuthenticated()), "Permission denied. Authentication credentials were not provided."),
        (raising(exceptions.NotFound("No such page.")), "No such page."),
        (raising(exceptions.MethodNotAllowed("GET")), 'Refused with HTTP status 405:\nMethod "GET" not allowed.'),
        (raising(exceptions.Throttled(12)), "Too many calls. Wait 12 seconds, then repeat the call."),
        (raising(exceptions.Throttled()), "Too many calls. Wait a while, then repeat the call."),
        (lambda: Response({"trace": "secret"}, 503), "The view failed with HTTP status 503."),
        (lambda: HttpResponse("<h1>secret</h1>", status=400), "Refused:\n"),
        (
            lambda: HttpResponseRedirect("http://internal/"),
            "The view leads to another page, which cannot be followed here.",
        ),
    ],
)
def test_a_refusal_is_told_in_words(make, text):
    assert refusal(*answering(make)) == text


def test_what_is_missing_forbidden_and_filtered_is_one_answer_where_the_url_names_a_row():
    for make in (raising(exceptions.NotFound("Row 3 of Bob")), lambda: Response({"detail": "secret"}, 404)):
        tool, request = answering(make, detail=True)
        with pytest.raises(NotFound):
            tool.call(request, {"pk": 3})


def test_a_refusal_is_bounded():
    lines = {f"field{number}": ["x" * 5_000] for number in range(100)}
    text = refusal(*answering(lambda: Response(lines, 400)))
    assert len(text) < 1_300
    assert text.count("\n") <= 9


def test_problems_are_raised_as_tool_errors():
    tool, request = answering(raising(exceptions.ValidationError({"a": "Wrong."})))
    with pytest.raises(ToolError, match="a: Wrong"):
        tool.call(request, {})


@override_settings(MCP_DJANGO=SMALL)
def test_H83_long_texts_and_then_rows_are_cut_and_it_is_said():
    rows = [{"id": number, "text": "x" * 1_000} for number in range(3)]
    found = call(*answering(lambda: Response({"count": 3, "results": rows})))
    assert list(found)[:2] == ["truncated", "note"]
    assert [len(row["text"]) for row in found["results"]] == [len("x" * 300 + "…(+700 chars)")] * 3
    rows = [{"id": number, "text": "x" * 250} for number in range(50)]
    found = call(*answering(lambda: Response({"count": 50, "results": rows})))
    assert 0 < len(found["results"]) < 50
    assert f"Only the first {len(found['results'])} of 50 rows fit" in found["note"]
    assert len(json.dumps(found)) < 2_100


@override_settings(MCP_DJANGO=SMALL)
def test_what_cannot_be_cut_is_refused_and_a_write_is_not_repeated():
    wide = {f"key{number}": number for number in range(1_000)}
    assert refusal(*answering(lambda: Response(wide))).endswith("ask for less.")
    found = call(*answering(lambda: Response(wide), "post"))
    assert found["done"] is True
    assert "do not call it again" in found["note"]


def test_rows_that_were_saved_and_an_answer_that_is_too_long():
    class Wide(views.OrderViewSet):
        @action(detail=True, methods=["post"])
        def touch(self, request, pk=None):
            Order.objects.filter(pk=pk).update(note="touched")
            return Response({str(number): number for number in range(10_000)})

        touch.mcp_destructive = False

    ann = make_user("ann", staff=False)
    order = make_order(ann, "A1")
    site = fresh_site("orders", Wide)
    assert call(site._tools["touch_orders"], request_of(ann, site), pk=order.pk)["done"] is True
    order.refresh_from_db()
    assert order.note == "touched"


class PageSerializer(serializers.ModelSerializer):
    class Meta:
        model = Page
        fields = ["number", "scan"]


class ManualSerializer(serializers.ModelSerializer):
    pages = PageSerializer(many=True)

    class Meta:
        model = Manual
        fields = ["id", "title", "file", "note", "pages"]


class ManualViewSet(viewsets.ReadOnlyModelViewSet):
    queryset = Manual.objects.order_by("pk")
    serializer_class = ManualSerializer
    permission_classes = [permissions.AllowAny]

    @action(detail=False)
    def made(self, request: Any) -> Response:
        """Serialized by hand, below a name of its own."""
        context = {"request": request}
        return Response({"manuals": [ManualSerializer(row, context=context).data for row in self.queryset.all()]})


class NamedExposure(ModelExposure):
    fields = ["title", "file"]


def manual_site(exposed: bool) -> MCPSite:
    site = fresh_site("manuals", ManualViewSet)
    if exposed:
        site.register(Manual, NamedExposure)
    return site


@pytest.fixture
def manual() -> Manual:
    made = Manual.objects.create(title="a", file=ContentFile(b"x", "a.pdf"), note=ContentFile(b"x", "n.txt"))
    Page.objects.create(manual=made, number=1, scan=ContentFile(b"x", "s.txt"))
    Page.objects.create(manual=made, number=2)
    return made


def shown(site: MCPSite, tool: str, resource: str = "", **arguments: Any) -> dict[str, Any]:
    request = request_of(make_superuser(), site, resource=resource)
    return call(site.get_tool(request, tool), request, **arguments)


@pytest.mark.parametrize("exposed", [True, False])
def test_no_url_of_the_storage_is_shown(manual: Manual, exposed: bool) -> None:
    site = manual_site(exposed)
    [row] = shown(site, "list_manuals")["results"]
    assert row["file"] == (f"django://fileapp/manual/{manual.pk}/file" if exposed else basename(manual.file.name))
    assert row["note"] == basename(manual.note.name)
    assert [page["scan"] for page in row["pages"]] == [basename(manual.pages.get(number=1).scan.name), None]


def test_a_link_of_the_endpoint_leads_to_the_file(manual: Manual, client: Any) -> None:
    row = shown(manual_site(True), "retrieve_manuals", "http://testserver/mcp", pk=manual.pk)
    assert row["file"].startswith("http://testserver/mcp/files/")
    assert "/media/" not in str(row)


def test_what_a_view_serializes_by_hand_has_such_links_too(manual: Manual) -> None:
    rows = shown(manual_site(True), "made_manuals")["manuals"]
    assert rows[0]["file"] == f"django://fileapp/manual/{manual.pk}/file"
