"""Security of the dashboard: sessions, logins, checks of requests, the audit log."""
