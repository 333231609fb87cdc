"""Values that a client may offer for an argument of a prompt or resource template (server/utilities/completion).

They come from what the caller may view and nothing else: what is hidden is answered like what does not exist.
"""

from .arguments import Completer, Hook
from .base import Completion

__all__ = ["Completer", "Completion", "Hook"]
