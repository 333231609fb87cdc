"""The server's memory between requests: sessions of the handshake era, the streams of their calls, and results.

None of it grants access: every request is checked by its own token, and a session belongs to one user. Any worker
writes rows, and the worker to which the client is connected reads them. The facts stored about a token, in addition to
django-oauth-toolkit's own tables, can restrict its permissions, but never extend them.
"""

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from .exceptions import CallRefused


class PartialIndex(models.Index):
    """An index of the rows that meet ``where``; of all rows on a database that has no such indexes, such as MySQL."""

    def __init__(self, *, where: models.Q, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Not as the condition: Django warns of each condition that a database ignores.
        self.where = where

    def deconstruct(self) -> Any:
        """Return path, arguments and keyword arguments for a migration."""
        path, args, kwargs = super().deconstruct()
        return path, args, {**kwargs, "where": self.where}

    def create_sql(self, model: type[models.Model], schema_editor: Any, using: str = "", **kwargs: Any) -> Any:
        """Return the statement that creates the index."""
        condition = self.where if schema_editor.connection.features.supports_partial_indexes else None
        index = models.Index(fields=self.fields, name=self.name, condition=condition)
        return index.create_sql(model, schema_editor, using=using, **kwargs)


class Session(models.Model):
    """A session that has something to remember, or that ended before its id did (basic/transports, Sessions)."""

    id = models.CharField(max_length=32, primary_key=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, editable=False, on_delete=models.CASCADE, related_name="+"
    )
    facts = models.JSONField(
        default=list, help_text="Version, client and capabilities, where the id does not carry them."
    )
    log_level = models.CharField(max_length=10, blank=True)
    uris = models.JSONField(default=list, help_text="The resources that it is subscribed to.")
    created = models.DateTimeField()
    seen = models.DateTimeField(db_index=True)
    ended = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"{self.id[:6]}…"


class Stream(models.Model):
    """The event stream of a call, or of all calls of a session; it goes on whether or not its client is connected."""

    class State(models.TextChoices):
        """The state of a stream: a worker runs the call, the client has to answer, or the call is over."""

        RUNNING = "running"
        ASKING = "asking"
        DONE = "done"

    id = models.CharField(max_length=32, primary_key=True)
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="streams")
    request_id = models.JSONField(null=True, help_text="The id of the call, null for a stream of many calls.")
    call = models.TextField(blank=True, help_text="The call, to be run again with the answers to its questions.")
    version = models.CharField(max_length=10, blank=True)
    state = models.CharField(max_length=7, choices=State.choices, default=State.RUNNING)
    questions = models.JSONField(default=list, help_text="What was asked: id, key, method, and the client's result.")
    answers = models.JSONField(default=dict, help_text="What was answered before.")
    events = models.PositiveIntegerField(default=0, help_text="How many events there were.")
    size = models.PositiveIntegerField(default=0, help_text="Bytes of the events that are kept.")
    alive = models.DateTimeField(help_text="When its worker last said so.", db_index=True)

    def __str__(self) -> str:
        return f"{self.id[:6]}…"


class StreamEvent(models.Model):
    """A numbered JSON-RPC message of a stream."""

    id = models.BigAutoField(primary_key=True)
    stream = models.ForeignKey(Stream, on_delete=models.CASCADE, related_name="+")
    number = models.PositiveIntegerField()
    data = models.TextField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["stream", "number"], name="mcp_django_one_event_a_number")
        ]

    def __str__(self) -> str:
        return f"{self.stream_id[:6]}…-{self.number}"


class KeyedCall(models.Model):
    """A call that a client made under a key of its own, with its result, so that a repeat is not done again."""

    id = models.CharField(
        max_length=64, primary_key=True, help_text="The digest of user, client, endpoint, tool and key."
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, editable=False, on_delete=models.CASCADE, related_name="+"
    )
    tool = models.CharField(max_length=64)
    arguments = models.CharField(max_length=64, help_text="Their digest.")
    authority = models.CharField(max_length=64, blank=True, help_text="The digest of what the caller could do.")
    owner = models.CharField(max_length=32, blank=True, help_text="The mark of the call that claimed the key.")
    result = models.TextField(blank=True, help_text="The result as JSON; empty while nobody knows of one.")
    created = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.tool} {self.id[:6]}…"


