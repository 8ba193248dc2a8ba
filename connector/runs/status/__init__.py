"""The status message of a run."""
