"""Jobs on Spark: archive, materialize, replay, repair and audit, each in its own package.

archive/ replay/ repair/ audit/    each has `Params`, `main(params)` and a pure `transform`
materialize/          a topic of keyed changes to a table of the latest state, with `main(params)`
job_runner            a Spark session, and one Spark job that runs a task set
resend_rows           archived rows encoded as new messages, and the originals of such copies
send_plan             the destination queue of each source queue, and the rate of each task
exactly_once_sender   sends rows in order, each once
"""
