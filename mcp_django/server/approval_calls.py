"""Calls that wait for the yes of another person: the request is kept, joined by the same call, and answered with its
outcome.

Unlike a call that its own user confirms, it is answered by an ordinary result and nothing else: the caller's client has
nobody to show a page to. :mod:`~mcp_django.approvals.queue` finds the requests for those who decide.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from django.contrib.auth import get_user_model
from django.db import transaction
from django.utils import timezone

from ..approvals.approval_check import CallApproval
from ..approvals.deciders import Deciders
from ..approvals.notices import ApprovalNotices
from ..approvals.queue import approval_url
from ..approvals.rules import Rule
from ..context.approval_checks import ApprovalCheck
from ..context.person_consent import PersonNeeded
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..differences.kept_changes import KeptChange
from ..exceptions import ToolError
from ..models import ApprovalRequest, Change
from ..tools.base import Tool
from .person_requests import MAX_WAITING, PersonRequest

State = Change.State
ARGUMENT: Final = "reason"
MAX_REASON: Final = 500
# Maximum number of requests that wait because of one rule.
MAX_BY_RULE: Final = 200

MESSAGE: Final = "Request {} waits for {} until {}."
NEXT: Final = (
    "Nothing has been changed yet, and nobody here can confirm it. Tell the user, with the link. Repeat the same call "
    "later to get the outcome; undo_change withdraws the request."
)
NOBODY: Final = (
    "The approval rule {!r} wants the yes of {}, and there is nobody else. Nothing was changed. Tell the user."
)
NOT_HERE: Final = "The approval rule {!r} wants the yes of {}, and {} cannot wait for it. Nothing was changed."
TOO_MANY: Final = (
    f"{MAX_WAITING} of your calls wait for a yes. Nothing was changed. Withdraw some with undo_change, or wait: "
    "query_records on mcp.change with state waiting lists them."
)
TOO_MANY_OF_RULE: Final = (
    f"{MAX_BY_RULE} calls wait because of the approval rule {{!r}}. Nothing was changed. Tell the user that somebody "
    "has to decide those first."
)


def take_reason(tool: Tool, arguments: dict[str, Any]) -> str:
    """Return the words by which the model says why it makes a call, "" if there are none.

    They are an argument of the app's own tools, which is removed; a tool of the project can have one of this name.
    """
    given = arguments.pop(ARGUMENT, "") if tool.takes_reason else arguments.get(ARGUMENT)
    return given[:MAX_REASON] if isinstance(given, str) else ""


class ApprovalCall(PersonRequest):
    """One call of ``tool`` that rules on approval may concern; ``reason`` is why, in the words of the model.

    Where no rule applies to what it does, it is a call that only its own user can confirm.
    """

    REFUSED: ClassVar = "Request {number}: {outcome} Nothing was changed. {again}"
    FAILED: ClassVar = "Request {number} was approved, but it was not made. {outcome} {again}"

    def __init__(
        self,
        request: MCPRequest,
        tool: Tool,
        arguments: Mapping[str, Any],
        approvals: ApprovalCheck,
        reason: str = "",
    ) -> None:
        super().__init__(request, tool, arguments)
        assert isinstance(approvals, CallApproval)
        self.approvals = approvals
        self.reason = reason

    def known(self) -> Any:
        """Return the answer to a call that waits or was decided before, None for a call that is new."""
        found = self.changes.repeated(self.digest)
        if found is not None and _approval_of(found) is not None:
            return self.outcome(found)
        return super().known()

    def open(self, needed: PersonNeeded, arguments: Mapping[str, Any]) -> ToolResult:
        """Keep the call, and return what the client shows its user; ``arguments`` are those to make the call with.

        Raises ``ToolError`` if nobody else can decide, or too many calls wait.
        """
        if not self.approvals.is_needed:
            return super().open(needed, arguments)
        rule = self.approvals.rule
        self._check_deciders()
        with transaction.atomic(using=self.changes.using):
            kept = self._keep(needed, arguments, rule.hours * 3600)
            approval = ApprovalRequest(
                change=kept.change,
                rule_name=rule.name,
                permission=rule.permission,
                group_id=rule.group_key,
                reads=self.approvals.read_columns(),
                rows=self.approvals.row_keys(),
                reason=self.reason,
            )
            approval.save(using=self.changes.using, force_insert=True)
            ApprovalNotices(kept.change, approval).requested()
        return self._waiting(kept)

    def _check_deciders(self) -> None:
        """Raise ``ToolError`` unless somebody else can decide, and this call can be kept until then."""
        mcp = self.request.mcp
        rule = self.approvals.rule
        user: Any = self.request.user
        who = ""
        if "://" not in mcp.resource:
            who = "a call without HTTP"
        elif mcp.site.needs_middleware:
            who = "a call at this endpoint"
        elif not isinstance(user, get_user_model()) or user.pk is None:
            who = "a caller who is no user of the site"
        if who:
            raise ToolError(NOT_HERE.format(rule.name, rule.deciders, who))
        if not Deciders.of(rule).somebody_besides(user):
            raise ToolError(NOBODY.format(rule.name, rule.deciders))
        waiting = Change.objects.using(self.changes.using).filter(state=State.WAITING.value, expires__gt=timezone.now())
        if waiting.filter(pk__in=self.changes.rows.values("pk")).count() >= MAX_WAITING:
            raise ToolError(TOO_MANY)
        if waiting.filter(approval__rule_name=rule.name).count() >= MAX_BY_RULE:
            raise ToolError(TOO_MANY_OF_RULE.format(rule.name))

    def _waiting(self, kept: KeptChange) -> ToolResult:
        approval = _approval_of(kept)
        if approval is None:
            return super()._waiting(kept)
        change = kept.change
        assert change.expires is not None
        until = f"{timezone.localtime(change.expires):%A, %Y-%m-%d %H:%M %Z}"
        told: dict[str, Any] = {
            "message": MESSAGE.format(change.pk, _deciders(approval), until),
            "change": change.pk,
            "state": "waiting",
            "rule": approval.rule_name,
            "url": approval_url(self.request, change.pk),
            "summary": change.summary,
        }
        shown = kept.shown
        if isinstance(shown, dict) and "difference" in shown:
            told["difference"] = shown["difference"]
        return self._told({**told, "next": NEXT})


def _approval_of(kept: KeptChange) -> ApprovalRequest | None:
    """Return what a change waits for, None if it waits for its own user or for nobody."""
    rows = ApprovalRequest.objects.using(kept.change._state.db).select_related("group")
    return rows.filter(change=kept.change.pk).first()


def _deciders(approval: ApprovalRequest) -> str:
    group = approval.group.name if approval.group is not None else ""
    return Rule(name=approval.rule_name, permission=approval.permission, group=group).deciders
