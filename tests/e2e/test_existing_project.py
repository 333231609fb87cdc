"""Who follows the page "Into an existing project" with a project as people have them, and signs in as its users do."""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.documentation import DOCS, ROOT, blocks_of
from tests.e2e.browser import Browser, Form, FormReader
from tests.e2e.forks import run_to_end
from tests.e2e.python_client import Person, call
from tests.e2e.servers import HOST, Server, run
from tests.project.test_tutorial import PROGRAMS, Reader, steps_of

PAGE = DOCS / "existing-project.md"
PROJECT = ROOT / "tests" / "existing_project"
ADA, EVE = "ada@example.com", "eve@example.com"
SITE = "help.example"
# The project as it is before: with people, one of whom has a second factor, and with rows.
USED = f"""
import django; django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from accounts.models import User
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP
from tickets.models import Customer, Ticket
for email in ({ADA!r}, {EVE!r}):
    user = User.objects.create_superuser(email, email)
TOTP.activate(user, "JBSWY3DPEHPK3PXP")
print(RecoveryCodes.activate(user).get_unused_codes()[0])
Ticket.objects.create(customer=Customer.objects.create(name="Bob", email="bob@example.com"), subject="It is broken")
"""


class Owner(Reader):
    """The person whose project it is; the code is one of those that a user has instead of the second factor."""

    code = ""

    def python(self, code: str) -> str:
        done = run_to_end(["-c", code], self.environment, self.path)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    @property
    def running(self) -> Server:
        return Server(f"http://{HOST}:{self.port}", self.path / "db.sqlite3", self.environment)


class Careful(Browser):
    """Is asked for a code by allauth after the password."""

    def __init__(self, username: str, code: str) -> None:
        super().__init__(username)
        self.code, self.codes = code, 0

    def _submit(self, client: httpx2.Client, response: httpx2.Response) -> httpx2.Response:
        for form in FormReader(response.text).forms:
            if "code" in form.names() and "login" not in form.names():
                self.codes += 1
                return self._post(client, response, form, code=self.code)
        return super()._submit(client, response)


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    project = shutil.copytree(PROJECT, tmp_path / "helpdesk")
    person = Owner(project)
    person.environment |= {"DJANGO_SETTINGS_MODULE": "config.settings.dev", "BASE_URL": f"http://{HOST}:{person.port}"}
    person.code = person.python(USED)
    yield person
    person.forget()
    person.stop()


async def test_who_follows_the_page_signs_in_by_the_projects_own_page_and_goes_to_production(
    owner: Owner, postgres_database: str, redis: str
) -> None:
    signed_in, command = False, []
    url = urlsplit(postgres_database)
    owner.environment |= {"DATABASE_NAME": url.path[1:], "DATABASE_HOST": url.hostname or "", "REDIS_URL": redis}
    owner.environment |= {"DATABASE_USER": url.username or "", "DATABASE_PASSWORD": url.password or ""}
    for block in blocks_of(PAGE):
        if block.language == "dockerfile":
            command = json.loads(block.text.removeprefix("CMD "))
        elif block.file:
            owner.write(block)
        else:
            for step in steps_of(block):
                owner.do(step)
        if "mcp_doctor" in block.text:
            await works(owner)
            signed_in = True
    assert signed_in
    owner.stop()
    serves_behind_a_proxy(owner, command)


async def works(owner: Owner) -> None:
    """Both sign in with the official client; one of them changes a row, and Celery tells the customer."""
    person = Person(owner.running, ADA)
    async with person.connect("auto") as client:
        # The page says so: users and what they sign in with are not among the models, and nobody gets rights here.
        models = await call(client, "list_models")
        assert [row[0] for row in models["rows"]] == ["tickets.customer", "tickets.ticket", "admin.logentry"]
        for label, values in (("accounts.user", {"is_superuser": True}), ("account.emailaddress", {"verified": True})):
            refused = await client.call_tool("update_record", {"model": label, "pk": 1, "values": values})
            assert refused.is_error
        page = await call(client, "query_records", model="tickets.ticket", search="broken")
        assert page["returned"] == 1
        await call(client, "update_record", model="tickets.ticket", pk=1, values={"status": "closed"})
    [mail] = (owner.path / "mails").iterdir()
    assert "Subject: It is broken: Closed" in mail.read_text()
    # The first page says which application wants to connect.
    assert "Sign In" in person.browser.pages[1]
    careful = Person(owner.running, EVE)
    careful.browser = browser = Careful(EVE, owner.code)
    async with careful.connect("legacy") as client:
        row = await call(client, "get_record", model="tickets.ticket", pk=1)
        assert "closed" in str(row)
    assert browser.codes == 1


def serves_behind_a_proxy(owner: Owner, command: list[str]) -> None:
    """Start what the container starts, and ask as the proxy does."""
    program, *arguments = [re.sub(r"^8000$", str(owner.port), word.replace("0.0.0.0", HOST)) for word in command]
    log = owner.path / "server.log"
    started = [sys.executable, *PROGRAMS[program], *arguments]
    with run(started, owner.port, {**os.environ, **owner.environment}, log, owner.path) as origin:
        proxied = {"Host": SITE, "X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.7"}
        with httpx2.Client(base_url=origin, headers=proxied) as proxy:
            refused = proxy.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
            assert refused.status_code == 401
            metadata = f"https://{SITE}/.well-known/oauth-protected-resource/mcp"
            assert f'resource_metadata="{metadata}"' in refused.headers["www-authenticate"]
            asked = proxy.get("/oauth/authorized_tokens/")
            assert asked.headers["location"].startswith("/accounts/login/")
            login = proxy.get("/accounts/login/")
            assert login.status_code == 200
            assert login.headers["strict-transport-security"]
            [styles] = re.findall(r'href="(/static/admin/css/base\.[\w.]+css)"', proxy.get("/admin/login/").text)
            assert proxy.get(styles).status_code == 200
            assert isinstance(FormReader(login.text).forms[0], Form)
        plain = httpx2.get(f"{origin}/accounts/login/", headers={"Host": SITE})
        assert plain.headers["location"] == f"https://{SITE}/accounts/login/"
