"""The official Python client, signed in by its own OAuth provider with a person's browser behind it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from tests.e2e.browser import CALLBACK, Browser
from tests.e2e.servers import Server

TIMEOUT = 30


class Wallet:
    """Where the client keeps what it was given: nothing, at first."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info

    @property
    def access_token(self) -> str:
        assert self.tokens is not None
        return self.tokens.access_token

    @property
    def scopes(self) -> set[str]:
        assert self.tokens is not None
        return set((self.tokens.scope or "").split())


class Person:
    """A user, their browser, and what their MCP client holds for them at one server."""

    def __init__(self, server: Server, username: str, scopes: set[str] | None = None) -> None:
        self.server = server
        self.browser = Browser(username, scopes)
        self.wallet = Wallet()
        self.sign_ins = 0
        # What the address of the endpoint has behind it.
        self.query = ""
        self._callback: dict[str, str] = {}

    @property
    def url(self) -> str:
        return self.server.url + self.query

    async def _redirect(self, url: str) -> None:
        self.sign_ins += 1
        self._callback = await asyncio.to_thread(self.browser.authorize, url)

    async def _returned(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult.model_validate(self._callback)

    def provider(self) -> OAuthClientProvider:
        metadata = OAuthClientMetadata(
            client_name="Python client", redirect_uris=[AnyUrl(CALLBACK)], token_endpoint_auth_method="none"
        )
        return OAuthClientProvider(self.url, metadata, self.wallet, self._redirect, self._returned)

    @asynccontextmanager
    async def connect(self, mode: str, provider: OAuthClientProvider | None = None) -> AsyncIterator[Client]:
        """Connect with a client that has forgotten all but the wallet, or with the provider given."""
        async with (
            httpx2.AsyncClient(auth=provider or self.provider(), timeout=TIMEOUT) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode) as client,
        ):
            yield client


def expire(provider: OAuthClientProvider) -> None:
    """Let the client's clock say that its token has run out."""
    provider.context.token_expiry_time = time.time() - 1


async def every(list_page: Any, member: str) -> list[Any]:
    """All items of a list, page after page."""
    page = await list_page()
    found = list(getattr(page, member))
    while page.next_cursor is not None:
        page = await list_page(cursor=page.next_cursor)
        found += getattr(page, member)
    return found


def text_of(item: Any) -> str:
    """The text of a content block or of a resource's contents, which must have one."""
    assert isinstance(item.text, str)
    return item.text


async def call(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """The structured result of a tool that must not fail."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content
