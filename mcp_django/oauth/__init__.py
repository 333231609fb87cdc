"""OAuth 2.1 for the endpoint: the authorization server (on django-oauth-toolkit) and the check of its tokens."""

from .toolkit_settings import provider_settings

__all__ = ["provider_settings"]
