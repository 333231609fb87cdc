"""The shop itself: its tables, its rows and its user are made, and then it is served."""

import secrets
from pathlib import Path
from typing import Any, Final

import django
from daphne.server import Server
from django.conf import settings
from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.management import call_command
from django.utils import timezone

from ..asgi import get_asgi_application
from ..oauth.toolkit_settings import provider_settings
from . import settings as fixed_settings

HERE: Final = Path(__file__).parent


def configure(folder: Path, base: str) -> None:
    """Set up Django for a shop with its data in a folder and a key of its own, which clients reach at ``base``."""
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": folder / "tiny-shop.sqlite3"}
    settings.configure(
        **{name: getattr(fixed_settings, name) for name in dir(fixed_settings) if name.isupper()},
        SECRET_KEY=secrets.token_urlsafe(50),
        DATABASES={"default": {**database, "OPTIONS": {"transaction_mode": "IMMEDIATE"}}},
        MCP_DJANGO={"BASE_URL": base, "SERVER": {"name": "tiny-shop", "title": "A tiny shop"}},
        OAUTH2_PROVIDER=provider_settings(base_url=base),
    )
    django.setup()


def fill() -> str:
    """Make the tables, the rows if there are none, and the user; return the user's new password."""
    call_command("migrate", run_syncdb=True, verbosity=0)
    # Models can be imported only now.
    from django.contrib.auth.models import User

    from .models import Product
    from .sample_rows import load_rows

    if not Product.objects.exists():
        load_rows(timezone.now())
    user, _ = User.objects.get_or_create(username="admin", is_staff=True, is_superuser=True)
    password = secrets.token_urlsafe(9)
    user.set_password(password)
    user.save()
    return password


def serve(folder: Path, host: str, port: int, fate: str) -> None:
    """Say what to do, with ``fate`` for what becomes of the data, and serve until a signal or a failure to listen."""
    base = f"http://{host}:{port}"
    configure(folder, base)
    text = (HERE / "opened.txt").read_text().format(base=base, password=fill(), fate=fate)
    application: Any = get_asgi_application()
    server = Server(
        application=ASGIStaticFilesHandler(application),
        endpoints=[f"tcp:port={port}:interface={host}"],
        ready_callable=lambda: print(text, flush=True),
    )
    server.run()
    if server.abort_start:
        raise SystemExit(f"Port {port} was taken meanwhile. Start again.")
