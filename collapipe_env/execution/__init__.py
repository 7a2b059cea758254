"""Real execution of plans: one process a device, control unit and server."""
