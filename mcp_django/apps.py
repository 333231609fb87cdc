"""The app: imports every ``mcp.py`` of the project, registers the system checks and connects the signals.

Every command and every worker of the project pays for the imports of this module, so there are as few as possible.
"""

import sys
from typing import Any

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in
from django.core import checks
from django.core.signals import got_request_exception
from django.db.models.signals import m2m_changed, post_delete, post_save
from django.utils.module_loading import autodiscover_modules


class MCPDjangoConfig(AppConfig):
    """``mcp_django`` in ``INSTALLED_APPS``."""

    name = "mcp_django"
    verbose_name = "Model Context Protocol"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Set up the app when all are loaded: import the ``mcp`` module of each, as the admin does with ``admin``."""
        from .conf import faults, settings
        from .sites import site
        from .subscriptions.model_signals import connect

        if sys.argv[1:2] == ["mcp_stdio"]:
            from .transports.stdio.pipes import claim

            # Modules imported from here on may print, but standard output is only for messages of the protocol.
            claim()
        checks.register(check)
        checks.register(check_deployment, deploy=True)
        checks.register(check_databases, checks.Tags.database)
        got_request_exception.connect(tell_of_tables)
        self._watch_rules()
        if faults():
            # The app does not work until its settings are right, and the checks report what is wrong.
            return
        autodiscover_modules("mcp", register_to=site)
        user_logged_in.connect(note_sign_in)
        if settings.EVENTS:
            connect()
        if settings.TELEMETRY["prometheus"]:
            # Importing this creates the metrics, so that they are there, as 0, before the first call.
            from .operating import metrics  # noqa: F401
        if settings.TELEMETRY["sql_comments"]:
            from .operating.query_comments import annotate_queries

            annotate_queries()

    def _watch_rules(self) -> None:
        """Connect what every change of an approval rule sends."""
        rule: Any = self.get_model("ApprovalRule")
        for signal in (post_save, post_delete):
            signal.connect(tell_of_rules, sender=rule)
        for field in rule._meta.many_to_many:
            m2m_changed.connect(tell_of_rules, sender=field.remote_field.through)


def tell_of_rules(**kwargs: Any) -> None:
    """Make all processes read the approval rules again."""
    from .approvals.rules import rule_book  # every process loads this file

    rule_book.tell()


def tell_of_tables(**kwargs: Any) -> None:
    """Log missing migrations of the app as the cause, if they are why a page of it failed."""
    from .runtime.missing_migrations import MissingTables  # every process loads this file

    error = sys.exc_info()[1]
    if error is not None:
        missing = MissingTables(error)
        if missing.are_needed():
            missing.log()


def note_sign_in(request: Any = None, **kwargs: Any) -> None:
    """Remember in a session when its user has signed in."""
    from .oauth.recent_sign_ins import RecentSignIn  # every process loads this file

    RecentSignIn(request).note()


def check(**kwargs: Any) -> list[checks.CheckMessage]:
    """Run the system checks that the app registers when it is ready; their modules are loaded only then."""
    from .checks.settings import run_checks

    return run_checks(**kwargs)


def check_deployment(**kwargs: Any) -> list[checks.CheckMessage]:
    """Run the app's system checks of ``check --deploy``."""
    from .checks.settings import run_checks

    return run_checks(deployment=True, **kwargs)


def check_databases(**kwargs: Any) -> list[checks.CheckMessage]:
    """Run the app's system checks of ``check --database``."""
    from .checks.databases import run_checks

    return run_checks(**kwargs)
