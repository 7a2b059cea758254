"""Pipeline schedules beyond GPipe: orders, recurrence, simulation, makespans and timelines."""
