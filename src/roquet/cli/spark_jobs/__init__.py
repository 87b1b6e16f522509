"""Commands that run Spark jobs: roquet spark archive, materialize, lag, audit and others."""
