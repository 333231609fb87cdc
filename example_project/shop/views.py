"""The start page: what this is, how to connect to it, and what to ask. And the documentation, to which it leads."""

from collections.abc import Iterator

from django.conf import settings
from django.contrib.auth.views import LoginView
from django.http import FileResponse, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.views.static import serve

from mcp_django.oauth.views import PageMixin
from mcp_django.transports.client_configs import CLIENTS, Connection

ACCOUNTS = {
    "admin": "can do everything",
    "warehouse": "sees the orders of its own country and ships them",
    "auditor": "sees everything and changes nothing",
    "manager": "sees everything and approves refunds above 100 in the admin",
    "nobody": "can sign in, and sees nothing",
}
# Their lines are on the page itself; those of other clients are folded.
FIRST_CLIENTS = ("claude-code", "codex")
DOCS = settings.BASE_DIR / "docs"
BUILT_DOCS = settings.BASE_DIR / "build" / "docs"
QUESTIONS = [
    "Which ten products sold best in the last twelve months?",
    "How did revenue develop by month, and which month stands out?",
    "Which products are nearly out of stock?",
    "Is one carrier slower than the others?",
    "In which countries do we grow?",
    "Which customers were refunded most often?",
    "On which days of this year did nobody order?",
    "What do people complain about in reviews with one star?",
    "Mark the five oldest paid orders as shipped.",
    "Refund the newest delivered order: the parcel arrived broken.",
    "Refund 120 of the newest delivered order: it came too late. Then tell me who has to approve that.",
    "Raise the prices of all knives by five per cent, rounded to ten cents. Show me first what would change.",
    "Ada Ibarra is called Ada Evans now, and is there twice: merge the two customers.",
    "Cancel all pending orders. Then take that back.",
    "Take stock of the whole shop, and tell me what to order.",
    "Give me all orders of the last twelve months as an Excel file, with customer, country and total.",
]


class SignIn(PageMixin, LoginView):
    """The admin's own login page turns away who is not staff, and "nobody" is not."""

    template_name = "shop/login.html"


def start(request: HttpRequest) -> HttpResponse:
    url = f"{settings.MCP_BASE_URL}/mcp"
    context = {
        "url": url,
        "accounts": ACCOUNTS,
        "first": list(first_set_ups(url)),
        "set_ups": [found for found in set_ups(url) if found[0] not in {CLIENTS[key].title for key in FIRST_CLIENTS}],
        "questions": QUESTIONS,
        "front_page": "index.html" if BUILT_DOCS.is_dir() else "index.md",
    }
    return render(request, "shop/start.html", context)


def documentation(request: HttpRequest, path: str) -> HttpResponseBase:
    """Return a file of the documentation's site if `make docs` has made it, else a page as Markdown, or a picture."""
    root = DOCS if path.endswith(".md") or path.startswith("images/") else BUILT_DOCS
    response = serve(request, path, document_root=root)
    if path.endswith(".md") and isinstance(response, FileResponse):
        # Browsers show text, and save what they do not know.
        response.headers["Content-Type"] = "text/plain; charset=utf-8"
    return response


def first_set_ups(url: str) -> Iterator[tuple[str, list[str], str]]:
    """For each of the first clients: its name, the lines to run, and what to do in it then."""
    connection = Connection(settings.MCP_DJANGO["SERVER"]["name"], url=url)
    for key in FIRST_CLIENTS:
        client = CLIENTS[key]
        after = client.after.format(name=connection.name, url=url)
        then = after.removeprefix("Run: ")
        lines = [client.shell(connection)]
        if then != after:
            lines.append(then)
        yield client.title, lines, "" if then != after else after


def set_ups(url: str) -> Iterator[tuple[str, str, str]]:
    """For each client that connects over HTTP: its name, what to do, and what to run or to put where."""
    connection = Connection(settings.MCP_DJANGO["SERVER"]["name"], url=url)
    for client in CLIENTS.values():
        shell = client.shell(connection)
        if shell and not client.file:
            yield client.title, f"Choose Streamable HTTP and enter {url}.", shell
        elif client.file and not client.remote:
            put = "" if shell else f"Put this into {client.file}."
            text = client.text(connection).rstrip()
            # JSON fits on one line; the lines of YAML and their indentation have a meaning.
            yield client.title, put, shell or (" ".join(text.split()) if client.format == "json" else text)
