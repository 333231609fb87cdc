import json

import pytest
from django.http import FileResponse, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.test import override_settings
from rest_framework.response import Response

from tests.factories import make_user
from tests.restapp.calling import answering, make_order, mcp
from tests.writing import call, refusal, result_of

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


# Files


def test_a_text_file_comes_once_and_a_long_one_as_an_embedded_resource(ann):
    make_order(ann, "A1")
    result = mcp(ann).call("export_orders")
    assert (result.structured["file"]["name"], result.structured["file"]["text"]) == ("orders.csv", "A1\n")
    assert len(result.content) == 1
    with override_settings(MCP_DJANGO={"RESULT_CHARS": 2, "BASE_URL": "http://testserver"}):
        result = mcp(ann).call("export_orders")
    assert result.structured["file"]["truncated"] is True
    assert result.content[1]["resource"]["text"] == "A1\n"
    assert result.content[1]["resource"]["uri"] == "attachment:export_orders/orders.csv"


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
