"""The sites that pages of the console are about."""

from ..routing import mounted_sites
from ..sites import MCPSite
from ..sites import site as default_site


def known_sites() -> dict[str, MCPSite]:
    """Return the sites to choose from, by name: those mounted, or else the default site."""
    return {site.name: site for site in mounted_sites()} or {default_site.name: default_site}


def usable_sites() -> dict[str, MCPSite]:
    """Return those at which a page can do what a call does: the sites that need no middleware."""
    return {name: site for name, site in known_sites().items() if not site.needs_middleware}
