"""The queue of requests for approval: which there are for a user, and the decision on one of them."""

from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.db import router, transaction
from django.db.models import Count, Exists, Q, QuerySet
from django.utils import timezone

from ..context.request import MCPRequest
from ..context.untrusted_text import plain
from ..differences.kept_changes import KeptChange
from ..models import ApprovalRequest, Change, ServiceAccount
from .deciders import Deciders
from .notices import ApprovalNotices, page_url

State = Change.State
VIEW: Final = "mcp_django.view_approvalrequest"
TOO_LATE: Final = "Nobody has decided in time."
SAID_NO: Final = "The answer was no: {}"
# Maximum characters of the word of whoever says no.
LONGEST_WORD: Final = 500
# Maximum number of requests that are counted for a user to decide.
MOST: Final = 100


def approval_url(request: MCPRequest, number: int) -> str:
    """Return the URL of the page on which a request for approval is decided, "" where the admin is not mounted."""
    return page_url(request.mcp.resource, number)


class ApprovalQueue:
    """The requests for approval as they concern one user, and this user's decisions."""

    def __init__(self, user: Any) -> None:
        self.user = user
        self.using = router.db_for_write(Change)

    @property
    def rows(self) -> QuerySet[ApprovalRequest]:
        """All requests with their changes, the newest first, without the contents."""
        rows = ApprovalRequest.objects.using(self.using).select_related("change", "group")
        return KeptChange.without_contents(rows, "change__").order_by("-pk")

    def mine(self) -> QuerySet[ApprovalRequest]:
        """Return the requests that this user may decide now, those that end first before others."""
        return self.rows.filter(self._is_mine()).order_by("change__expires", "pk")

    def asked(self) -> QuerySet[ApprovalRequest]:
        """Return the requests of this user."""
        return self.rows.filter(self._is_asked())

    def all(self) -> QuerySet[ApprovalRequest]:
        """Return all requests, none for a user who may not view them."""
        return self.rows if self.may_view else self.rows.none()

    @property
    def may_view(self) -> bool:
        """Whether the user may view the requests of everybody."""
        return bool(self.user.has_perm(VIEW))

    def counts(self) -> dict[str, int]:
        """Return the numbers of requests, by one query: to decide ("mine"), of the user ("asked"), and "all"."""
        named = {"mine": Count("pk", filter=self._is_mine()), "asked": Count("pk", filter=self._is_asked())}
        if self.may_view:
            named["all"] = Count("pk")
        return ApprovalRequest.objects.using(self.using).aggregate(**named)

    def count_mine(self) -> int:
        """Return how many requests the user may decide now, at most ``MOST``, by one query."""
        return ApprovalRequest.objects.using(self.using).filter(self._is_mine())[:MOST].count()

    def find(self, number: str) -> ApprovalRequest | None:
        """Return the request with this number, with the contents of its change, if this user may know of it: as one who
        may decide such requests, who has asked, or who may view all."""
        key = int(number) if number.isascii() and number.isdecimal() and len(number) < 20 else 0
        if not 0 < key <= KeptChange.MAX_KEY:
            return None
        rows = ApprovalRequest.objects.using(self.using).select_related("change", "group")
        found = rows.filter(pk=key).first()
        if found is None:
            return None
        is_known = self.has_asked(found) or self.may_view or Deciders.of(found).include(self.user)
        return found if is_known else None

    def has_asked(self, approval: ApprovalRequest) -> bool:
        """Return whether it is this user's request."""
        owner = KeptChange.owner_of(self.user)
        return bool(owner) and approval.change.user == owner

    def has_seen(self, approval: ApprovalRequest) -> bool:
        """Return whether this user has asked or decided, and so knows what it was about, also once rows are gone."""
        owner = KeptChange.owner_of(self.user)
        return self.has_asked(approval) or (bool(owner) and approval.decider == owner)

    def may_decide(self, approval: ApprovalRequest) -> bool:
        """Return whether this user may decide the request, if they see what it is about."""
        return self.state_of(approval) == State.WAITING and Deciders.of(approval).may_decide(self.user, approval.change)

    @staticmethod
    def state_of(approval: ApprovalRequest) -> str:
        """Return how the request stands; one past its time has expired, whether or not that was noted."""
        change = approval.change
        is_late = change.expires is not None and change.expires <= timezone.now()
        return State.EXPIRED.value if change.state == State.WAITING and is_late else change.state

    # Decisions

    def refuse(self, approval: ApprovalRequest, word: str) -> bool:
        """Say no, and why; return False if somebody else has decided meanwhile, or nobody has in time.

        Raises:
            ValueError: there is no word.
            PermissionDenied: this user may not decide it.
        """
        told = plain(word.strip(), LONGEST_WORD)
        if not told:
            raise ValueError("A no needs a word.")
        kept = KeptChange(approval.change)
        if self.state_of(approval) == State.EXPIRED:
            kept.claim(State.WAITING, State.EXPIRED, outcome=TOO_LATE)
            return False
        if not Deciders.of(approval).may_decide(self.user, approval.change):
            raise PermissionDenied
        sentence = told if told[-1] in ".!?" else f"{told}."
        values = {"decided": timezone.now(), "by": self.user.get_username(), "outcome": SAID_NO.format(sentence)}
        with transaction.atomic(using=self.using):
            if not kept.claim(State.WAITING, State.REFUSED, **values):
                return False
            self._note(approval, word=told)
            ApprovalNotices(approval.change, approval).decided()
        return True

    def approved(self, approval: ApprovalRequest) -> bool:
        """Note that this user has said yes, once the call has run or has failed; return whether it was this user who
        decided."""
        change = approval.change
        change.refresh_from_db(using=self.using)
        is_open = change.state in (State.WAITING, State.EXPIRED)
        if is_open or not KeptChange(change).was_decided_by(self.user) or not self._note(approval):
            return False
        ApprovalNotices(change, approval).decided()
        return True

    def _note(self, approval: ApprovalRequest, **values: str) -> bool:
        values["decider"] = KeptChange.owner_of(self.user)
        if not ApprovalRequest.objects.using(self.using).filter(pk=approval.pk, decider="").update(**values):
            return False
        for name, value in values.items():
            setattr(approval, name, value)
        return True

    # Conditions

    def _is_asked(self) -> Q:
        owner = KeptChange.owner_of(self.user)
        return Q(change__user=owner) if owner else Q(pk__in=())

    def _is_mine(self) -> Q:
        user = self.user
        if not (user.is_active and getattr(user, "is_staff", False)):
            return Q(pk__in=())
        if getattr(user, "is_superuser", False):
            who = Q(permission__gt="")
        else:
            who = Q(permission__in=sorted(user.get_all_permissions()))
        if hasattr(user, "groups"):
            who |= Q(permission="", group__in=user.groups.using(self.using).order_by().values("pk"))
        accounts = ServiceAccount.objects.using(self.using).filter(user=user.pk)
        is_open = Q(change__state=State.WAITING.value, change__expires__gt=timezone.now())
        return is_open & who & ~Q(change__user=KeptChange.owner_of(user)) & Q(~Exists(accounts))
