"""The start page: what this is, how to connect to it, and what to ask."""

from collections.abc import Iterator

from django.conf import settings
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from mcp_django.oauth.views import PageMixin
from mcp_django.transports.client_configs import CLIENTS, Connection

ACCOUNTS = {
    "admin": "can do everything",
    "warehouse": "sees the orders of its own country and ships them",
    "auditor": "sees everything and changes nothing",
    "manager": "sees everything and approves refunds above 100 in the admin",
    "nobody": "can sign in, and sees nothing",
}
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
    "Refund 120 of the newest delivered order: it came too late. Then tell me for whom that waits.",
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
    context = {"url": url, "accounts": ACCOUNTS, "set_ups": set_ups(url), "questions": QUESTIONS}
    return render(request, "shop/start.html", context)


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
