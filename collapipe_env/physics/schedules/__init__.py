"""Schedules: storage, orders, recurrence, simulation, makespans, timelines, chunks and split training."""
