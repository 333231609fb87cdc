"""Calls that outlive their request: what a worker runs, and the engines that hand it to one."""


def run_task(task_id: str) -> None:
    """Run the task with this id, unless another worker has it, or it has ended: what an engine calls in its worker.

    It raises nothing: how the task ends is kept with the task.
    """
    # Imported here, because the modules of this room are not needed where a task is only named.
    from .task_runs import TaskRun

    TaskRun.claim_and_go(task_id)
