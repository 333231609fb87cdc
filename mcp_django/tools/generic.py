"""The generic tools: the same for every project and every number of models."""

from .action_tools import RunAction
from .aggregate_records import AggregateRecords
from .base import Tool
from .connection_info import ConnectionInfo
from .create_upload import CreateUpload
from .get_record import GetRecord
from .list_and_describe_models import DescribeModel, ListModels
from .query_records import QueryRecords
from .write_tools import CreateRecord, DeleteRecord, UpdateRecord

GENERIC_TOOLS: tuple[type[Tool], ...] = (
    ListModels,
    DescribeModel,
    QueryRecords,
    GetRecord,
    AggregateRecords,
    CreateRecord,
    UpdateRecord,
    DeleteRecord,
    RunAction,
)
# Tools that exist whatever the project registers. The last one is offered only with a storage for uploads.
OWN_TOOLS: tuple[type[Tool], ...] = (*GENERIC_TOOLS, CreateUpload)
# Tools that are offered only when they are useful, and that a project's tool of the same name replaces.
MODEST_TOOLS: tuple[type[Tool], ...] = (ConnectionInfo,)
