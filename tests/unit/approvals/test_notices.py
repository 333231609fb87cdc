"""What people are told of requests for approval, by signals and by mail."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django import VERSION
from django.core import mail
from django.core.mail.backends.base import BaseEmailBackend
from django.db import transaction

from mcp_django.approvals.notices import MAX_MAILS, ApprovalNotices
from mcp_django.approvals.queue import ApprovalQueue
from mcp_django.models import ApprovalRequest, Change
from mcp_django.signals import approval_decided, approval_requested
from tests.approving import PERMISSION, ask
from tests.factories import make_author, make_superuser, make_user

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def approval() -> ApprovalRequest:
    root = make_superuser()
    type(root).objects.update(email="root@shop.example")
    author = make_author("Ursula Secret")
    return ask(root, "delete_record", model="testapp.author", pk=str(author.pk), rows=[author])


def send_by(settings: Any, backend: str) -> None:
    """Let a backend send mails, by the setting that this Django has for it."""
    if VERSION >= (6, 1):
        settings.MAILERS = {"default": {"BACKEND": backend}}
    else:
        settings.EMAIL_BACKEND = backend


@pytest.fixture
def by_mail(settings: Any) -> None:
    send_by(settings, "django.core.mail.backends.locmem.EmailBackend")
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "APPROVAL_MAILS": True}


def decider(name: str = "ann", email: str = "ann@shop.example", **values: Any) -> Any:
    user = make_user(name, PERMISSION)
    user.email = email
    user.save()
    return user


@pytest.fixture
def told() -> Iterator[list[Any]]:
    """What receivers of both signals get, and then fail."""
    found: list[Any] = []

    def receive(signal: Any, sender: Any, change: Any, approval: Any, **more: Any) -> None:
        found.append((signal, sender, change.pk, approval.pk))
        raise ValueError

    for signal in (approval_requested, approval_decided):
        signal.connect(receive)
    yield found
    for signal in (approval_requested, approval_decided):
        signal.disconnect(receive)


def sent() -> list[Any]:
    """The mails that were sent, once the threads that send them have ended."""
    for thread in threading.enumerate():
        if thread.name == "mcp-approval-mail":
            thread.join()
    return mail.outbox


def test_receivers_are_told_after_the_commit_and_hold_up_nothing(approval: ApprovalRequest, told: list[Any]) -> None:
    notices = ApprovalNotices(approval.change, approval)
    with transaction.atomic():
        notices.requested()
        assert told == []
    assert told == [(approval_requested, ApprovalRequest, approval.pk, approval.pk)]
    assert ApprovalQueue(decider()).refuse(approval, "No.")
    assert told[1:] == [(approval_decided, ApprovalRequest, approval.pk, approval.pk)]
    with transaction.atomic():
        notices.requested()
        transaction.set_rollback(True)
    assert len(told) == 2


def test_no_mail_is_sent_unless_the_settings_say_so(approval: ApprovalRequest) -> None:
    decider()
    ApprovalNotices(approval.change, approval).requested()
    assert sent() == []


@pytest.mark.usefixtures("by_mail")
def test_those_who_may_decide_get_a_mail_without_values_of_rows(approval: ApprovalRequest) -> None:
    decider()
    decider("bob", "")
    decider("cyd", "cyd@shop.example")
    make_user("dan")
    ApprovalNotices(approval.change, approval).requested()
    [message] = sent()
    assert (message.to, sorted(message.bcc)) == ([], ["ann@shop.example", "cyd@shop.example"])
    assert message.subject == f"Request {approval.pk} waits for your decision"
    assert "Who asks: root" in message.body
    assert "Tool: delete_record" in message.body
    assert "Rule: Books" in message.body
    assert message.body.endswith(f"http://testserver/admin/mcp_django/callentry/approvals/?request={approval.pk}")
    assert "Secret" not in message.body


@pytest.mark.usefixtures("by_mail")
def test_at_most_so_many_get_one(approval: ApprovalRequest) -> None:
    for number in range(MAX_MAILS + 5):
        decider(f"user{number}", f"user{number}@shop.example")
    ApprovalNotices(approval.change, approval).requested()
    [message] = sent()
    assert len(set(message.bcc)) == MAX_MAILS


@pytest.mark.usefixtures("by_mail")
def test_the_requester_is_told_the_word(approval: ApprovalRequest) -> None:
    assert ApprovalQueue(decider()).refuse(approval, "Ask in spring.\nBcc: x@evil.example")
    [message] = sent()
    assert message.to == ["root@shop.example"]
    assert message.subject == f"Request {approval.pk} is decided"
    assert "The answer was no: Ask in spring. Bcc: x@evil.example" in message.body.replace("�", " ").replace("  ", " ")


@pytest.mark.usefixtures("by_mail")
@pytest.mark.parametrize(
    ("state", "outcome", "words"),
    [
        ("done", "", "it was done"),
        ("failed", "The rows have changed.", "not done: The rows have changed."),
        ("unknown", "", "look at the data"),
    ],
)
def test_the_requester_is_told_how_it_ended(approval: ApprovalRequest, state: str, outcome: str, words: str) -> None:
    approval.change.state = state
    approval.change.outcome = outcome
    ApprovalNotices(approval.change, approval).decided()
    [message] = sent()
    assert words in message.body


@pytest.mark.usefixtures("by_mail")
@pytest.mark.parametrize("owner", ["", "99999", "tests.robot:5"])
def test_nobody_is_told_where_there_is_no_such_user(approval: ApprovalRequest, owner: str) -> None:
    approval.change.user = owner
    ApprovalNotices(approval.change, approval).decided()
    assert sent() == []


@pytest.mark.usefixtures("by_mail")
def test_mails_are_in_the_language_of_the_site(approval: ApprovalRequest, settings: Any) -> None:
    settings.LANGUAGE_CODE = "de"
    decider()
    ApprovalNotices(approval.change, approval).requested()
    [message] = sent()
    assert message.subject == f"Anfrage {approval.pk} wartet auf Ihre Entscheidung"


class DeadBackend(BaseEmailBackend):
    """A mail server that does not answer."""

    def send_messages(self, email_messages: Any) -> int:
        raise ConnectionRefusedError("secret host")


@pytest.mark.usefixtures("by_mail")
def test_mail_that_fails_breaks_nothing(
    approval: ApprovalRequest, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    send_by(settings, f"{__name__}.DeadBackend")
    ann = decider()
    ApprovalNotices(approval.change, approval).requested()
    assert ApprovalQueue(ann).refuse(approval, "No.")
    sent()
    assert Change.objects.get().state == "refused"
    assert "was not sent: ConnectionRefusedError" in caplog.text
    assert "secret host" not in caplog.text


@pytest.mark.usefixtures("by_mail")
def test_mails_that_cannot_be_written_break_nothing(
    approval: ApprovalRequest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mcp_django.approvals.notices._addresses", lambda *arguments: 1 / 0)
    ApprovalNotices(approval.change, approval).requested()
    assert sent() == []
    assert "cannot be written: ZeroDivisionError" in caplog.text
