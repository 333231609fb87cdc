"""Many people who decide the same request at once: one of them does, and the call is made once."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from mcp_django.models import ApprovalRequest, Change
from mcp_django.signals import approval_decided
from tests.approving import PERMISSION, ask
from tests.factories import make_author, make_superuser, make_user
from tests.testapp.models import Author

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]

PAGE = "/admin/mcp_django/callentry/approvals/"
MANY = 20


@pytest.fixture
def approval() -> ApprovalRequest:
    author = make_author()
    return ask(make_superuser(), "delete_record", model="testapp.author", pk=str(author.pk), rows=[author])


@pytest.fixture
def told() -> Iterator[list[int]]:
    found: list[int] = []

    def receive(change: Change, **more: Any) -> None:
        found.append(change.pk)

    approval_decided.connect(receive)
    yield found
    approval_decided.disconnect(receive)


def press_at_once(sent: list[dict[str, Any]]) -> list[int]:
    """Let people, each with a browser, send these forms at the same moment, and return the statuses."""
    browsers = []
    for number in range(len(sent)):
        browser = Client(raise_request_exception=False)
        browser.force_login(make_user(f"decider{number}", PERMISSION, "testapp.view_author"))
        browsers.append(browser)
    ready = threading.Barrier(len(sent))
    statuses = []

    def press(browser: Client, form: dict[str, Any]) -> None:
        try:
            ready.wait()
            statuses.append(browser.post(PAGE, form).status_code)
        finally:
            connection.close()

    threads = [threading.Thread(target=press, args=pair) for pair in zip(browsers, sent, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


@pytest.mark.parametrize("kind", ["yes", "both"])
def test_of_many_clicks_at_once_one_decides(approval: ApprovalRequest, told: list[int], kind: str) -> None:
    yes = {"request": approval.pk, "yes": "1"}
    no = {"request": approval.pk, "no": "1", "word": "No."}
    sent = [yes if kind == "yes" or number % 2 else no for number in range(MANY)]
    statuses = press_at_once(sent)
    # Who comes late is sent back to the page.
    assert set(statuses) == {302}
    row = ApprovalRequest.objects.select_related("change").get()
    state = row.change.state
    assert state in (("done",) if kind == "yes" else ("done", "refused"))
    assert Author.objects.exists() is (state == "refused")
    assert row.word == ("No." if state == "refused" else "")
    assert row.change.by == User.objects.get(pk=row.decider).username
    assert told == [approval.pk]
