"""Pages of the dashboard: one module of routes for each."""
