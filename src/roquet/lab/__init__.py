"""The balance lab: every allocation strategy over millions of simulated histories of a group.

scenario       a group, its messages and its changes; presets and JSON files
timeline       the facts of one history, drawn from its seed
decisions      what each strategy decides at a change, and how even that is
group          membership and queue owners of one history, change by change
queue_model    when messages are handled, where queues have owners
pop_model      when messages are handled, where members pop them
attempts       the handled messages that both models return
measures       one row of numbers for each history and strategy
simulate       histories of one scenario under one strategy
spark_job      the study on Spark, written as Parquet files
study          scenarios, strategies, seed; and the directory of their results
summary        statistics over all histories; invariants checks what the documents claim
report         the summary as an HTML page
trace          key skew and hourly rhythm from a data set
"""
