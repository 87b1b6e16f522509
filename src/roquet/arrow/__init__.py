"""Stored bytes to Arrow columns and back: numpy and pyarrow, no message objects, no Spark.

bytes ─▶ record_layout ─▶ records ─▶ RecordBatch ─▶ encode ─▶ batch send
file  ─▶ log_file ─────────┘                │
                         properties, message_types, column_slices
"""
