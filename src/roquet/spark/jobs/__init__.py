"""Jobs on Spark: archive, materialize, replay, repair and audit, each in its own package.

archive/ replay/ repair/ audit/    each has `Params`, `main(params)` and a pure `transform`
materialize/          a topic of keyed changes to a table of the latest state, with `main(params)`
job_runner            a Spark session, and one Spark job that runs a task set
resend_rows           archived rows encoded as new messages, and the originals of such copies
queue_mapping         the destination queue of each source queue
exactly_once_sender   sends rows in order, each once; rate_limit bounds its speed
"""
