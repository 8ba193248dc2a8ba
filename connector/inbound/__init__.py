"""Inbound events: transports, access policy, admission. Everything is stored before it is acknowledged."""
