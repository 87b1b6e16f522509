"""The PySpark data source and the jobs on it."""
