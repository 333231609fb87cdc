"""A person with a browser, who opens the link to an export, and signs in on the way."""

import re

import httpx2

from tests.e2e.python_client import TIMEOUT

TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


class Downloader:
    """The person; their password is their name."""

    def __init__(self, username: str) -> None:
        self.username = username

    def open(self, url: str) -> httpx2.Response:
        """Open a link, sign in where the site asks for it, and return what the browser then gets."""
        with httpx2.Client(timeout=TIMEOUT, follow_redirects=True) as browser:
            page = browser.get(url)
            assert "/login/" in str(page.url)
            form = {
                "username": self.username,
                "password": self.username,
                "csrfmiddlewaretoken": TOKEN.findall(page.text)[0],
            }
            found = browser.post(str(page.url), data=form, headers={"Referer": str(page.url)})
            assert str(found.url) == url
            return found
