from django.conf import settings
from django.urls import include, path

from example_project.urls import urlpatterns as example

# Of these packages one has pages of its own.
own = [path("grappelli/", include("grappelli.urls"))] if settings.THEME == "grappelli" else []
urlpatterns = [*own, *example]
