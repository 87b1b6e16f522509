"""Dashboard: web pages that show a cluster and change it."""
