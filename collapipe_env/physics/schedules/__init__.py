"""Schedules: storage, orders, recurrence, simulation, makespans, timelines; interleaving, split training."""
