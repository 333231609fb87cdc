"""Messages to users of whom an application got access: what they say, and what no liar and no mail server can do."""

import logging
import re
import smtplib
import threading
from typing import Any

import django
import pytest
from django.core import mail as django_mail
from django.core.mail.backends.base import BaseEmailBackend
from django.db import connection
from django.test import override_settings
from django.utils import translation
from oauth2_provider.models import Application

from mcp_django.oauth import pages
from tests.oauth_flow import ORIGIN, REDIRECT_URI, Flow, redirected

pytestmark = pytest.mark.django_db
REMOVE = f"{ORIGIN}/oauth/authorized_tokens/"


@pytest.fixture(autouse=True)
def switched_on(settings: Any, mailoutbox: list[Any]) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CONNECTED_EMAIL": True}
    # Django 6.1 wants it said how mail is sent.
    settings.MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}


def connect(commits: Any, *, flow: Flow | None = None, **client: Any) -> list[Any]:
    """Let an application in and return the messages that went out."""
    flow = flow or Flow()
    Application.objects.filter(client_id=flow.client_id).update(**client or {"client_type": "public"})
    with commits(execute=True):
        assert "access_token" in flow.tokens()
    return list(django_mail.outbox)


def urls(text: str) -> list[str]:
    """What a mail program makes links of; the time has dots of its own, in "a.m."."""
    text = re.sub(r"(?m)^Time: .*$", "", text)
    return re.findall(r"(?i)\b(?:[a-z]+:|www\.)\S+|\b[\w-]+(?:\.[\w-]+)+(?:/\S*)?|\S+@\S+", text)


def test_a_new_application_is_told_once_with_what_is_known_of_it(django_capture_on_commit_callbacks: Any) -> None:
    flow = Flow()
    (message,) = connect(django_capture_on_commit_callbacks, flow=flow)
    assert (message.recipients(), message.attachments) == (["ada@example.com"], [])
    assert message.content_subtype == "plain"
    assert message.subject.startswith("New application with access to your account: ")
    for part in ("Account: ada", "calls itself: Robot", "Time: ", "It can: See the data", REMOVE):
        assert part in message.body
    assert "none: it runs on a device" in message.body
    assert urls(message.body) == [REMOVE]
    # No refresh and no second sign-in is new.
    assert connect(django_capture_on_commit_callbacks, flow=flow) == [message]
    assert len(connect(django_capture_on_commit_callbacks, flow=Flow(username="bob"))) == 2


def test_nothing_is_sent_unless_it_is_switched_on(settings: Any, django_capture_on_commit_callbacks: Any) -> None:
    settings.MCP_DJANGO = {key: value for key, value in settings.MCP_DJANGO.items() if key != "CONNECTED_EMAIL"}
    assert connect(django_capture_on_commit_callbacks) == []


def test_a_denial_and_a_failed_exchange_tell_nothing(django_capture_on_commit_callbacks: Any) -> None:
    flow = Flow()
    with django_capture_on_commit_callbacks(execute=True):
        assert redirected(flow.answer(deny=True))["error"] == "access_denied"
        assert flow.exchange(flow.code(), code_verifier="x" * 64).status_code == 400
    assert django_mail.outbox == []


def test_the_host_is_told_as_what_is_known(django_capture_on_commit_callbacks: Any) -> None:
    hosts = f"https://chat.example:8443/cb {REDIRECT_URI}"
    (message,) = connect(django_capture_on_commit_callbacks, redirect_uris=hosts, registration_source="dcr")
    assert "Host: chat[.]example\n" in message.body
    flow = Flow(username="bob")
    described = {"registration_source": "dcr", "redirect_uris": REDIRECT_URI, "name": "Claude"}
    message = connect(django_capture_on_commit_callbacks, flow=flow, **described)[-1]
    assert "Host: none" in message.body