class TokenFacts(models.Model):
    """Facts about an access token, or about a code before it becomes one, beside the token's own row.

    There is no foreign key to the token: the tables of django-oauth-toolkit can be swapped, or not be there at all.
    """

    token = models.CharField(max_length=64, primary_key=True, help_text="The SHA-256 of the token or the code.")
    family = models.UUIDField(null=True, db_index=True, help_text="The family of the refresh token, None without one.")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, editable=False, on_delete=models.CASCADE, related_name="+")
    facts = models.JSONField(default=dict, help_text="What was so when the user agreed, by name.")
    created = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.token[:6]}…"


class UsedAssertion(models.Model):
    """A signed assertion that was accepted, kept until it expires: no worker accepts it again (RFC 7523, section 3)."""

    id = models.CharField(max_length=64, primary_key=True, help_text="The SHA-256 of its issuer and its jti.")
    expires = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.id[:6]}…"

    @classmethod
    def clear_expired(cls) -> None:
        """Delete the assertions that have expired."""
        UsedAssertion._default_manager.filter(expires__lt=timezone.now()).delete()


class ClientKeys(models.Model):
    """Public keys of a client's metadata document, by which the client proves who it is (RFC 7523, section 3).

    There is no foreign key to the application: the tables of django-oauth-toolkit can be swapped, or not be there.
    """

    client_id = models.CharField(max_length=255, primary_key=True)
    jwks_uri = models.CharField(max_length=2000, blank=True)
    public_key = models.TextField(blank=True, help_text="A JSON Web Key Set, where there is no URL of one.")

    def __str__(self) -> str:
        return self.client_id


def _new_client_id() -> str:
    return f"service-{secrets.token_hex(8)}"


def _in_a_year() -> datetime:
    return timezone.now() + timedelta(days=365)


class ServiceAccount(models.Model):
    """A service account, for a program without a person: its user, its limits, and how it proves its identity."""

    client_id = models.CharField(_("client id"), max_length=64, unique=True, default=_new_client_id, editable=False)
    name = models.CharField(_("name"), max_length=80)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", verbose_name=_("user")
    )
    scopes = models.JSONField(_("scopes"), default=list)
    endpoints = models.JSONField(_("endpoints"), default=list, blank=True)
    expires = models.DateTimeField(_("valid until"), default=_in_a_year)
    is_active = models.BooleanField(_("active"), default=True)
    secret = models.CharField(max_length=100, blank=True, editable=False, help_text="Its hash, empty without one.")
    public_key = models.TextField(_("public key"), blank=True)
    jwks_uri = models.CharField(_("URL of the public keys (JWKS)"), max_length=500, blank=True)
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = _("service account")
        verbose_name_plural = _("service accounts")

    def __str__(self) -> str:
        return self.name

    @classmethod
    def usable(cls) -> "models.QuerySet[ServiceAccount]":
        """Return the service accounts that are active and not expired."""
        return cls._default_manager.filter(is_active=True, expires__gt=timezone.now())


class LinkedIdentity(models.Model):
    """The link between a user of this site and an account at an identity provider."""

    issuer = models.CharField(_("identity provider"), max_length=255)
    subject = models.CharField(_("subject there"), max_length=255)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", verbose_name=_("user")
    )
    created = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        verbose_name = _("linked identity")
        verbose_name_plural = _("linked identities")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["issuer", "subject"], name="mcp_django_one_user_a_subject"),
            models.UniqueConstraint(fields=["issuer", "user"], name="mcp_django_one_subject_a_user"),
        ]

    def __str__(self) -> str:
        return f"{self.subject} ({self.issuer})"


