import base64
import hashlib
import re

import pytest
from django.urls import reverse

from tests.oauth_flow import Flow

pytestmark = pytest.mark.django_db


def style_and_policy(page):
    (style,) = re.findall(r"<style>(.*?)</style>", page.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return style, f"'sha256-{digest}'", page["Content-Security-Policy"]


@pytest.mark.parametrize("kind", ["consent", "error", "tokens"])
def test_every_page_has_its_styles_in_itself_and_its_policy_allows_no_others(kind):
    flow = Flow()
    page = {
        "consent": flow.ask,
        "error": lambda: flow.ask(client_id="nobody"),
        "tokens": lambda: flow.browser.get(reverse("mcp_oauth:authorized-token-list")),
    }[kind]()
    style, digest, policy = style_and_policy(page)
    assert "{" in style
    assert "&quot;" not in style
    assert f"style-src {digest};" in policy
    assert "<link" not in page.text


def test_a_project_can_have_styles_of_its_own(settings, tmp_path):
    own = tmp_path / "mcp_django" / "oauth"
    own.mkdir(parents=True)
    (own / "styles.css").write_text('body > p::before { content: "own" }')
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path]}]
    style, digest, policy = style_and_policy(Flow().ask())
    assert style == 'body > p::before { content: "own" }'
    assert digest in policy