@pytest.mark.parametrize(
    "name",
    [
        "Claude\r\nBcc: everybody@evil.example",
        "Robot\n\nYour account is at risk: https://evil.example/login?x=1",
        "www.evil.example",
        "javascript:alert(1) mailto:a@evil.example tel:+123456",
        '<a href="https://evil.example">Remove access</a>',
        "\u202ehttps://evil.example\u2066//x",
        "Сlaude https://claude.ai.evil.example/" + "x" * 200,
        "%(site)s %s {0} {{ request }}",
    ],
)
def test_no_name_becomes_a_header_a_line_or_a_link(name: str, django_capture_on_commit_callbacks: Any) -> None:
    (message,) = connect(django_capture_on_commit_callbacks, name=name)
    assert message.recipients() == ["ada@example.com"]
    sent = message.message()
    assert {key.lower() for key in sent} == {
        *("content-type", "mime-version", "content-transfer-encoding", "subject", "from", "to", "date", "message-id")
    }
    assert "evil" not in str(sent["Subject"])
    assert urls(message.body) == [REMOVE]
    (line,) = [line for line in message.body.splitlines() if line.startswith("The application calls itself: ")]
    assert len(line) < 400
    assert not {"\u202e", "\u2066", "\r", "\x00"} & set(message.body)
    assert not any(line.lower().startswith(("bcc", "your account is")) for line in message.body.splitlines())


def test_a_name_that_lies_is_marked(django_capture_on_commit_callbacks: Any) -> None:
    uris = f"{REDIRECT_URI} https://evil.example/cb"
    (message,) = connect(django_capture_on_commit_callbacks, name="Clаude", redirect_uris=uris)
    assert "several alphabets" in message.body
    assert "evil[.]example does not belong to the makers of that product." in message.body


def test_a_title_of_several_lines_is_one_line_of_the_subject(
    settings: Any, django_capture_on_commit_callbacks: Any
) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "SERVER_TITLE": "The\nshop"}
    (message,) = connect(django_capture_on_commit_callbacks)
    assert message.subject.endswith(": The\ufffdshop")
    assert message.message()["Subject"]


def test_who_has_no_address_or_no_proper_one_gets_none(
    django_capture_on_commit_callbacks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for number, address in enumerate(("", "ada@shop.example\nBcc: x@evil.example")):
        flow = Flow(username=f"user{number}")
        type(flow.user).objects.filter(pk=flow.user.pk).update(email=address)
        assert connect(django_capture_on_commit_callbacks, flow=flow) == []
    assert [record.levelno for record in caplog.records if record.name == "mcp_django"] == [logging.ERROR]


class Failing(BaseEmailBackend):
    def send_messages(self, messages: Any) -> int:
        raise smtplib.SMTPServerDisconnected("the mail server is away")


class Hanging(BaseEmailBackend):
    answered = threading.Event()

    def send_messages(self, messages: Any) -> int:
        assert Hanging.answered.wait(30)
        return 0


def backend(name: str) -> Any:
    path = f"{__name__}.{name}"
    if django.VERSION >= (6, 1):
        return override_settings(MAILERS={"default": {"BACKEND": path}})
    return override_settings(EMAIL_BACKEND=path)


def test_a_mail_server_that_fails_costs_nothing_but_an_entry_in_the_log(
    django_capture_on_commit_callbacks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with backend("Failing"):
        assert connect(django_capture_on_commit_callbacks) == []
    (record,) = [record for record in caplog.records if record.name == "mcp_django"]
    assert "could not be told" in record.message
    assert "evil" not in record.message


def test_a_mail_server_that_hangs_is_not_waited_for(
    django_capture_on_commit_callbacks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PATIENCE", 0.01)
    Hanging.answered.clear()
    with backend("Hanging"):
        assert connect(django_capture_on_commit_callbacks) == []
        threads = [thread for thread in threading.enumerate() if thread.name == "mcp_django mail"]
        assert len(threads) == 1
        assert threads[0].daemon
        Hanging.answered.set()
        threads[0].join(30)
    assert not threads[0].is_alive()
    assert connection.is_usable()


def test_it_is_in_the_language_of_the_site(settings: Any, django_capture_on_commit_callbacks: Any) -> None:
    with translation.override("ar"):
        (message,) = connect(django_capture_on_commit_callbacks)
    assert message.subject.startswith("New application")
