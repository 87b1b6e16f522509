"""The replay job: rows of a table become messages of a topic, each once.

replay_job     the run: deals the rows that are left to tasks, and checks the counts
replay_plan    the parameters, a scan of table and destination, and a preview of a run
archive_scan   plans and reads the chosen rows of each queue
origin_check   refuses a destination that still holds the original messages
replay_tasks   one Spark task: reads its queues, and sends their rows merged by time
"""

from roquet.spark.jobs.replay.replay_job import (
    ReplayProgress,
    main,
    replay_frame,
    run,
    transform,
)
from roquet.spark.jobs.replay.replay_plan import Params, ReplayPreview, preview

__all__ = [
    "Params",
    "ReplayPreview",
    "ReplayProgress",
    "main",
    "preview",
    "replay_frame",
    "run",
    "transform",
]
