"""Learners: sources of the loss. Real training is :mod:`collapipe_env.training.real_learner`."""
