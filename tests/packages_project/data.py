"""Rows of every model that a package or `shelf` registers with the admin, and the secrets that are in them."""

import io
from datetime import UTC, datetime
from typing import Any

import reversion
from allauth.account.models import EmailAddress, EmailConfirmation
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from allauth.usersessions.models import UserSession
from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.apps import apps
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.contrib.flatpages.models import FlatPage
from django.contrib.redirects.models import Redirect
from django.contrib.sites.models import Site
from django.core.files.base import ContentFile
from django_otp.plugins.otp_email.models import EmailDevice
from django_otp.plugins.otp_hotp.models import HOTPDevice
from django_otp.plugins.otp_static.models import StaticDevice
from django_otp.plugins.otp_totp.models import TOTPDevice
from filer.models import Clipboard, File, Folder, FolderPermission, Image, ThumbnailOption
from guardian.shortcuts import assign_perm
from PIL import Image as Picture
from taggit.models import Tag
from waffle.models import Flag, Sample, Switch

from tests.packages_project.shelf.models import (
    Article,
    Disc,
    Genre,
    Loan,
    Map,
    News,
    Note,
    Novel,
    Parcel,
    Place,
    Preferences,
    Step,
)

MOMENT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
# None of these may ever be told to a client.
SECRETS = {
    name: f"canary{number:02}deadbeefcafe"
    for number, name in enumerate(
        (
            "password",
            "confirmation key",
            "app secret",
            "app key",
            "app certificate",
            "social token",
            "social token secret",
            "second factor",
            "session key",
            "session hash",
            "static token",
            "email token",
            "API key",
        )
    )
}
# Keys of devices are hexadecimal.
SECRETS |= {
    "totp key": "0123456789abcdef0123456789abcdef01234567",
    "hotp key": "fedcba9876543210fedcba9876543210fedcba98",
}


def make_rows(owner: User) -> None:
    """Make two rows or more of each model; `owner` has what belongs to a user."""
    User.objects.filter(pk=owner.pk).update(password=SECRETS["password"])
    make_accounts(owner)
    make_devices(owner)
    make_attempts(owner)
    make_files(owner)
    make_site()
    make_shelf(owner)
    if apps.is_installed("django_celery_beat"):
        make_schedules()


def make_accounts(owner: User) -> None:
    for number in range(2):
        address = EmailAddress.objects.create(user=owner, email=f"owner{number}@example.com", primary=not number)
        EmailConfirmation.objects.create(
            email_address=address, sent=MOMENT, key=f"{SECRETS['confirmation key']}{number}"
        )
    app = SocialApp.objects.create(
        provider="github",
        name="GitHub",
        client_id="client",
        secret=SECRETS["app secret"],
        key=SECRETS["app key"],
        settings={"certificate_key": SECRETS["app certificate"], "scope": ["user"]},
    )
    app.sites.add(Site.objects.get_current())
    for number in range(2):
        account = SocialAccount.objects.create(
            user=owner, provider="github", uid=f"uid-{number}", extra_data={"login": f"octocat{number}", "stars": 3}
        )
        SocialToken.objects.create(
            app=app, account=account, token=SECRETS["social token"], token_secret=SECRETS["social token secret"]
        )
    for kind in ("totp", "recovery_codes"):
        data = {"secret": SECRETS["second factor"], "used_mask": 0}
        Authenticator.objects.create(user=owner, type=kind, data=data, last_used_at=MOMENT)
    UserSession.objects.create(
        user=owner, ip="192.0.2.7", session_key=SECRETS["session key"], user_agent="Firefox", data={"visits": 2}
    )


def make_devices(owner: User) -> None:
    EmailDevice.objects.create(user=owner, name="mail", email="owner@example.com", token=SECRETS["email token"][:16])
    HOTPDevice.objects.create(user=owner, name="hotp", key=SECRETS["hotp key"])
    TOTPDevice.objects.create(user=owner, name="totp", key=SECRETS["totp key"])
    static = StaticDevice.objects.create(user=owner, name="static")
    static.token_set.create(token=SECRETS["static token"][:16])


