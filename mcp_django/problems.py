"""Problems and their remedies: why requests and sign-ins are refused. Those that several rooms know are here.

System checks report wrong settings and declarations in the same form.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request or sign-in is refused, in detail but without credentials, and its remedy: for the log.

    ``told`` is the text for the sender of the request, "" if the sender must not know. ``remedy`` is a fixed text for
    each cause; if it is the same for several causes, ``cause`` is a fixed text that distinguishes them.
    """

    what: str
    remedy: str
    told: str = ""
    cause: str = ""


def nearest(name: Any, known: Iterable[str], least: float = 0.6) -> str:
    """Return " Did you mean ...?" with the known name that is most like this one, "" if none is."""
    found = closest(str(name), known, least)
    return f" Did you mean {found!r}?" if found is not None else ""


def closest(name: str, known: Iterable[str], least: float) -> str | None:
    from difflib import get_close_matches  # only where something is wrong

    by_lower = {item.lower(): item for item in known}
    found = get_close_matches(name.strip().lower(), by_lower, 1, least)
    return by_lower[found[0]] if found else None


IS_IT_RIGHT: Final = "Is BASE_URL right?"
# Reasons why a request is not signed in, other than the token itself.
NO_TOKEN: Final = Problem("the request has no token", "Clients sign in next, or need a token in their configuration.")

# Clients look for metadata documents at several places, and one of them is enough.
NO_DOCUMENT: Final = "If clients find no other document either, is the URL in the client right?"


class LoginReturn:
    """The browser comes back from the login page, but nobody is signed in.

    ``PARAMETER`` is in the URL to which the login page sends the browser.
    """

    PARAMETER: Final = "mcp_signed_in"
    NO_SESSION: Final = Problem(
        "the browser comes back from the login page without a session",
        "SESSION_COOKIE_PATH and SESSION_COOKIE_DOMAIN have to include this page; SESSION_COOKIE_SECURE needs https.",
    )
    LOST_SESSION: Final = Problem(
        "the browser comes back from the login page with the cookie of a session that is not known here",
        "Workers have to share sessions (SESSION_ENGINE, not the memory of each) and use one SECRET_KEY, not a random "
        "one.",
    )


NOTHING_REGISTERED: Final = Problem(
    "no model, tool, resource or prompt of the project is registered",
    "Register something in the mcp.py of an installed app, or its models in the admin with AUTO_REGISTER on.",
)
