"""A message to users when an application gets access for the first time in their name (``CONNECTED_EMAIL``).

It is plain text, and all that strangers chose in it is on one line and none of it becomes a link in a mail program.
"""

import logging
import re
import threading
from collections.abc import Iterable
from typing import Any, Final

from django.conf import settings as django_settings
from django.core.mail import EmailMessage
from django.db import connections
from django.http import HttpRequest
from django.utils import timezone, translation
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from oauth2_provider.settings import oauth2_settings

from ..conf import settings
from ..context.text import plain
from .frame import url_of
from .resource import origin
from .targets import hosts_of
from .tokenlist import client_name, name_doubts

logger = logging.getLogger("mcp_django")

# Seconds that a sign-in waits for the mail server at most; the message goes on in its thread.
PATIENCE: Final = 5.0
# Without these, mail programs find addresses neither of pages nor of people in a text.
ARMS: Final = re.compile(r"[.:@](?=\S)|/")
DISARMED: Final = {".": "[.]", "@": "[at]", ":": " ", "/": " "}


def tell_user(user: Any, client: Any, scopes: Iterable[str], request: HttpRequest) -> None:
    """Send the user a message that a client got these scopes, and where to remove the access.

    ``request`` is that of the token endpoint, for the address of this site while it is developed. Who has no address
    gets none. What fails is logged: the client has its access.
    """
    try:
        address = str(getattr(user, user.get_email_field_name(), None) or "")
        if not address:
            return
        with translation.override(django_settings.LANGUAGE_CODE):
            remove_url = origin(request) + url_of("authorized-token-list")
            message = EmailMessage(_subject(), _body(user, client, scopes, remove_url), to=[address])
        # The mail server may not answer, and Django waits for it as long as it takes.
        thread = threading.Thread(target=_send, args=[message], name="mcp_django mail", daemon=True)
        thread.start()
        thread.join(PATIENCE)
    except Exception:
        logger.exception("A user could not be told of an application that was connected")


def _send(message: EmailMessage) -> None:
    try:
        message.send()
    except Exception:
        logger.exception("A user could not be told of an application that was connected")
    finally:
        connections.close_all()


def _site() -> str:
    return plain(str(settings.SERVER_TITLE or settings.SERVER_NAME))


def _subject() -> str:
    return _("New application with access to your account: %(site)s") % {"site": _site()}


def _body(user: Any, client: Any, scopes: Iterable[str], remove_url: str) -> str:
    """Return the text; the names of applications are claims, and their hosts are what is known of them."""
    hosts = ", ".join(hosts_of(client)[:3])
    moment = timezone.localtime() if django_settings.USE_TZ else timezone.now()
    described = oauth2_settings.SCOPES
    facts = [
        (_("Account"), _disarmed(plain(user.get_username()))),
        (_("The application calls itself"), _disarmed(client_name(client))),
        (_("Host"), _disarmed(plain(hosts, 255)) or _("none: it runs on a device, and cannot be verified")),
        (_("Time"), f"{date_format(moment, 'DATETIME_FORMAT')} {moment:%Z}".strip()),
        *((_("It can"), _(described.get(scope) or scope)) for scope in scopes),
    ]
    parts = [
        _("An application was given access to your account at %(site)s.") % {"site": _site()},
        "\n".join(f"{label}: {value}" for label, value in facts),
        *(_disarmed(doubt) for doubt in name_doubts(client)),
        _("If that was you, there is nothing to do. If it was not, remove its access and change your password:"),
        remove_url,
    ]
    return "\n\n".join(part for part in parts if part)


def _disarmed(text: str) -> str:
    """Return a text of which a mail program makes no link."""
    return ARMS.sub(lambda found: DISARMED[found[0]], text)
