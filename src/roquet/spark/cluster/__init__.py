"""Calls to name servers and brokers, from Spark's driver and its workers.

cluster_client        routes, offsets and retries
latest_offsets        a stream's view of all queues, and of brokers that are away
time_search           the offset of a time; a pull of a few messages
range_reader          ranges of queues as RecordBatches
queue_cursors         how far each queue of a range read has come
record_filter         tags and SQL expressions; drops rows written twice
progress_publisher    a stream's offsets published as a consumer group's progress
"""
