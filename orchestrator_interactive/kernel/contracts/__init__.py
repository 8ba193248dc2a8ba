"""Types of the module contracts: protocols, messages, events, errors."""
