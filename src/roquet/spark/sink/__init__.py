"""The sink: rows become messages, in batches or as half messages of a transaction.

writers                 what Spark drives: write in tasks, commit and abort on the driver
task                    one partition: row_encoder → send_requests → sender → delivery
columns, options        which columns and options there are
property_columns        the property text of each message
commit                  the driver's part of a transaction
commit_records          the decision; locked_journals: where it is, and for one driver
half_message_refs       where the half messages are
commit_half_messages    EndTransaction for many half messages
finish_batch            commits until every row is visible; visibility reads which are
"""

from roquet.spark.versions import require_pyspark

require_pyspark()
