"""``manage.py mcp_doctor``: check the settings, try the server as a client does, and report what is wrong."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from getpass import getpass
from http.cookies import SimpleCookie
from importlib import import_module
from typing import Any

from django.conf import settings as django_settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.core.management.base import BaseCommand, CommandError, CommandParser
from oauth2_provider.models import get_application_model

from ...checks.oauth import login_admin
from ...conf import settings
from ...console.doctor import CALLBACK, Doctor, StepFailed
from ...console.health_checks_page import of_models, of_parts, of_settings, session_cookies
from ..command_arguments import endpoint_url, find_user


class Command(BaseCommand):
    """Run the doctor by command: check this project, then try each step of a client up to the first failure."""

    help = (
        "Looks at settings, tables, cache and channel layer, acts as a client over HTTP, from discovery to a stream, "
        "and says what is wrong and why."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("url", nargs="?", help="URL of the endpoint (default: the one that urls.py mounts)")
        parser.add_argument("--user", help="go on past the login page, as this user and with the right only to read")
        parser.add_argument(
            "--password",
            action="store_true",
            help="ask for the user's password (or read a line of standard input), and sign in by the login page's form",
        )

    def handle(self, *args: Any, url: str | None, user: str | None, password: bool, **options: Any) -> None:
        person = find_user(user) if user else None
        url = (url or endpoint_url("manage.py mcp_doctor URL")).strip()
        doctor = Doctor(url, add_client=add_client, origins=settings.ALLOWED_ORIGINS)
        if not doctor.url.lower().startswith(("http://", "https://")):
            raise CommandError(f"{doctor.url!r} is not a URL: it must begin with http:// or https://.")
        doctor.shut_out = shut_out(person)
        if password:
            if person is None:
                raise CommandError("Name the user whose password it is: --user.")
            # A terminal does not show what is typed.
            is_asked = sys.stdin.isatty()
            asking = f"Password of {person.get_username()}: "
            doctor.person = person.get_username(), getpass(asking) if is_asked else sys.stdin.readline().rstrip("\n")
        # These checks are about this project, even if the doctor tries another server.
        self.stdout.write("This project\n")
        parts = list(of_parts())
        found = [*parts, *of_settings(deployed=not django_settings.DEBUG)]
        # Without the tables no row can be read.
        if person is not None and all(item.verdict != "error" for item in parts):
            found += of_models(person)
        for item in found:
            self.say(item.verdict, item.title, item.seen if item.verdict == "ok" else f"{item.seen} {item.remedy}")
        wrong = [item.remedy or item.seen for item in found if item.verdict == "error"]
        self.stdout.write(f"\nThe path of a client to {doctor.url}\n")
        with signed_in(None if password else person) as cookies, cleaning(doctor):
            if cookies is not None:
                doctor.sign_in = lambda: cookies
            for title, step in doctor.steps():
                try:
                    self.say("ok", title, step())
                except StepFailed as failed:
                    self.say("error", title, str(failed))
                    raise CommandError(failed.remedy) from None
        if wrong:
            raise CommandError(" ".join(wrong))
        if doctor.client_id and person is None:
            self.stdout.write("\nAll is well so far. --user NAME goes on: consent, token, a call and a stream.")
        else:
            self.stdout.write("\nAll is well.")

    def say(self, verdict: str, title: str, text: str) -> None:
        """Print one line of ``manage.py mcp_doctor``."""
        styles = {"ok": self.style.SUCCESS, "error": self.style.ERROR}
        word = {"ok": "ok", "error": "FAIL"}.get(verdict, "note")
        self.stdout.write(f"  {styles.get(verdict, self.style.WARNING)(word)}{' ' * (6 - len(word))}{title}: {text}")


def add_client() -> str:
    """Add a client for the run of ``mcp_doctor``, as an administrator would, and return its id."""
    model = get_application_model()
    client = model(
        name="mcp_doctor",
        redirect_uris=CALLBACK,
        client_type=model.CLIENT_PUBLIC,
        authorization_grant_type=model.GRANT_AUTHORIZATION_CODE,
    )
    client.save()
    return str(client.client_id)


def shut_out(person: Any) -> str:
    """Return what ``manage.py mcp_doctor`` says if its ``--user`` cannot use the login page, "" if nothing is known."""
    admin_site = login_admin()
    if person is None or admin_site is None or person.is_staff:
        return ""
    return f"it is the login page of the admin, and {person.get_username()} is not staff."


@contextmanager
def signed_in(person: Any) -> Iterator[SimpleCookie | None]:
    """Sign in the ``--user`` of ``mcp_doctor`` until the block ends: yield a browser's cookies, None for nobody."""
    if person is None:
        yield None
        return
    session = import_module(django_settings.SESSION_ENGINE).SessionStore()
    session[SESSION_KEY] = person._meta.pk.value_to_string(person)
    session[BACKEND_SESSION_KEY] = django_settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = person.get_session_auth_hash()
    session.save()
    try:
        yield session_cookies(str(session.session_key))
    finally:
        session.delete()


@contextmanager
def cleaning(doctor: Doctor) -> Iterator[None]:
    """As the command ``mcp_doctor`` ends, delete what it has registered with the server: a client, with its tokens.
    If the doctor tried another server, that server keeps them until it cleans up."""
    try:
        yield
    finally:
        if doctor.client_id:
            get_application_model()._default_manager.filter(client_id=doctor.client_id).delete()
