"""The sink: rows become messages, in batches or as half messages of a transaction.

writers                 what Spark drives: write in tasks, commit and abort on the driver
task                    one partition: row_encoder → send_requests → sender → delivery
options                 which options and columns there are
property_columns        the property text of each message
commit                  the driver's part of a transaction: commits until every row is visible
commit_records          the decision; locked_journals: where it is, and for one driver
commit_half_messages    EndTransaction for many half messages
visibility              which rows are visible
"""

from roquet.spark.versions import require_pyspark

require_pyspark()
