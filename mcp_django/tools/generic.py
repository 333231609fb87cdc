"""The tools of the app itself: the same for every project and every number of models."""

from enum import Enum

from .action_tools import RunAction
from .aggregate_records import AggregateRecords
from .base import Tool
from .chatgpt import Fetch, Search
from .connection_info import ConnectionInfo
from .create_upload import CreateUpload
from .describe_model import DescribeModel
from .export_records import ExportRecords
from .get_record import GetRecord
from .get_task import GetTask
from .list_models import ListModels
from .query_records import QueryRecords
from .undo_change import UndoChange
from .write_tools import CreateRecord, DeleteRecord, UpdateRecord, WriteRecords


class ToolSet(Enum):
    """The classes of the app's own tools, by when a site offers them."""

    # They exist whatever the project registers.
    GENERIC = (
        ListModels,
        DescribeModel,
        QueryRecords,
        GetRecord,
        AggregateRecords,
        CreateRecord,
        UpdateRecord,
        DeleteRecord,
        WriteRecords,
        UndoChange,
        RunAction,
    )
    # It is offered only with a storage for uploads.
    UPLOADS = (CreateUpload,)
    # It is offered only with a storage for exports.
    EXPORTS = (ExportRecords,)
    # They are offered only when they are useful, and a project's tool of the same name replaces them.
    MODEST = (ConnectionInfo, GetTask)
    # They are those that ChatGPT asks for, on sites that want them.
    CHATGPT = (Search, Fetch)

    def new(self) -> dict[str, Tool]:
        """Return a new tool of each class, by name."""
        return {kind.name: kind() for kind in self.value}
