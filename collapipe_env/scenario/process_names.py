"""Names of processes, both the package's and added ones; a process is imported when it is first asked for."""

from __future__ import annotations

from typing import Any

from collapipe_env.ground.registry import Registry

PROCESSES: Registry[Any] = Registry(
    "process",
    {
        "presence": "collapipe_env.dynamics.presence:Presence",
        "shadowing": "collapipe_env.dynamics.shadowing:Shadowing",
        "mobility": "collapipe_env.dynamics.mobility:Mobility",
        "fading": "collapipe_env.dynamics.fading:Fading",
        "load": "collapipe_env.dynamics.load:Load",
        "migration": "collapipe_env.dynamics.migration:PreviousPlan",
        "tenants": "collapipe_env.dynamics.tenants:Tenants",
        "server": "collapipe_env.dynamics.server_queue:ServerQueue",
        "heat": "collapipe_env.dynamics.heat:Heat",
        "traces": "collapipe_env.dynamics.traces:Traces",
        "channel_knowledge": "collapipe_env.dynamics.channel_knowledge:ChannelKnowledge",
    },
    group="collapipe_env.processes",
    reserved=("layout", "arrivals", "learner"),
    hint="one of your own is known once its file is imported: commands do that for a scenario named as "
    "file.py:Name, and Python may call collapipe_env.evaluate and write_page",
    check="collapipe_env.simulator.process_registry:check_process",
    likeness=0.75,  # names of the user's own processes are short, and not meant for others
)
"""Classes of processes by name."""
