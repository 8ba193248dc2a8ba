"""Fault tests: people in many conversations, a model that follows their messages, faults, and an audit at the end.

Every message carries a mark (`#17`). The answers of the model name the marks that it has read, so the audit finds each
loss, duplicate and change of order.
"""
