"""The generic tools: the same for every project and every number of models."""

from .actions import RunAction
from .aggregate import AggregateRecords
from .base import Tool
from .connection import ConnectionInfo
from .models import DescribeModel, ListModels
from .query import QueryRecords
from .record import GetRecord
from .writes import CreateRecord, CreateUpload, DeleteRecord, UpdateRecord

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