class ConnectedApplication(TokenFacts):
    """Proxy model, without a table, that gives the admin its entry for the page of connected applications."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = _("application with access")
        verbose_name_plural = _("applications with access")


class ClientHost(models.Model):
    """An administrator's decision on a host, whose applications describe themselves by a document there."""

    class Decision(models.TextChoices):
        """Allowed, blocked, or waiting for a decision since somebody wanted to connect."""

        WAITING = "waiting", _("to be decided")
        ALLOWED = "allowed", _("allowed")
        BLOCKED = "blocked", _("blocked")

    host = models.CharField(
        _("host"), max_length=255, unique=True, help_text=_("Such as claude.ai; .example.com means all of a domain.")
    )
    decision = models.CharField(_("decision"), max_length=7, choices=Decision.choices, default=Decision.WAITING)
    url = models.CharField(_("application"), max_length=255, blank=True, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        verbose_name=_("user"),
        null=True,
        editable=False,
        on_delete=models.SET_NULL,
        related_name="+",
    )
    created = models.DateTimeField(_("created"), default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("host of applications")
        verbose_name_plural = _("hosts of applications")

    def __str__(self) -> str:
        return self.host


class CallEntry(models.Model):
    """One call of a client, allowed or refused, for the operators of the site.

    Users, clients and tokens keep the names that they had then: the log has no foreign keys, which would slow it down.
    """

    class Kind(models.TextChoices):
        """The kind of caller: a person's client, a program with a service account, or a local process."""

        PERSON = "person", _("person")
        SERVICE = "service", _("service")
        STDIO = "stdio", _("stdio")

    call_id = models.CharField(_("id"), max_length=32, unique=True)
    time = models.DateTimeField(_("time"), db_index=True)
    site = models.CharField(_("site"), max_length=100, blank=True)
    user = models.CharField(_("key of the user"), max_length=64, blank=True)
    username = models.CharField(_("user"), max_length=100, blank=True)
    kind = models.CharField(_("caller"), max_length=7, choices=Kind.choices, blank=True)
    client_id = models.CharField(_("client id"), max_length=255, blank=True)
    client_name = models.CharField(_("client"), max_length=100, blank=True)
    client_host = models.CharField(_("host of the client"), max_length=255, blank=True)
    token = models.CharField(_("token"), max_length=16, blank=True)
    session = models.CharField(_("session"), max_length=32, blank=True)
    version = models.CharField(_("protocol"), max_length=10, blank=True)
    method = models.CharField(_("method"), max_length=100, blank=True)
    tool = models.CharField(_("tool"), max_length=100, blank=True)
    model = models.CharField(_("model"), max_length=100, blank=True)
    action = models.CharField(_("action"), max_length=100, blank=True)
    # Of calls about one row alone.
    row_key = models.CharField(_("key of the row"), max_length=64, blank=True)
    writes = models.BooleanField(_("can change data"), default=False)
    rows_read = models.PositiveIntegerField(_("rows read"), default=0)
    rows_changed = models.PositiveIntegerField(_("rows changed"), default=0)
    size = models.PositiveIntegerField(_("bytes"), default=0)
    tokens = models.PositiveIntegerField(_("tokens sent (about)"), default=0)
    outcome = models.CharField(_("outcome"), max_length=40)
    detail = models.CharField(_("reason"), max_length=200, blank=True)
    error_id = models.CharField(_("error id"), max_length=32, blank=True)
    # Of calls that failed or were refused alone.
    cause = models.CharField(_("cause"), max_length=16, blank=True)
    release = models.CharField(_("version of the server"), max_length=40, blank=True)
    duration = models.FloatField(_("duration (ms)"), default=0)
    queries = models.PositiveIntegerField(_("queries"), default=0)
    query_time = models.FloatField(_("time of the queries (ms)"), default=0)
    # Null if this part of the time was not measured.
    waiting = models.FloatField(_("waiting for a thread (ms)"), null=True)
    token_check = models.FloatField(_("check of the token (ms)"), null=True)
    own_code = models.FloatField(_("functions of the project (ms)"), null=True)
    rendering = models.FloatField(_("writing the result (ms)"), null=True)
    trace = models.CharField(_("trace id"), max_length=32, blank=True)
    history = models.JSONField(_("history"), default=list)
    arguments = models.TextField(_("arguments"), blank=True)
    result = models.TextField(_("result"), blank=True)

    class Meta:
        verbose_name = _("call")
        verbose_name_plural = _("calls")
        default_permissions = ("view",)
        permissions: ClassVar = [("view_bodies", _("Can view captured arguments and results of calls"))]
        indexes: ClassVar = [
            models.Index(fields=[name, "time"], name=f"mcp_call_{name}"[:30])
            for name in ("user", "client_id", "client_name", "tool", "model", "outcome", "session", "token")
        ] + [
            PartialIndex(fields=[name], name=f"mcp_call_{name}", where=models.Q(**{f"{name}__gt": ""}))
            for name in ("error_id", "trace")
        ]
        indexes.append(PartialIndex(fields=["cause", "time"], name="mcp_call_cause", where=models.Q(cause__gt="")))
        indexes.append(PartialIndex(fields=["row_key", "time"], name="mcp_call_row", where=models.Q(row_key__gt="")))
        indexes.append(PartialIndex(fields=["writes", "time"], name="mcp_call_writes", where=models.Q(writes=True)))
        indexes.append(
            PartialIndex(fields=["time", "call_id"], name="mcp_call_sample", where=models.Q(call_id__lt="1"))
        )

    def __str__(self) -> str:
        return f"{self.method} {self.tool}".strip()


class Change(models.Model):
    """What one write of the app's own tools did, or one that waits for a person's yes; people say "change 42".

    Users, clients and tokens keep the keys and names that they had then: like the log of calls, it has no foreign keys.
    The binary columns are sealed texts, which only :mod:`mcp_django.differences.kept_changes` opens.
    """

    class State(models.TextChoices):
        """How a change stands: it waits for a yes, runs, has an end, or was taken back."""

        WAITING = "waiting"
        RUNNING = "running"
        DONE = "done"
        REFUSED = "refused"
        WITHDRAWN = "withdrawn"
        EXPIRED = "expired"
        FAILED = "failed"
        UNKNOWN = "unknown"
        UNDONE = "undone"

    id = models.BigAutoField(primary_key=True)
    state = models.CharField(max_length=9, choices=State.choices)
    time = models.DateTimeField(db_index=True, help_text="When it was done, or asked for.")
    decided = models.DateTimeField(null=True, help_text="When a person decided, or when it was taken back.")
    expires = models.DateTimeField(null=True, help_text="Until when it can be decided, or be taken back.")
    user = models.CharField(max_length=64, blank=True, help_text="Their primary key as text.")
    username = models.CharField(max_length=100, blank=True)
    client_id = models.CharField(max_length=255, blank=True)
    client_name = models.CharField(max_length=100, blank=True)
    token = models.CharField(max_length=64, blank=True, help_text="The SHA-256 of the access token.")
    session = models.CharField(max_length=32, blank=True, help_text="The conversation, as in the log of calls.")
    call = models.CharField(max_length=32, blank=True, help_text="The call, as in the log of calls.")
    site = models.CharField(max_length=100, blank=True)
    resource = models.CharField(max_length=255, blank=True, help_text="The URL of the endpoint.")
    tool = models.CharField(max_length=100, blank=True)
    model = models.CharField(max_length=200, blank=True, help_text="The label of the first row's model.")
    labels = models.TextField(blank=True, help_text="The labels of all models that the caller was shown.")
    rows = models.PositiveIntegerField(default=0)
    summary = models.CharField(max_length=160, blank=True, help_text="One sentence, of what the caller may see.")
    using = models.CharField(max_length=100, blank=True, help_text="The alias of the database with the rows.")
    cannot_undo = models.CharField(max_length=200, blank=True, help_text="Why it cannot be taken back.")
    undoes = models.ForeignKey(
        "self",
        null=True,
        db_index=False,
        db_constraint=False,
        on_delete=models.DO_NOTHING,
        related_name="+",
        help_text="The change that this one took back; it may be deleted by now.",
    )
    digest = models.CharField(max_length=64, blank=True, help_text="The digest of the call, for its repetitions.")
    by = models.CharField(max_length=100, blank=True, help_text="Who decided.")
    outcome = models.CharField(max_length=200, blank=True, help_text="How it ended, in words.")
    shown = models.BinaryField(default=b"", help_text="The difference as the caller may see it.")
    footprint = models.BinaryField(default=b"", help_text="The rows before and after, to take it back.")
    kept = models.BinaryField(default=b"", help_text="The call that waits, with all that it needs to run.")
    result = models.BinaryField(default=b"", help_text="The result, for repetitions of the call.")

    class Meta:
        default_permissions = ("view",)
        permissions: ClassVar = [("undo_change", "Can take back changes of others")]
        indexes: ClassVar = [
            models.Index(fields=["user", "time"], name="mcp_change_user"),
            models.Index(fields=["client_id", "time"], name="mcp_change_client_id"),
            PartialIndex(fields=["call"], name="mcp_change_call", where=models.Q(call__gt="")),
            PartialIndex(fields=["digest", "state"], name="mcp_change_digest", where=models.Q(digest__gt="")),
            PartialIndex(fields=["expires"], name="mcp_change_expires", where=models.Q(state="waiting")),
        ]

    def __str__(self) -> str:
        return f"change {self.pk}"


class Task(models.Model):
    """A call that goes on without its request: until it has ended, and from then on with its result.

    Times are milliseconds since 1970 by the clock of the database, so that hosts whose clocks differ agree on them.
    Like the log of calls, it has no foreign keys. The binary columns are sealed texts, which only
    :mod:`mcp_django.tasks.stored_tasks` opens.
    """

    class State(models.TextChoices):
        """The state of a task, as the protocol names it."""

        WORKING = "working", _("working")
        INPUT_REQUIRED = "input_required", _("waits for an answer")
        COMPLETED = "completed", _("completed")
        FAILED = "failed", _("failed")
        CANCELLED = "cancelled", _("cancelled")

    id = models.CharField(max_length=32, primary_key=True, help_text="128 random bits, in hexadecimal.")
    state = models.CharField(_("state"), max_length=14, choices=State.choices, default=State.WORKING)
    created = models.BigIntegerField(_("created"), db_index=True)
    updated = models.BigIntegerField(help_text="When its state or progress last changed.")
    ended = models.BigIntegerField(null=True)
    expires = models.BigIntegerField(db_index=True, help_text="Until when its result can be read.")
    handed = models.BigIntegerField(help_text="When its id was last given to the engine.")
    began = models.BigIntegerField(null=True, help_text="When a worker last took it.")
    lease = models.BigIntegerField(null=True, help_text="Until when its worker has it; null while no worker does.")
    attempt = models.PositiveIntegerField(default=0, help_text="How often a worker has taken it.")
    lapses = models.PositiveIntegerField(default=0, help_text="How often a worker was lost that had it.")
    timeout = models.FloatField(help_text="Seconds that one run may take.")
    atomic = models.BooleanField(default=False, help_text="Its work is one transaction, with the end of the task.")
    idempotent = models.BooleanField(default=False, help_text="Its author says that it can be done twice.")
    message = models.CharField(_("progress"), max_length=200, blank=True, help_text="In the words of its author.")
    progress = models.FloatField(null=True)
    total = models.FloatField(null=True)
    outcome = models.CharField(_("reason"), max_length=200, blank=True, help_text="Why it failed or was cancelled.")
    user = models.CharField(max_length=64, blank=True, help_text="Their primary key as text.")
    username = models.CharField(_("user"), max_length=100, blank=True)
    client_id = models.CharField(max_length=255, blank=True)
    client_name = models.CharField(_("client"), max_length=100, blank=True)
    site = models.CharField(max_length=100, blank=True)
    resource = models.CharField(max_length=255, blank=True, help_text="The URL of the endpoint.")
    tool = models.CharField(_("tool"), max_length=100)
    model = models.CharField(_("model"), max_length=100, blank=True)
    action = models.CharField(_("action"), max_length=100, blank=True)
    call = models.CharField(max_length=32, help_text="The call that became it, as in the log of calls.")
    run = models.CharField(max_length=32, blank=True, help_text="Its last run, as in the log of calls.")
    key = models.CharField(max_length=64, null=True, unique=True, help_text="The digest of its idempotency key.")
    arguments = models.CharField(max_length=64, blank=True, help_text="The digest of its arguments.")
    kept = models.BinaryField(default=b"", help_text="The call, with all that it needs to run.")
    asked = models.BinaryField(default=b"", help_text="What it asked, and the answers.")
    result = models.BinaryField(default=b"", help_text="Its result, or its error.")

    class Meta:
        verbose_name = _("task")
        verbose_name_plural = _("tasks")
        default_permissions = ("view", "change")
        indexes: ClassVar = [
            models.Index(fields=["user", "state"], name="mcp_task_user"),
            models.Index(fields=["state", "ended"], name="mcp_task_state"),
        ]

    def __str__(self) -> str:
        return f"{self.tool} {self.id[:6]}…"


class ApprovalRule(models.Model):
    """A rule on calls that change something: they wait for the yes of another person, or are refused.

    A list that is empty, and a number or condition that is not there, leaves the rule open for all. A rule only ever
    tightens what code declares (:class:`~mcp_django.exposures.declared_approvals.Approval`).
    """

    class Effect(models.TextChoices):
        """What becomes of a call to which the rule applies."""

        REQUIRE = "require", _("require approval")
        BLOCK = "block", _("block")

    class Kind(models.TextChoices):
        """What a call does to rows, or how it is made."""

        CREATE = "create", _("add rows")
        UPDATE = "update", _("change rows")
        DELETE = "delete", _("delete rows")
        ACTION = "action", _("run an action")
        TOOL = "tool", _("call a tool of the project")

    name = models.CharField(_("name"), max_length=80, unique=True, help_text=_("Callers are told it."))
    is_active = models.BooleanField(_("active"), default=True)
    effect = models.CharField(_("effect"), max_length=7, choices=Effect.choices, default=Effect.REQUIRE)
    labels = models.JSONField(_("models"), default=list, blank=True, help_text=_("Such as shop.order."))
    kinds = models.JSONField(_("kinds of calls"), default=list, blank=True)
    tools = models.JSONField(_("tools"), default=list, blank=True, help_text=_("Names, as clients know them."))
    actions = models.JSONField(_("actions"), default=list, blank=True, help_text=_("Such as shop.order.refund."))
    condition = models.JSONField(
        _("condition"),
        default=dict,
        blank=True,
        help_text=_("On rows before or after the call, or on its arguments, as in filters of query_records."),
    )
    rows_above = models.PositiveIntegerField(_("only above this number of rows"), null=True, blank=True)
    users = models.ManyToManyField(
        settings.AUTH_USER_MODEL, blank=True, related_name="+", verbose_name=_("calls of these users")
    )
    groups = models.ManyToManyField("auth.Group", blank=True, related_name="+", verbose_name=_("calls of these groups"))
    clients = models.JSONField(_("calls by these clients"), default=list, blank=True, help_text=_("Client ids."))
    service_accounts = models.ManyToManyField(
        ServiceAccount, blank=True, related_name="+", verbose_name=_("calls of these service accounts")
    )
    permission = models.CharField(
        _("permission to decide"), max_length=255, blank=True, help_text=_("Such as shop.approve_refund.")
    )
    group = models.ForeignKey(
        "auth.Group",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
        verbose_name=_("group that decides"),
    )
    hours = models.PositiveIntegerField(_("open for so many hours"), default=72)

    class Meta:
        verbose_name = _("approval rule")
        verbose_name_plural = _("approval rules")

    def __str__(self) -> str:
        return self.name


class ApprovalRequest(models.Model):
    """What a change needs that waits for the yes of another person, beside its own row; people say "request 42"."""

    change = models.OneToOneField(
        Change, primary_key=True, db_constraint=False, on_delete=models.CASCADE, related_name="approval"
    )
    asked = models.DateTimeField(default=timezone.now, help_text="When it was asked for.")
    rule_name = models.CharField(max_length=80)
    permission = models.CharField(max_length=255, blank=True, help_text="Who may decide: those with it.")
    group = models.ForeignKey("auth.Group", null=True, on_delete=models.SET_NULL, related_name="+")
    reads = models.JSONField(default=dict, help_text="The columns that the conditions read, by label of the model.")
    rows = models.JSONField(default=dict, help_text="The keys of the rows that the call touches, by label.")
    reason = models.CharField(max_length=500, blank=True, help_text="Why, in the words of the model: untrusted.")
    word = models.CharField(max_length=500, blank=True, help_text="The word of whoever said no.")
    decider = models.CharField(max_length=64, blank=True, help_text="The key of the user who decided.")

    class Meta:
        verbose_name = _("request for approval")
        verbose_name_plural = _("requests for approval")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"request {self.change_id}"


class Switch(models.Model):
    """What is off for callers, from when to when, and the reason that they are told.

    For a user, a client or a service account, ``target`` is the key, and ``name`` the name when the switch was set.
    """

    class Kind(models.TextChoices):
        """What a switch turns off."""

        EVERYTHING = "everything", _("everything")
        WRITES = "writes", _("changes")
        TOOL = "tool", _("tool")
        MODEL = "model", _("model")
        ACTION = "action", _("action")
        CLIENT = "client", _("client")
        USER = "user", _("user")
        SERVICE = "service", _("service account")

    kind = models.CharField(_("what"), max_length=10, choices=Kind.choices)
    target = models.CharField(_("which"), max_length=255, blank=True)
    name = models.CharField(_("name"), max_length=100, blank=True)
    reason = models.CharField(_("reason, which callers are told"), max_length=200, blank=True)
    by = models.CharField(_("by"), max_length=100, blank=True)
    begins = models.DateTimeField(_("from"), default=timezone.now)
    until = models.DateTimeField(_("until"), null=True, blank=True)
    ended = models.DateTimeField(_("ended"), null=True, blank=True)
    ended_by = models.CharField(_("ended by"), max_length=100, blank=True)

    class Meta:
        verbose_name = _("switch")
        verbose_name_plural = _("switches")
        default_permissions = ("view", "change")
        indexes: ClassVar = [models.Index(fields=["ended", "until"], name="mcp_switch_active")]

    def __str__(self) -> str:
        return f"{self.Kind(self.kind).label} {self.name or self.target}".strip()

    @classmethod
    def active(cls) -> "models.QuerySet[Switch]":
        """Return the switches that are in force now or will be."""
        return Switch._default_manager.filter(models.Q(until=None) | models.Q(until__gt=timezone.now()), ended=None)

    @property
    def text(self) -> str:
        """The message to a caller whose call the switch refuses."""
        until = f" until {self.until.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if self.until is not None else ""
        reason = f" Reason given: {self.reason}" if self.reason else ""
        return f"{SUBJECTS[self.kind].format(self.target)} is switched off{until}.{reason}"

    def refusal(self) -> CallRefused:
        """Return the exception that refuses a call because of this switch."""
        return CallRefused(self.text, "switch")


# Subject of the message to callers, by kind of switch.
SUBJECTS: Final[Mapping[str, str]] = {
    "everything": "The server",
    "writes": "Changing data",
    "tool": "The tool {}",
    "model": "The model {}",
    "action": "The action {}",
    "client": "This client",
    "user": "This account",
    "service": "This service account",
}


class Export(models.Model):
    """A question's rows as a file, which its user can fetch until it expires.

    Like the log of calls, it has no foreign keys. The file lies in ``STORAGES["mcp_exports"]``. The row is there before
    the file, so that a file whose worker was killed is found by its row. Only
    :mod:`mcp_django.exports.kept_exports` opens the question.
    """

    id = models.CharField(max_length=32, primary_key=True, help_text="128 random bits, in hexadecimal.")
    created = models.DateTimeField(_("created"))
    expires = models.DateTimeField(db_index=True, help_text="Until when the file can be fetched.")
    user = models.CharField(max_length=64, help_text="Their primary key as text.")
    username = models.CharField(_("user"), max_length=100, blank=True)
    client_id = models.CharField(max_length=255, blank=True)
    client_name = models.CharField(_("client"), max_length=100, blank=True)
    site = models.CharField(max_length=100, blank=True)
    resource = models.CharField(max_length=255, blank=True, help_text="The URL of the endpoint.")
    model = models.CharField(_("model"), max_length=200, help_text="Its label.")
    call = models.CharField(max_length=32, blank=True, help_text="The call, as in the log of calls.")
    format = models.CharField(max_length=10)
    name = models.CharField(_("file"), max_length=255)
    rows = models.PositiveIntegerField(_("rows"), default=0)
    size = models.BigIntegerField(_("bytes"), null=True, help_text="Null until the file is finished.")
    stored = models.CharField(max_length=255, help_text="The name of the file in its storage.")
    question = models.BinaryField(default=b"", help_text="The arguments, sealed: they are read again for each fetch.")

    class Meta:
        verbose_name = _("export")
        verbose_name_plural = _("exports")
        default_permissions = ()
        indexes: ClassVar = [models.Index(fields=["user", "created"], name="mcp_export_user")]

    def __str__(self) -> str:
        return f"{self.name} {self.id[:6]}…"
