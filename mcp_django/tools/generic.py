"""The generic tools: the same for every project and every number of models."""

from .action_tools import RunAction
from .aggregate_records import AggregateRecords
from .base import Tool
from .connection_info import ConnectionInfo
from .create_update_delete import CreateRecord, CreateUpload, DeleteRecord, UpdateRecord
from .get_record import GetRecord
from .list_and_describe_models import DescribeModel, ListModels
from .query_records import QueryRecords

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
# Those that are there whatever the project registers; the last one is offered where there is a storage for it.
OWN_TOOLS: tuple[type[Tool], ...] = (*GENERIC_TOOLS, CreateUpload)
# Those that are offered where there is reason, and that give way to the project's own of the same names.
MODEST_TOOLS: tuple[type[Tool], ...] = (ConnectionInfo,)
