"""The loop-interactive orchestrator."""
