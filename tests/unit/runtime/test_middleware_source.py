"""What middleware sets and keeps, in each way that people write it; and the admin's reading of it."""

import threading
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps

import pytest
from django.contrib import admin
from django.utils.deprecation import MiddlewareMixin

from mcp_django.runtime.middleware_source import missing_attribute, traits_of, traits_of_name
from tests.factories import make_user

# One thread-local for all of the module, as the classes of a project share it.
_local = threading.local()
_current = ContextVar("_current", default=None)
_by_thread = {}
NAME = "user"


class Base:
    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        self.before(request)
        return self.get_response(request)

    def before(self, request):
        pass


def set_actor(value):
    _local.value = value


@contextmanager
def acting(person):
    token = _current.set(person)
    yield
    _current.reset(token)


def logged(function):
    @wraps(function)
    def inner(*args):
        return function(*args)

    return inner


# Those that keep the caller


class KeepsUser(Base):
    def before(self, request):
        _local.user = request.user


class KeepsAlias(Base):
    def before(self, req):
        pass

    def __call__(self, req):
        who = req.user
        _local.x = who
        return self.get_response(req)


class KeepsBySetattr(Base):
    def before(self, request):
        setattr(_local, NAME, request.user)


class KeepsByHelper(Base):
    def before(self, request):
        set_actor(request.user)


class KeepsByContext(Base):
    def __call__(self, request):
        with acting(request.user):
            return self.get_response(request)


class KeepsByThread(Base):
    def before(self, request):
        _by_thread[threading.get_ident()] = request


class KeepsDecorated(MiddlewareMixin):
    @logged
    def process_request(self, request):
        _local.r = request


class KeepsInherited(KeepsUser):
    pass


def keeps_in_function(get_response):
    def middleware(r):
        _current.set(r.user)
        return get_response(r)

    return middleware


# Their neighbours in the module, which do not


class KeepsNumber(Base):
    def before(self, request):
        _local.number = request.headers.get("X-Number")


class SetsHeader(Base):
    def before(self, request):
        request.META["X-Seen"] = "1"


class ReadsUser(Base):
    def before(self, request):
        if request.user.is_authenticated:
            request.is_known = True


def plain(get_response):
    return lambda request: get_response(request)


KEEP = [
    KeepsUser,
    KeepsAlias,
    KeepsBySetattr,
    KeepsByHelper,
    KeepsByContext,
    KeepsByThread,
    KeepsDecorated,
    KeepsInherited,
    keeps_in_function,
]


@pytest.mark.parametrize("item", KEEP, ids=lambda item: item.__name__)
def test_middleware_that_keeps_the_caller_is_known_however_it_is_written(item):
    assert traits_of(item).keeps_caller


@pytest.mark.parametrize("item", [KeepsNumber, SetsHeader, ReadsUser, plain, Base], ids=lambda item: item.__name__)
def test_its_neighbours_in_the_module_are_not_taken_for_it(item):
    assert not traits_of(item).keeps_caller


# What is set


class SetsPlain(Base):
    def before(self, request):
        request.user.team = 1


class SetsByAlias(Base):
    def before(self, request):
        user = request.user
        user.team = 1


class SetsBySetattr(Base):
    def before(self, request):
        setattr(request.user, "team", 1)  # noqa: B010


def add_team(person):
    person.team = 1


class SetsByHelper(Base):
    def before(self, request):
        add_team(request.user)


class SetsByKeyword(Base):
    def before(self, request):
        add_team(person=request.user)


class SetsByProcessView(MiddlewareMixin):
    def process_view(self, r, view, args, kwargs):
        r.user.team = 1


def sets_in_function(get_response):
    def middleware(r):
        r.user.team = 1
        return get_response(r)

    return middleware


SET = [SetsPlain, SetsByAlias, SetsBySetattr, SetsByHelper, SetsByKeyword, SetsByProcessView, sets_in_function]


@pytest.mark.parametrize("item", SET, ids=lambda item: item.__name__)
def test_what_middleware_sets_on_the_user_is_known_however_it_is_written(item):
    traits = traits_of(item)
    assert traits.sets == {"request.user.team"}
    assert not traits.keeps_caller


def test_djangos_own_middleware_sets_attributes_and_keeps_nobody():
    sets = {
        "django.middleware.locale.LocaleMiddleware": {"request.LANGUAGE_CODE"},
        "django.contrib.sites.middleware.CurrentSiteMiddleware": {"request.site"},
        "django.contrib.sessions.middleware.SessionMiddleware": set(),
        "django.contrib.auth.middleware.AuthenticationMiddleware": set(),
        "django.contrib.messages.middleware.MessageMiddleware": set(),
    }
    for name, expected in sets.items():
        traits = traits_of_name(name)
        assert (traits.sets, traits.keeps_caller) == (expected, False), name


# What the admin reads


def team_of(person):
    return getattr(person, "team", None)


class Plain(admin.ModelAdmin):
    def get_queryset(self, request):
        return super().get_queryset(request).filter(team=request.user.team)


class ByAlias(admin.ModelAdmin):
    def has_view_permission(self, request, obj=None):
        user = request.user
        return user.team is not None


class ByGetattr(admin.ModelAdmin):
    def get_queryset(self, request):
        return super().get_queryset(request).filter(team=getattr(request.user, "team", None))


class ByHelper(admin.ModelAdmin):
    def get_queryset(self, request):
        return super().get_queryset(request).filter(team=team_of(request.user))


@pytest.mark.parametrize("item", [Plain, ByAlias, ByGetattr, ByHelper], ids=lambda item: item.__name__)
def test_what_an_admin_reads_of_the_user_is_known_however_it_is_written(item):
    assert "request.user.team" in traits_of(item).reads


# What an error says


@pytest.mark.django_db
def test_only_an_attribute_of_the_request_or_its_user_is_told(rf):
    user = make_user("ada")
    for owner, path in ((user, "request.user.team"), (rf.get("/"), "request.team")):
        with pytest.raises(AttributeError) as error:
            _ = owner.team
        assert f"it reads `{path}`, which calls do not have" in missing_attribute(error.value)
    with pytest.raises(AttributeError) as error:
        _ = object().team
    assert missing_attribute(error.value) == missing_attribute(ValueError("team")) == ""
