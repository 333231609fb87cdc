"""The script of the moving picture in the README still works: the server answers, and the window is drawn."""

import asyncio
import re
from pathlib import Path

from PIL import Image

from docs.pictures.conversation import hold
from docs.pictures.film import film, moving_picture, take
from tests.e2e.servers import Server


def test_the_first_frame_shows_what_the_server_answered(
    example: Server, node: str, chromium: str, tmp_path: Path
) -> None:
    conversation = asyncio.run(hold(example))
    task = film(example, conversation)
    # The whole film takes half a minute.
    taken = take(example, node, chromium, tmp_path, first=True, **task)
    (text,) = taken["texts"]
    [step] = conversation.reads.steps
    for carrier, _count, average in step.answer["rows"]:
        assert re.search(rf"^{carrier}\s+{average:.1f}$", text, re.IGNORECASE | re.MULTILINE)
    # The model says what the rows mean, in words; what it sent and got is folded.
    assert step.words in text
    assert re.search(r"^Yes\. Post takes [a-z ]+ days on average, the others [a-z ]+\.$", text, re.MULTILINE)
    assert "used aggregate_records on shop.shipment" in text
    assert "{" not in text
    assert "_at" not in text
    refund = conversation.refunds.steps[-1]
    assert refund.asked is not None
    assert "Refund orders" in refund.asked["message"]
    assert refund.answer["messages"] == [{"level": "success", "text": "1 order was refunded."}]
    # What a person agrees to is what is done, and then taken back.
    [cancellation] = conversation.cancels.steps
    assert cancellation.asked is not None
    assert "status “pending” -> “cancelled”" in cancellation.asked["message"]
    [undo] = conversation.undoes.steps
    assert undo.answer["took_back"] == cancellation.answer["change"]
    assert undo.answer["rows"] == cancellation.answer["rows"] > 0
    moving_picture(taken["frames"], tmp_path / "some.webp")
    with Image.open(tmp_path / "some.webp") as picture:
        assert picture.size == (1000, 640)
