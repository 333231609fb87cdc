"""`mcp_doctor` goes the way of a client to real servers, well and badly set up."""

import json
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cases import whole
from tests.e2e.commands import run_command
from tests.e2e.proxy import run_proxy
from tests.e2e.servers import manage, run_example

# The channel layer is a note: one process needs none that is shared.
PROJECT = ["Tables of mcp_django", "Tables of oauth2_provider", "Cache", "Tasks", "Exports", "System checks"]
MEMBERS = [
    *PROJECT,
    "Endpoint",
    "Clock",
    "Metadata of the endpoint",
    "Metadata of the authorization server",
    "Registration",
    "Login page",
]
SIGNED_IN = ["Consent page", "Token", "Call", "Stream"]


def members(server):
    """The steps to the login page: clocks are compared where the server tells its time, which daphne does not."""
    with urllib.request.urlopen(f"{server.origin}/.well-known/oauth-authorization-server") as answer:
        return [title for title in MEMBERS if title != "Clock" or "Date" in answer.headers]


def whole_way(server):
    """All steps of a run with a user, who then also reads a row of each model."""
    before = members(server)
    return [*before[: len(PROJECT)], "Rows", *before[len(PROJECT) :], *SIGNED_IN]


def doctor(server, *arguments, typed=""):
    return run_command(server.environment, "mcp_doctor", *arguments, typed=typed)


def seen(done, mark="ok"):
    lines = (line.strip() for line in done.stdout.splitlines())
    titles = [line.removeprefix(mark).strip().partition(":")[0] for line in lines if line.startswith(f"{mark} ")]
    # Whether they can be fetched depends on the network of this machine.
    return [title for title in titles if title != "Documents of clients"]


@pytest.fixture(scope="module", params=["uvicorn", *whole(["daphne"])])
def server(request, prepared: Path, tmp_path_factory: pytest.TempPathFactory):
    application = "example_project.asgi:application"
    with run_example(prepared, tmp_path_factory.mktemp("doctor"), request.param, application) as found:
        yield found


def test_the_whole_way_is_gone_and_nothing_is_left_behind(server) -> None:
    done = doctor(server, "--user", "auditor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert seen(done) == whole_way(server)
    assert "All is well." in done.stdout
    code = (
        "from oauth2_provider.models import AccessToken, Application\n"
        "from django.contrib.sessions.models import Session\n"
        "made = Application.objects.filter(name='mcp_doctor')\n"
        "print(made.count(), AccessToken.objects.count(), Session.objects.count())"
    )
    assert manage(server, "shell", "-v", "0", "-c", code).split() == ["0", "0", "0"]


def test_with_a_password_it_signs_in_by_the_form_of_the_login_page(server) -> None:
    done = doctor(server, "--user", "auditor", "--password", typed="auditor\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Sign-in: by its form, which leads back" in done.stdout
    done = doctor(server, "--user", "auditor", "--password", typed="wrong\n")
    assert seen(done, "FAIL") == ["Sign-in"]
    assert "does not accept this password of auditor" in done.stdout


def test_without_a_user_it_ends_at_the_login_page(server) -> None:
    done = doctor(server)
    assert done.returncode == 0, done.stderr
    assert seen(done) == members(server)
    assert "--user NAME goes on" in done.stdout


@pytest.mark.parametrize(
    ("path", "step", "remedy"),
    [
        ("/mpc", "Endpoint", "Mount it in urls.py"),
        ("/admin/", "Endpoint", "refuses the request"),
        ("/mcp?x=1", "Metadata of the endpoint", "BASE_URL"),
    ],
)
def test_a_wrong_url_is_said_with_its_remedy(server, path: str, step: str, remedy: str) -> None:
    done = doctor(server, server.origin + path)
    assert done.returncode == 1
    assert seen(done, "FAIL") == [step]
    assert remedy in done.stderr


def test_another_name_of_this_machine_is_no_other_host_while_developing(server) -> None:
    done = doctor(server, server.url.replace("127.0.0.1", "localhost"), "--user", "auditor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert seen(done) == whole_way(server)


def test_another_port_is_said(server) -> None:
    with run_proxy(urlsplit(server.origin).port, "", strips=False, well_known=False) as (origin, _):
        done = doctor(server, f"{origin}/mcp")
    assert seen(done, "FAIL") == ["Metadata of the endpoint"]
    assert f"clients reach {origin}/mcp" in done.stdout
    assert f'Set MCP_DJANGO["BASE_URL"] to {origin}' in done.stderr


def test_a_server_that_cannot_stream_is_a_note_and_no_failure(prepared: Path, tmp_path: Path) -> None:
    with run_example(prepared, tmp_path, "gunicorn", "example_project.wsgi:application") as wsgi:
        done = doctor(wsgi, "--user", "auditor")
        printed = json.loads(doctor(wsgi, "--user", "auditor", "--json").stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert seen(done, "note")[-1] == "Stream"
    assert printed["ok"]
    assert printed["checks"][-1]["remedy"].startswith("WSGI servers")
