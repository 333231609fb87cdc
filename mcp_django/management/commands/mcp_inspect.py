"""``manage.py mcp_inspect``: show what a user's AI model would see, and why everything else is hidden."""

import json
from collections.abc import Iterable
from typing import Any

from django.core.management.base import CommandError, CommandParser

from ...console.visibility_report import VisibilityReport
from ...models import ApprovalRule
from ...operating.daily_budgets import Budgets
from ...problems import NOTHING_REGISTERED
from ...runtime.failing_hooks import HookFailures
from ...transports.local_client import LocalClient
from ..command_arguments import CallerCommand, find_model


class Command(CallerCommand):
    """Print all that a user's AI model sees, and the reasons for what is hidden."""

    help = "Shows what a model that acts as USER would see, what it costs in tokens, and why something is hidden."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--model", default=None, help="only this model, such as shop.order")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print it all as JSON")

    def handle(self, *args: Any, model: str | None, **options: Any) -> None:
        site, person, scopes = self.find_caller(options)
        only = None if model is None else find_model(model)
        # The causes of failures stand beside the models.
        try:
            with HookFailures.unlogged():
                view = VisibilityReport.of(site, person, scopes, model=only, reads_rows=True)
        except LocalClient.CallFailed as refused:
            raise CommandError(str(refused)) from None
        if options["as_json"]:
            self.stdout.write(json.dumps(view.as_json(), indent=1, ensure_ascii=False))
            return
        self.stdout.write(f"{view.user} with {' '.join(view.scopes)} at {view.site}")
        if site.serves_nothing():
            text = f"There is nothing to see for anybody: {NOTHING_REGISTERED.what}. {NOTHING_REGISTERED.remedy}"
            self.stdout.write(self.style.WARNING(text))
        if view.off:
            self.stdout.write(self.style.WARNING(f"Every call is refused: {view.off}"))
        for kind, limits in view.budgets.items():
            amounts = ", ".join(f"{number:,} {Budgets.WORDS[quantity]}" for quantity, number in limits.items())
            self.stdout.write(f"Left today of the budget that {Budgets.WORDS[kind]} has: {amounts}")
        if only is None:
            self.show_lists(view)
        self.show_models(view)
        self.show_rules(view)

    def show_lists(self, view: VisibilityReport) -> None:
        """Print the tools, each with the estimated tokens of its definition, the resources and the prompts."""
        sizes = f"about {view.tool_tokens:,} tokens; instructions about {view.instruction_tokens}"
        self.heading(f"Tools: {len(view.tools)}, {sizes}")
        for tool in view.tools:
            self.stdout.write(f"  {tool.name:<40} {tool.tokens:>5}")
        self.left_out(view.missing_tools)
        for title, names in (("Resources", view.resources), ("Prompts", view.prompts)):
            self.heading(f"{title}: {len(names)}")
            for name in names:
                self.stdout.write(f"  {name}")
        self.left_out(view.missing_prompts)

    def show_models(self, view: VisibilityReport) -> None:
        """Print each visible model with its fields and actions, then the hidden ones."""
        self.heading(f"Models: {len(view.models)}")
        for model in view.models:
            words = ", ".join(model.allowed) if len(model.allowed) > 1 else "view only"
            if model.failing:
                words += self.style.ERROR(f"; FAILS: {'; '.join(model.failing)}")
            self.stdout.write(f"  {model.label} ({words}): {', '.join(model.fields)}")
            self.left_out(model.missing, indent=4)
            if model.filters:
                self.stdout.write(f"    filters: {', '.join(model.filters)}")
            if model.actions:
                self.stdout.write(f"    actions: {', '.join(model.actions)}")
            self.left_out([f"action {item}" for item in model.missing_actions], indent=4)
        if view.missing_models:
            self.heading(f"Hidden: {len(view.missing_models)}")
        self.left_out(view.missing_models)

    def show_rules(self, view: VisibilityReport) -> None:
        """Print the approval rules that concern the user, and what is wrong with them."""
        if view.rules:
            self.heading(f"Approval rules: {len(view.rules)}")
        for rule in view.rules:
            decided = "" if rule.effect == ApprovalRule.Effect.BLOCK.label else f"; decided by {rule.deciders}"
            self.stdout.write(f"  {rule.name} ({rule.effect}): {rule.what}{decided}")
            self.left_out([self.style.WARNING(text) for text in rule.faults], indent=4)

    def heading(self, text: str) -> None:
        """Print the heading of a part."""
        self.stdout.write("\n" + self.style.MIGRATE_HEADING(text))

    def left_out(self, missing: Iterable[object], indent: int = 2) -> None:
        """Print what is hidden, and why."""
        for item in missing:
            self.stdout.write(f"{' ' * indent}- {item}")
