"""The scenario: everything that is fixed over an episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, model_validator

from collapipe_env.scenario.consistency import require_memory, require_placement
from collapipe_env.scenario.decision_names import COLLAPIPE, OPENED, opens, ordered_decisions
from collapipe_env.scenario.dssra_plus_section import DSSRAPlusSpec
from collapipe_env.scenario.fields import Name, Text, field, section, spec
from collapipe_env.scenario.learning import LearningSpec
from collapipe_env.scenario.overrides import overridden
from collapipe_env.scenario.plain_data import dumped, plain_yaml
from collapipe_env.scenario.radio_section import RadioSpec
from collapipe_env.scenario.sections import (
    BudgetSpec,
    ClusterSpec,
    DeviceSpec,
    DynamicsSpec,
    OverheadSpec,
)
from collapipe_env.scenario.server_section import TENANTS, ServerSpec
from collapipe_env.scenario.workload_section import WorkloadSpec


@spec
class Scenario:
    """A complete scenario. Immutable, hashable, comparable, and JSON-able through ``to_dict``.

    Building one by any route checks all fields, that the clusters can be placed, and that every cluster's
    devices together can hold the encoder.

    Raises:
        ScenarioError: If a field is misspelt, out of range or contradicts another, if the clusters cannot
            be kept apart, or if a cluster cannot hold the encoder.
    """

    name: Name = field("custom", "name, for records and plots; no unit, one line of text")
    decisions: Annotated[tuple[Text, ...], AfterValidator(ordered_decisions)] = field(
        COLLAPIPE,
        f"what schedulers decide; no unit, list of {', '.join(COLLAPIPE)} and, if open, {', '.join(OPENED)}",
    )
    workload: WorkloadSpec = section(WorkloadSpec, "the priced model")
    devices: DeviceSpec = section(DeviceSpec, "the devices")
    cluster: ClusterSpec = section(ClusterSpec, "clusters and layout")
    radio: RadioSpec = section(RadioSpec, "the radio links")
    budgets: BudgetSpec = section(BudgetSpec, "energy budgets")
    overheads: OverheadSpec = section(OverheadSpec, "costs of passes and messages")
    server: ServerSpec = section(ServerSpec, "terms of the edge server")
    dynamics: DynamicsSpec = section(DynamicsSpec, "the episode")
    learning: LearningSpec = section(LearningSpec, "the real training")
    dssra_plus: DSSRAPlusSpec = section(DSSRAPlusSpec, "tuned scalars of dssra-plus")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        floors = self.budgets.bandwidth_floor * self.cluster.clusters
        if not floors < 1.0:
            raise ValueError(
                f"budgets.bandwidth_floor = {self.budgets.bandwidth_floor:g} times cluster.clusters = "
                f"{self.cluster.clusters} is {floors:g}; it must stay below 1"
            )
        workload, tenants = self.workload, self.server.tenants
        if tenants is not None and TENANTS in dict(self.dynamics.processes):
            raise ValueError(
                f"server.tenants = {tenants:g} is a constant share of other tenants, and "
                "dynamics.processes.tenants moves it: leave one of the two out"
            )
        own, choices = workload.local_steps, workload.local_steps_choices
        if opens(self, "local_steps") and own not in choices:
            raise ValueError(
                f"workload.local_steps = {own} is not among workload.local_steps_choices = {list(choices)}, "
                "and decisions list local_steps: add it, or choose one of them"
            )
        for name in ("train_bits", "moment_bits"):
            if (bits := getattr(workload, name)) != 32 and self.learning.optimizer != "adamw":
                raise ValueError(
                    f"workload.{name} = {bits} needs learning.optimizer = 'adamw', but it is "
                    f"{self.learning.optimizer!r}; change one of them"
                )
        require_placement(self)
        require_memory(self)
        return self

    @property
    def clusters(self) -> int:
        """Number of clusters N."""
        return self.cluster.clusters

    @property
    def max_devices(self) -> int:
        """Length K of the array axis of devices: devices of the largest cluster."""
        return self.cluster.max_devices

    @property
    def blocks(self) -> int:
        """Number of encoder blocks L."""
        return self.workload.blocks

    def to_dict(self) -> dict[str, Any]:
        """Return plain data (JSON-able) that ``load_scenario`` turns back into an equal object."""
        return dumped(self)

    def to_yaml(self) -> str:
        """Return the scenario as YAML text that ``load_scenario`` reads back from a file."""
        return plain_yaml(self.to_dict())

    def with_overrides(self, overrides: Mapping[str, object]) -> Scenario:
        """Return a copy with some fields changed and everything checked again.

        Args:
            overrides: New values by dotted path, for example ``{"radio.diversity": 1}``; list entries by
                index, as in ``"devices.profiles.0.weight"``. A new ``"workload.task"`` sets the fields that
                it needs, and ``"workload.model"`` those of a published model, unless they are also
                overridden.

        Raises:
            ScenarioError: If a path does not exist or the result is not a valid scenario.
        """
        return overridden(self, overrides)

    def with_task(self, task: str, dataset: str | None = None) -> Scenario:
        """Return the scenario for a task, named after both, with the fields that the task needs.

        Args:
            dataset: Data to train on; None keeps the data for the same task and takes the embedded data for
                another. Columns and languages belong to the old task's data; another task detects its own.

        Raises:
            ScenarioError: If there is no such task.
        """
        changes: dict[str, object] = {}
        if task != self.workload.task:
            changes = {"workload.task": task, "name": f"{self.name}-{task}", "learning.dataset": "embedded"}
            changes |= dict.fromkeys(
                ("learning.text_column", "learning.label_column", "learning.languages"), None
            )
        if dataset is not None:
            changes["learning.dataset"] = dataset
        return self.with_overrides(changes)
