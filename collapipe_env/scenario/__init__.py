"""Scenarios: everything that is fixed over an episode; presets, files, and layouts drawn from scenarios."""

from collapipe_env.scenario.consistency import block_bytes, working_bytes
from collapipe_env.scenario.layout import Layout, draw_layout, fixed_layout
from collapipe_env.scenario.learning import LearningSpec, ProxySpec
from collapipe_env.scenario.loading import load_scenario, register_scenario
from collapipe_env.scenario.names import scenario_names
from collapipe_env.scenario.radio_section import RadioSpec
from collapipe_env.scenario.schema import Scenario
from collapipe_env.scenario.sections import (
    BudgetSpec,
    ClusterSpec,
    DeviceProfile,
    DeviceSpec,
    DynamicsSpec,
    OverheadSpec,
)
from collapipe_env.scenario.server_section import ServerSpec
from collapipe_env.scenario.workload_section import WorkloadSpec

__all__ = [
    "BudgetSpec",
    "ClusterSpec",
    "DeviceProfile",
    "DeviceSpec",
    "DynamicsSpec",
    "Layout",
    "LearningSpec",
    "OverheadSpec",
    "ProxySpec",
    "RadioSpec",
    "Scenario",
    "ServerSpec",
    "WorkloadSpec",
    "block_bytes",
    "draw_layout",
    "fixed_layout",
    "load_scenario",
    "register_scenario",
    "scenario_names",
    "working_bytes",
]
