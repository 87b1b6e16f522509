"""Commands for operators: roquet topic, group, cluster, broker, dump, check."""
