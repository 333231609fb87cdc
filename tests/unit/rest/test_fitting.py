import json

import pytest
from django.test import override_settings
from rest_framework.decorators import action
from rest_framework.response import Response

from tests.factories import make_user
from tests.restapp import views
from tests.restapp.calling import answering, fresh_site, make_order
from tests.restapp.models import Order
from tests.writing import call, refusal, request_of

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.restapp.urls")]
SMALL = {"BASE_URL": "http://testserver", "RESULT_CHARS": 2_000, "MAX_FILE_BYTES": 100}


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

    ann = make_user("ann", staff=False)
    order = make_order(ann, "A1")
    site = fresh_site("orders", Wide)
    assert call(site._tools["touch_orders"], request_of(ann, site), pk=order.pk)["done"] is True
    order.refresh_from_db()
    assert order.note == "touched"
