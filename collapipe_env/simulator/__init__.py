"""One round of the whole system, batch-first; knows nothing of reinforcement learning."""
