"""The official Python client, whose id is the URL of its metadata document, against the example project."""

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from mcp.client.auth import OAuthClientProvider, OAuthRegistrationError
from mcp.shared.auth import OAuthClientMetadata
from pydantic import AnyUrl

from tests.e2e.browser import CALLBACK, Browser
from tests.e2e.database import Database
from tests.e2e.python_client import Person, expire
from tests.e2e.servers import Server, run_example
from tests.e2e.test_conformance import SUITE, TIMEOUT
from tests.tls_server import Authority, TLSServer, answer, serving

MODES = {"auto": "2026-07-28", "legacy": "2025-11-25"}


@dataclass(frozen=True)
class Place:
    """Where documents are, and the server that fetches them."""

    documents: TLSServer
    server: Server

    def publish(self, name: str, **changes: Any) -> str:
        """Publish a document and return its URL."""
        host = f"localhost:{self.documents.port}"
        url = f"https://{host}/{name}.json"
        document = {
            "client_id": url,
            "client_name": f"Robot {name}",
            "redirect_uris": ["http://127.0.0.1/callback"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
        self.documents.answers[f"{host}/{name}.json"] = answer(document | changes)
        return url


@pytest.fixture(scope="module")
def place(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("documents")
    authority = Authority(directory)
    application, settings = "example_project.asgi:application", "tests.e2e.settings_documents"
    with serving(authority.context("localhost")) as documents, pytest.MonkeyPatch.context() as environment:
        environment.setenv("DOCUMENTS_HOST", f"localhost:{documents.port}")
        environment.setenv("DOCUMENTS_CA", str(authority.path))
        # No request for a document goes there.
        environment.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
        with run_example(prepared, directory / "served", "uvicorn", application, settings) as server:
            yield Place(documents, server)


class Described(Person):
    """A person whose client has a document."""

    def __init__(self, place: Place, url: str) -> None:
        super().__init__(place.server, "admin")
        self.document = url

    def provider(self) -> OAuthClientProvider:
        metadata = OAuthClientMetadata(redirect_uris=[AnyUrl(CALLBACK)], token_endpoint_auth_method="none")
        return OAuthClientProvider(
            self.server.url, metadata, self.wallet, self._redirect, self._returned, client_metadata_url=self.document
        )


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_goes_from_nothing_to_a_call_without_registration(place: Place, mode: str) -> None:
    url = place.publish(mode)
    person = Described(place, url)
    provider = person.provider()
    async with person.connect(mode, provider) as client:
        assert client.protocol_version == MODES[mode]
        assert (await client.list_tools()).tools
        expire(provider)
        assert (await client.list_resources()).resources
    assert person.sign_ins == 1
    assert person.wallet.client is not None
    assert person.wallet.client.client_id == url
    stored = "SELECT name FROM oauth2_provider_application WHERE client_id = ?"
    assert Database(place.server.database).value(stored, url) == f"Robot {mode}"
    page = person.browser.pages[-1]
    assert f"Robot {mode}" in page
    assert "localhost" in page
    assert place.documents.urls.count(url.removeprefix("https://")) == 1


async def test_a_document_that_is_wrong_is_a_page_and_no_token(place: Place) -> None:
    url = place.publish("wrong", client_id="https://client.example/other")
    person = Described(place, url)
    with pytest.RaisesGroup(AssertionError, flatten_subgroups=True):
        async with person.connect("auto") as client:
            await client.list_tools()
    assert person.wallet.tokens is None
    page = person.browser.pages[-1]
    assert "not its own URL" in page
    assert "Nothing was shared." in page


async def test_a_client_without_a_document_is_not_let_in(place: Place) -> None:
    person = Person(place.server, "admin")
    with pytest.RaisesGroup(OAuthRegistrationError, flatten_subgroups=True):
        async with person.connect("auto") as client:
            await client.list_tools()
    assert person.wallet.tokens is None
    assert person.sign_ins == 0


async def test_another_host_is_told_that_it_is_not_let_in(place: Place) -> None:
    person = Described(place, "https://client.example/client.json")
    with pytest.RaisesGroup(AssertionError, flatten_subgroups=True):
        async with person.connect("auto") as client:
            await client.list_tools()
    assert "do not allow applications of this host" in person.browser.pages[-1]


def test_the_metadata_says_so(place: Place) -> None:
    document = httpx2.get(f"{place.server.origin}/.well-known/oauth-authorization-server").json()
    assert document["client_id_metadata_document_supported"] is True
    assert "registration_endpoint" not in document


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_official_suite_finds_nothing_and_signs_in_by_a_document(
    place: Place, node: str, revision: str, tmp_path: Path
) -> None:
    url = place.publish(f"suite-{revision}")
    command = [node, str(SUITE), "authorization", "--url", place.server.origin, "--client-id", url]
    command += ["--resource", place.server.url, "--port", str(urlsplit(CALLBACK).port)]
    command += ["--spec-version", revision, "-o", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as suite:
        assert suite.stdout is not None
        printed = []
        for line in suite.stdout:
            printed.append(line)
            if asked := re.search(rf"{place.server.origin}/oauth/authorize/\?\S+", line):
                httpx2.get(CALLBACK, params=Browser("admin").authorize(asked[0])).raise_for_status()
        assert suite.wait(TIMEOUT) == 0, "".join(printed)
    checks = [check for file in tmp_path.glob("*/checks.json") for check in json.loads(file.read_text())]
    assert {check["status"] for check in checks} == {"SUCCESS"}, checks
    assert "authorization-server-metadata-cimd" in {check["id"] for check in checks}
    assert "authorization-code-grant" in "".join(check["id"] for check in checks)
