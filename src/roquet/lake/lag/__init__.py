"""The lag job: consumer lag of every group over time, and a forecast for each.

lag_job       the run: samples brokers periodically, writes a table and a page
sampling      one sample: offsets of every group in every queue
trends        rates and forecasts from the samples of one queue
lag_summary   forecasts of each group and topic; lag_page shows them as HTML
"""

from roquet.lake.lag.lag_job import LagProgress, Params, main, run

__all__ = ["LagProgress", "Params", "main", "run"]
