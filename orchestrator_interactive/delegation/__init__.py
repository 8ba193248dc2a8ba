"""Sessions that let others work: sub-agents in child sessions, and workers that outlive the answer."""
