"""Does a Slack agent read every message exactly once, in order, and answer once? Scenarios that any agent can run.

``python -m conformance AGENT.yaml`` starts the agent in a local Slack, with a model of the suite, and reports.
"""
