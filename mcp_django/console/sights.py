"""What the user of a page of the console sees of rows, at each endpoint."""

from django.http import HttpRequest

from ..approvals.deciders import DeciderSight
from .console_pages import Home
from .known_sites import usable_sites


class Sights:
    """What the user of a page sees at different endpoints, each of which is looked at once."""

    def __init__(self, home: Home, request: HttpRequest) -> None:
        self.home = home
        self.request = request
        self._by_site: dict[str, DeciderSight | None] = {}

    def of(self, name: str) -> DeciderSight | None:
        """Return what they see at the site of this name; None if it is gone, or needs a browser's session."""
        if name not in self._by_site:
            site = usable_sites().get(name)
            sight = None if site is None else DeciderSight(self.request, site, self.home.admin_site)
            self._by_site[name] = sight
        return self._by_site[name]
