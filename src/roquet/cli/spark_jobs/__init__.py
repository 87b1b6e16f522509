"""Commands that run Spark jobs: roquet spark archive, lag, audit, replay, repair, maintain."""
