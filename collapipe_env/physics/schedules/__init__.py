"""Schedules: storage, orders, recurrence, simulation, makespans, timelines; interleaving and split training."""
