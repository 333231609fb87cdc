"""Middleware as projects write it: each reads the session, and leaves something for the admin."""

from django.contrib import messages

from .models import Team


class RoleMiddleware:
    """Puts the team that a person has chosen, or their own, on the user."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        if request.user.is_authenticated:
            self.assign(request, request.session.get("team"))
        return self.get_response(request)

    def assign(self, request, chosen):
        user = request.user
        user.team_id = chosen or user.home_id
        if chosen:
            messages.info(request, "You see another team.")


def department(get_response):
    """Puts the department on the request."""

    def middleware(request):
        request.department = "finance" if request.user.is_superuser else request.session.get("department")
        request.session["visits"] = request.session.get("visits", 0) + 1
        messages.info(request, "Welcome.")
        return get_response(request)

    return middleware


class Breaking:
    """Fails before each call."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        raise KeyError("tenant")


class BreakingLate(Breaking):
    """Fails after a call that has made a team."""

    def __call__(self, request):
        before = Team.objects.count()
        response = self.get_response(request)
        if Team.objects.count() > before:
            raise KeyError("tenant")
        return response
