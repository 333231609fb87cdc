"""Names of django-oauth-toolkit that move in its 4.0."""

try:
    from oauth2_provider.authorization_server.views.base import AuthorizationView, RevokeTokenView, TokenView
    from oauth2_provider.authorization_server.views.token import AuthorizedTokenDeleteView, AuthorizedTokensListView
except ImportError:
    from oauth2_provider.views.base import AuthorizationView, RevokeTokenView, TokenView
    from oauth2_provider.views.token import AuthorizedTokenDeleteView, AuthorizedTokensListView

__all__ = ["AuthorizationView", "AuthorizedTokenDeleteView", "AuthorizedTokensListView", "RevokeTokenView", "TokenView"]
