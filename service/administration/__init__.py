"""Administration of a running service: reload, audit, retention, erasure, backups."""
