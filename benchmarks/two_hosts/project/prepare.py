"""Fill the empty database, and print as JSON what the clients have to know."""

import io
import json
import sys
from decimal import Decimal

import django


def main(people: int, rows: int) -> None:
    """Make the tables, the people with a token and a browser session each, and the rows."""
    django.setup()
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
    from django.contrib.sessions.backends.db import SessionStore
    from django.core.management import call_command

    from .models import Counter, Row

    call_command("migrate", run_syncdb=True, verbosity=0)
    Row._default_manager.bulk_create(
        [Row(number=number, name=f"Row {number}", amount=Decimal(number) / 4) for number in range(rows)]
    )
    found = []
    for number in range(people):
        user = get_user_model().objects.create_superuser(f"person{number}", password=None)
        printed = io.StringIO()
        call_command("mcp_token", user.get_username(), stdout=printed)
        browser = SessionStore()
        browser[SESSION_KEY] = str(user.pk)
        browser[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
        browser[HASH_SESSION_KEY] = user.get_session_auth_hash()
        browser.save()
        counter = Counter._default_manager.create()
        token = printed.getvalue().split()[0]
        found.append({"token": token, "browser": browser.session_key, "counter": counter.pk})
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
