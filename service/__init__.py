"""The service process: CLI, configuration, agent sessions, stores, and the composition root (`app`)."""
