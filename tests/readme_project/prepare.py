"""Run within the README's project: what a person does by `manage.py` before the first start. Prints a token."""

from django.core.management import call_command

call_command("makemigrations", "shop", verbosity=0)
call_command("migrate", run_syncdb=True, verbosity=0)
call_command("createsuperuser", interactive=False, username="ada", email="", verbosity=0)
call_command("mcp_token", "ada")
