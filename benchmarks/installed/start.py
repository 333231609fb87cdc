"""``python -m benchmarks.installed.start KIND``: starts the project and prints what that took, as JSON.

It is a process of its own for each start, since what is loaded once costs nothing afterwards.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import django
from django.conf import settings

# What each kind of start has beside the project's own apps.
KINDS: dict[str, tuple[str, ...]] = {
    "without": (),
    "with": ("mcp_django",),
    "declared": ("mcp_django", "benchmarks.installed.declared"),
    "serving": ("mcp_django", "benchmarks.installed.declared"),
}
APPS = (
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "channels",
    "oauth2_provider",
    "rest_framework",
    "benchmarks.installed",
)


def milliseconds() -> float:
    """Return the processor time of this process."""
    return time.process_time() * 1000


def resident_mb() -> float:
    """Return the memory that it occupies, where the system tells."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def provider() -> dict[str, Any]:
    """Return the toolkit's settings, as a settings module with the app has them."""
    from mcp_django.oauth import provider_settings

    return provider_settings(base_url="https://shop.example")


def start(kind: str) -> dict[str, float]:
    """Start the project; return processor time of settings and setup in ms, memory in MB, and modules."""
    begun = milliseconds()
    toolkit = provider() if KINDS[kind] else {}
    imported = milliseconds()
    settings.configure(
        INSTALLED_APPS=[*APPS, *KINDS[kind]],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        ROOT_URLCONF="benchmarks.project.urls",
        SECRET_KEY="not-a-secret-only-for-the-benchmarks-of-this-project",
        USE_TZ=True,
        MCP_DJANGO={"BASE_URL": "https://shop.example"},
        OAUTH2_PROVIDER=toolkit,
    )
    before = milliseconds()
    django.setup()
    if kind == "serving":
        from mcp_django.asgi import get_asgi_application

        get_asgi_application()
    return {
        "settings_ms": imported - begun,
        "setup_ms": milliseconds() - before,
        "resident_mb": resident_mb(),
        "modules": len(sys.modules),
    }


if __name__ == "__main__":
    print(json.dumps(start(sys.argv[1])))
