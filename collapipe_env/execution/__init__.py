<<<<<<< HEAD
"""Real execution of plans: one process a device, control unit and server."""
=======
"""Execution: plans played by processes that train, one a role, by priced times or in real time ([X])."""
>>>>>>> w-F
