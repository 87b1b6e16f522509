"""Commands that start servers: roquet dev, namesrv, broker, serve."""
