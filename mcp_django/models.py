"""The server's memory between requests: sessions of the handshake era, the streams of their calls, and results.

Nothing of it is authority: every request is checked by its own token, and a session belongs to one user. Rows are
written by whichever worker has something to say and read by whichever worker the client is connected to. What is known
of a token beside what django-oauth-toolkit stores can take authority away, and never gives any that the user lacks.
"""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _


class Session(models.Model):
    """A session that has something to remember, or that has ended before its id did (basic/transports, Sessions)."""

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
    """The event stream of one call, which goes on whether or not its client is connected."""

    class State(models.TextChoices):
        """Whether a worker runs the call, the client has to answer a question first, or it is over."""

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
    """One JSON-RPC message of a stream."""

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
    """A call that a client made under a key of its own, so that it can be repeated without being done again."""

    id = models.CharField(
        max_length=64, primary_key=True, help_text="The digest of user, client, endpoint, tool and key."
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, editable=False, on_delete=models.CASCADE, related_name="+"
    )
    tool = models.CharField(max_length=64)
    arguments = models.CharField(max_length=64, help_text="Their digest.")
    authority = models.CharField(max_length=64, blank=True, help_text="The digest of what the caller could do.")
    result = models.TextField(blank=True, help_text="The result as JSON; empty while nobody knows of one.")
    created = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.tool} {self.id[:6]}…"


class TokenFacts(models.Model):
    """What is known of an access token, or of a code before it becomes one, beside what its own row holds.

    There is no foreign key to the token: the tables of django-oauth-toolkit can be swapped, or not be there at all.
    """

    token = models.CharField(max_length=64, primary_key=True, help_text="The SHA-256 of the token or the code.")
    family = models.UUIDField(null=True, db_index=True, help_text="The family of the refresh token, None without one.")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, editable=False, on_delete=models.CASCADE, related_name="+")
    facts = models.JSONField(default=dict, help_text="What was so when the user agreed, by name.")
    created = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.token[:6]}…"


class ConnectedApplication(TokenFacts):
    """A name in the admin for the page of the applications that have access; nothing is read or written through it."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = _("application with access")
        verbose_name_plural = _("applications with access")
