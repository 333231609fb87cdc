"""What holds accounts is exposed only where a project registers it: here all that the packages have in the admin."""

from django.contrib import admin
from django.db.models.base import ModelBase

import mcp_django
from mcp_django.schema.secrets import is_account
from mcp_django.sites import CLOSED_APPS

for model in admin.site._registry:
    # One of the packages registers a page of settings as if it were a model.
    if isinstance(model, ModelBase) and is_account(model) and model._meta.app_label not in CLOSED_APPS:
        mcp_django.site.register(model)
