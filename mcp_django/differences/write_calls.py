"""One call that writes: its write is prepared, confirmed where it asks, and performed, in one transaction."""

from ..context.confirmation import Confirmation
from ..context.tool_results import ToolResult
from ..orm.database_writes import one_transaction
from ..orm.tool_arguments import Arguments
from .writes import Write


class WriteCall:
    """The call of a tool that makes a write."""

    def __init__(self, write: Write, arguments: Arguments) -> None:
        self.write = write
        self.arguments = arguments
        self.request = write.request

    def run(self) -> ToolResult:
        """Make the write, or ask first; return its result or the preview."""
        write = self.write
        with write.refusals(), one_transaction(write.exposure.model, self.request):
            write.prepare()
            if write.asks and (asked := self._asked()):
                return asked
            return ToolResult(structured=write.perform())

    def _asked(self) -> ToolResult | None:
        write = self.write
        confirmation = Confirmation(self.request, write.tool, write.bound, write.affected)
        token = self.arguments.get("confirm_token")
        return confirmation.confirm(token, write.message, write.question, write.shown, again=write.asks_again)