def make_attempts(owner: User) -> None:
    who = {"user_agent": "Firefox", "ip_address": "192.0.2.7", "username": owner.username, "path_info": "/admin/"}
    AccessAttempt.objects.create(**who, get_data="", post_data="username=x", failures_since_start=2)
    AccessFailureLog.objects.create(**who, locked_out=True)
    AccessLog.objects.create(**who, logout_time=MOMENT, session_hash=SECRETS["session hash"])


def make_files(owner: User) -> None:
    folder = Folder.objects.create(name="Papers", owner=owner)
    Folder.objects.create(name="Inner", parent=folder, owner=owner)
    FolderPermission.objects.create(folder=folder, type=FolderPermission.CHILDREN, everybody=True, can_read=1)
    File.objects.create(
        owner=owner, folder=folder, original_filename="a.txt", file=ContentFile(b"text", "a.txt"), is_public=True
    )
    pixels = io.BytesIO()
    Picture.new("RGB", (4, 4), "red").save(pixels, "PNG")
    Image.objects.create(
        owner=owner,
        folder=folder,
        original_filename="b.png",
        file=ContentFile(pixels.getvalue(), "b.png"),
        is_public=True,
        date_taken=MOMENT,
    )
    Clipboard.objects.create(user=owner)
    ThumbnailOption.objects.create(name="small", width=10, height=10)


def make_site() -> None:
    site = Site.objects.get_current()
    page = FlatPage.objects.create(url="/about/", title="About", content="<b>us</b>")
    page.sites.add(site)
    Redirect.objects.create(site=site, old_path="/old/", new_path="/new/")
    Flag.objects.create(name="beta", everyone=None, percent="12.5", note="note")
    Sample.objects.create(name="sample", percent="50.0")
    Switch.objects.create(name="switch", active=True)


def make_shelf(owner: User) -> None:
    crime = Genre.objects.create(name="Crime")
    Genre.objects.create(name="Noir", parent=crime)
    world = Place.objects.add_root({"name": "World"})
    berlin = Place.objects.add_child(world, {"name": "Berlin"})
    for number in range(3):
        novel = Novel.objects.create(
            title=f"Novel {number}",
            genre=crime,
            place=berlin,
            cover=Image.objects.get(),
            text=File.objects.non_polymorphic().first() if number else None,
            pages=100 + number,
        )
        novel.tags.add("red", f"tag {number}")
        Loan.objects.create(novel=novel, days=number)
    for number in range(2):
        with reversion.create_revision():
            Note.objects.create(title=f"Note {number}", body="text")
        parcel = Parcel.objects.create(name=f"Parcel {number}")
        Step.objects.create(name=f"Step {number}", position=number)
        News.objects.create(title_en=f"News {number}", title_de=f"Neues {number}", body_en="text")
        article = Article.objects.language("en").create(slug=f"article-{number}", title=f"Article {number}")
        article.set_current_language("de")
        article.title = f"Artikel {number}"
        article.save()
    assign_perm("shelf.view_parcel", owner, parcel)
    Disc.objects.create(name="Disc", tracks=9)
    Map.objects.create(name="Map", scale=5000)
    Preferences.objects.create(greeting="Hi", api_key=SECRETS["API key"])
    Tag.objects.create(name="unused", slug="unused")


def make_schedules() -> None:
    from django_celery_beat import models

    interval = models.IntervalSchedule.objects.create(every=5, period="minutes")
    crontab = models.CrontabSchedule.objects.create(minute="5", hour="4")
    models.SolarSchedule.objects.create(event="sunrise", latitude="52.5", longitude="13.4")
    models.ClockedSchedule.objects.create(clocked_time=MOMENT)
    models.PeriodicTask.objects.create(name="often", task="shop.tidy", interval=interval, kwargs='{"a": 1}')
    models.PeriodicTask.objects.create(name="daily", task="shop.report", crontab=crontab)


def content_type_of(model: Any) -> ContentType:
    return ContentType.objects.get_for_model(model)
