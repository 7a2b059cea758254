"""The interface to reinforcement learning: observations, rewards, single and vector environments, ids."""
