"""What people are told of requests for approval: signals, and mails if the settings say so."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.core.mail import EmailMessage
from django.db import router, transaction
from django.urls import NoReverseMatch, reverse
from django.utils import timezone, translation
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from ..conf import settings
from ..context.untrusted_text import plain
from ..models import ApprovalRequest, Change
from ..signals import approval_decided, approval_requested
from .deciders import Deciders

logger = logging.getLogger("mcp_django")

State = Change.State
# The URL name of the page of the admin with the queue, and with one request of it.
PAGE: Final = "admin:mcp_django_console_approvals"
# Maximum number of those who may decide to whom the mail is sent.
MAX_MAILS: Final = 50


def page_url(resource: str, number: int) -> str:
    """Return the URL of the page of a request for approval, "" where the admin is not mounted.

    ``resource`` is the URL of the endpoint to which the call came; it, or else ``BASE_URL``, gives the origin.
    """
    try:
        path = f"{reverse(PAGE)}?request={number}"
    except NoReverseMatch:
        return ""
    known = resource if "://" in resource else str(settings.BASE_URL or "")
    parts = urlsplit(known)
    return f"{parts.scheme}://{parts.netloc}{path}" if parts.netloc else path


class ApprovalNotices:
    """Tells those concerned of one request, once what is told is committed. Whatever fails there, the call goes on."""

    def __init__(self, change: Change, approval: ApprovalRequest) -> None:
        self.change = change
        self.approval = approval

    def requested(self) -> None:
        """Tell those who may decide that somebody has asked."""
        self._on_commit(approval_requested, self._mail_to_deciders)

    def decided(self) -> None:
        """Tell the requester what was decided, and how the call ended."""
        self._on_commit(approval_decided, self._mail_to_requester)

    def _on_commit(self, signal: Any, write: Callable[[], EmailMessage]) -> None:
        tell = partial(self._tell, signal, write)
        transaction.on_commit(tell, using=router.db_for_write(Change), robust=True)

    def _tell(self, signal: Any, write: Callable[[], EmailMessage]) -> None:
        signal.send_robust(sender=ApprovalRequest, change=self.change, approval=self.approval)
        if not settings.APPROVAL_MAILS:
            return
        try:
            # People have no language of their own in Django.
            with translation.override(django_settings.LANGUAGE_CODE):
                message = write()
        except Exception as error:
            logger.warning("The mail about request %s cannot be written: %s", self.change.pk, type(error).__name__)
            return
        if message.recipients():
            # A mail server that does not answer must not hold up the call.
            with suppress(RuntimeError):
                threading.Thread(target=_send, args=(message,), name="mcp-approval-mail").start()

    def _mail_to_deciders(self) -> EmailMessage:
        change = self.change
        # No values of rows: not everybody who may decide may see them.
        facts = {
            _("Who asks"): plain(change.username),
            _("Application"): plain(change.client_name or change.client_id),
            _("Tool"): change.tool,
            _("Rule"): plain(self.approval.rule_name),
            _("Open until"): _moment(change.expires),
        }
        lines = [f"{name}: {value}" for name, value in facts.items() if value]
        subject = _("Request %(number)s waits for your decision") % {"number": change.pk}
        body = "\n".join([*lines, "", page_url(change.resource, change.pk)])
        # None of them learns the addresses of the others.
        return EmailMessage(subject, body, bcc=list(islice(_addresses(self.approval, change), MAX_MAILS)))

    def _mail_to_requester(self) -> EmailMessage:
        change = self.change
        model: Any = get_user_model()
        user = None
        with suppress(ValueError):
            user = model._default_manager.filter(pk=change.user).first()
        address = getattr(user, model.get_email_field_name(), "")
        body = "\n".join([_outcome(change, self.approval), "", page_url(change.resource, change.pk)])
        subject = _("Request %(number)s is decided") % {"number": change.pk}
        return EmailMessage(subject, body, to=[address] if address else [])


def _addresses(approval: ApprovalRequest, change: Change) -> Iterator[str]:
    """Yield the addresses of those who may decide, each once."""
    column = get_user_model().get_email_field_name()
    told = set()
    for users in Deciders.of(approval).candidates():
        if users is None:
            continue
        for pk, address in users.exclude(**{column: ""}).values_list("pk", column)[: MAX_MAILS * 2]:
            if address and address not in told and str(pk) != change.user:
                told.add(address)
                yield address


def _outcome(change: Change, approval: ApprovalRequest) -> str:
    if change.state == State.REFUSED:
        return _("The answer was no: %(word)s") % {"word": plain(approval.word, 500)}
    if change.state == State.DONE:
        return _("The answer was yes, and it was done.")
    if change.state == State.UNKNOWN:
        return _("The answer was yes. It stopped half-way: look at the data.")
    return _("The answer was yes, but it was not done: %(reason)s") % {"reason": plain(change.outcome, 200)}


def _moment(time: Any) -> str:
    return date_format(timezone.localtime(time), "DATETIME_FORMAT") if time is not None else ""


def _send(message: EmailMessage) -> None:
    try:
        message.send()
    except Exception as error:
        logger.warning("A mail about a request for approval was not sent: %s", type(error).__name__)
