"""Fresh sign-ins: whoever says yes has signed in to the site shortly before, in the same browser session.

``CONFIRM`` says how long ago that may be. ``last_login`` says nothing of the session: the same user may have signed in
elsewhere, and some projects do not store it.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from django.contrib.auth import logout
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponseRedirect

from ..conf import settings

# The key of the session for when its user has signed in, in seconds since 1970.
KEY: Final = "_mcp_django_signed_in"


class RecentSignIn:
    """When the user of a browser session has signed in."""

    def __init__(self, request: HttpRequest) -> None:
        self.request = request
        rule = settings.CONFIRM
        # Seconds for which a sign-in is recent; None for ever.
        self.max_age: int | None = rule.get("sign_in") if isinstance(rule, Mapping) else None

    def note(self) -> None:
        """Remember that the user signs in now, where that matters."""
        session: Any = getattr(self.request, "session", None)
        if session is not None and self.max_age is not None:
            session[KEY] = int(time.time())

    @property
    def is_recent(self) -> bool:
        """Whether the user may say yes without signing in again."""
        if self.max_age is None:
            return True
        noted = self.request.session.get(KEY)
        return isinstance(noted, int) and time.time() - noted <= self.max_age

    def repeat(self, login_url: str) -> HttpResponseRedirect:
        """Sign the user out, and send them to the login and then back to this page.

        Many login pages pass on who is still signed in, without asking anything.
        """
        back = self.request.get_full_path()
        logout(self.request)
        return redirect_to_login(back, login_url)
