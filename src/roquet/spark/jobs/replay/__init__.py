"""The replay job: rows of a table become messages of a topic, each once.

replay_job     the run: scans table and destination, deals the rest to tasks, checks the counts
archive_scan   plans and reads the chosen rows of each queue
origin_check   refuses a destination that still holds the original messages
replay_tasks   one Spark task: reads its queues, and sends their rows merged by time
"""

from roquet.spark.jobs.replay.replay_job import (
    Params,
    ReplayProgress,
    main,
    replay_frame,
    run,
    transform,
)

__all__ = ["Params", "ReplayProgress", "main", "replay_frame", "run", "transform"]
