"""A crowd in many conversations, the model that answers it, what harms the service meanwhile, and the tally of it all.

Every message carries a mark (`#17`). The model does what a message says, and its answers name the marks that it read,
so that nothing can be lost, doubled or out of order without a trace.
"""
