"""``manage.py mcp_doctor``: check the settings, try the server as a client does, and report what is wrong."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from getpass import getpass
from importlib import import_module
from typing import Any

from django.conf import settings as django_settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, load_backend
from django.core.management.base import CommandError, CommandParser
from oauth2_provider.models import get_application_model
from oauth2_provider.settings import oauth2_settings

from ...checks.oauth import login_admin
from ...conf import settings
from ...console.check_results import CheckResult
from ...console.doctor import Doctor
from ...console.health_checks_page import ProjectChecks
from ...problems import NOTHING_REGISTERED
from ...routing import mounted_sites
from ..command_arguments import TableCommand, endpoint_url, find_user


class Command(TableCommand):
    """Check this project, then try each step of a client up to the first failure."""

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
        parser.add_argument("--json", action="store_true", dest="as_json", help="print the results as JSON")

    def handle(self, *args: Any, url: str | None, user: str | None, password: bool, **options: Any) -> None:
        self.is_text = not options["as_json"]
        person = find_user(user) if user else None
        url = (url or endpoint_url("manage.py mcp_doctor URL")).strip()
        doctor = Doctor(url, add_client=add_client, origins=settings.ALLOWED_ORIGINS, callback=callback())
        if not doctor.url.lower().startswith(("http://", "https://")):
            raise CommandError(f"{doctor.url!r} is not a URL: it must begin with http:// or https://.")
        doctor.shut_out = shut_out(person)
        if all(site.serves_nothing() for site in mounted_sites()):
            doctor.no_tools = f"For nobody: {NOTHING_REGISTERED.what}. {NOTHING_REGISTERED.remedy}"
        if password:
            if person is None:
                raise CommandError("Name the user whose password it is: --user.")
            # A terminal does not show what is typed.
            is_asked = sys.stdin.isatty()
            asking = f"Password of {person.get_username()}: "
            doctor.person = person.get_username(), getpass(asking) if is_asked else sys.stdin.readline().rstrip("\n")
        results: list[CheckResult] = []
        # These checks are about this project, even if the doctor tries another server.
        self.head("This project")
        project = ProjectChecks(person, deployed=not django_settings.DEBUG)
        for item in project.results():
            results.append(item)
            self.say(item)
        if project.has_tables:
            self.head(f"\nThe path of a client to {doctor.url}")
            with signed_in(None if password else person) as session, cleaning(doctor):
                if session is not None:
                    doctor.use_session(session)
                for item in doctor.results(doctor.steps()):
                    # A client works all the same.
                    if item.verdict == "warning":
                        item = replace(item, verdict="info")
                    results.append(item)
                    self.say(item)
        wrong = [item for item in results if item.verdict == "error"]
        if options["as_json"]:
            checks = list(map(asdict, results))
            self.stdout.write(json.dumps({"url": doctor.url, "ok": not wrong, "checks": checks}, indent=1))
        if wrong:
            raise CommandError(" ".join(dict.fromkeys(item.remedy or item.seen for item in wrong)))
        if doctor.client_id and person is None:
            self.head("\nAll is well so far. --user NAME goes on: consent, token, a call and a stream.")
        elif any(item.remedy == doctor.no_tools for item in results):
            self.head("\nAll is well, but clients find no tools yet: see the note on Call.")
        else:
            self.head("\nAll is well.")

    def head(self, text: str) -> None:
        """Print a line that is no result; nothing if the output is JSON."""
        if self.is_text:
            self.stdout.write(text)

    def say(self, item: CheckResult) -> None:
        """Print one result; nothing if the output is JSON."""
        if not self.is_text:
            return
        styles = {"ok": self.style.SUCCESS, "error": self.style.ERROR}
        word = {"ok": "ok", "error": "FAIL"}.get(item.verdict, "note")
        mark = styles.get(item.verdict, self.style.WARNING)(word)
        text = f"{item.seen} {item.remedy}".rstrip() if item.verdict != "ok" else item.seen
        self.stdout.write(f"  {mark}{' ' * (6 - len(word))}{item.title}: {text}")


def callback() -> str:
    """Return the redirect URI of the doctor's client: with https if the project accepts no others."""
    if "http" in oauth2_settings.ALLOWED_REDIRECT_URI_SCHEMES:
        return Doctor.callback
    return Doctor.callback.replace("http:", "https:")


def add_client() -> str:
    """Add a client for this run, as an administrator would, and return its id."""
    model = get_application_model()
    client = model(
        name="mcp_doctor",
        redirect_uris=callback(),
        client_type=model.CLIENT_PUBLIC,
        authorization_grant_type=model.GRANT_AUTHORIZATION_CODE,
    )
    client.save()
    return str(client.client_id)


def shut_out(person: Any) -> str:
    """Return why the user cannot use the login page, "" if no reason is known."""
    admin_site = login_admin()
    if person is None or admin_site is None or person.is_staff:
        return ""
    return f"it is the login page of the admin, and {person.get_username()} is not staff."


def backend_of(person: Any) -> str:
    """Return the dotted name of the authentication backend that finds the user of a session.

    Others, such as one that only locks out who guesses passwords, find nobody.
    """
    for name in django_settings.AUTHENTICATION_BACKENDS:
        if load_backend(name).get_user(person.pk) is not None:
            return str(name)
    raise CommandError(f"None of AUTHENTICATION_BACKENDS finds {person.get_username()} by key, so they cannot sign in.")


@contextmanager
def signed_in(person: Any) -> Iterator[str | None]:
    """Sign in a user until the block ends: yield the key of the session, None for nobody."""
    if person is None:
        yield None
        return
    session = import_module(django_settings.SESSION_ENGINE).SessionStore()
    session[SESSION_KEY] = person._meta.pk.value_to_string(person)
    session[BACKEND_SESSION_KEY] = backend_of(person)
    session[HASH_SESSION_KEY] = person.get_session_auth_hash()
    session.save()
    try:
        yield str(session.session_key)
    finally:
        session.delete()


@contextmanager
def cleaning(doctor: Doctor) -> Iterator[None]:
    """When the block ends, delete what the doctor has registered with the server: a client, with its tokens.

    If the doctor tried another server, that server keeps them until it cleans up.
    """
    try:
        yield
    finally:
        if doctor.client_id:
            get_application_model()._default_manager.filter(client_id=doctor.client_id).delete()
