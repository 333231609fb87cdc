from django.contrib import admin, messages

from .models import Deal, Invoice, Note, Straße, Team, Visit

admin.site.register([Team, Straße])


@admin.register(Deal)
class DealAdmin(admin.ModelAdmin):
    list_display = ["name", "team"]

    def get_queryset(self, request):
        rows = super().get_queryset(request)
        return rows.filter(team_id=request.user.team_id)


@admin.register(Note)
class NoteAdmin(admin.ModelAdmin):
    list_display = ["text", "kind"]

    def get_queryset(self, request):
        rows = super().get_queryset(request)
        only = request.session.get("only")
        return rows.filter(kind=only) if only else rows


@admin.register(Invoice)
class InvoiceAdmin(admin.ModelAdmin):
    list_display = ["amount"]

    def get_fields(self, request, obj=None):
        return ["deal", "amount", "cost"] if request.department == "finance" else ["deal", "amount"]


@admin.register(Visit)
class VisitAdmin(admin.ModelAdmin):
    list_display = ["seen"]

    def get_queryset(self, request):
        request.session["shown"] = request.session.get("shown", 0) + 1
        messages.info(request, "These are all visits.")
        return super().get_queryset(request).filter(seen__lt=request.session["shown"])
