"""Fill an empty database with people, and print a token of each."""

import json
import sys

import django


def main(number: int) -> None:
    django.setup()
    from django.contrib.auth import get_user_model
    from django.core.management import call_command

    from mcp_django.oauth.resource_urls import resource_url
    from mcp_django.oauth.stored_tokens import issue_token
    from mcp_django.scopes import Scope

    call_command("migrate", run_syncdb=True, verbosity=0)
    users = [get_user_model().objects.create_superuser(f"user{one}", password=None) for one in range(number)]
    print(
        json.dumps(
            [issue_token(user, scopes=(Scope.READ, Scope.WRITE), resource=resource_url(None, "/mcp")) for user in users]
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
