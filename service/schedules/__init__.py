"""Runs at later times: schedules, kept in the store and fired by whichever process comes first."""
