"""Modules that have moved: their old names still work, with a DeprecationWarning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "agents.bandwidth": "agents.dssra.bandwidth",
    "agents.block_moves": "agents.dssra.block_moves",
    "agents.callbacks": "agents.learned.callbacks",
    "agents.checkpoint": "agents.learned.checkpoint",
    "agents.closed_forms": "agents.dssra.closed_forms",
    "agents.cluster_costs": "agents.dssra.cluster_costs",
    "agents.curves": "agents.learned.curves",
    "agents.hyperparameters": "agents.learned.hyperparameters",
    "agents.parallel_rounds": "agents.dssra.parallel_rounds",
    "agents.policy_scheduler": "agents.learned.policy_scheduler",
    "agents.power_chain": "agents.dssra.power_chain",
    "agents.power_search": "agents.dssra.power_search",
    "agents.round_plan": "agents.dssra.round_plan",
    "agents.round_solver": "agents.dssra.round_solver",
    "agents.segment_dp": "agents.dssra.segment_dp",
    "agents.segment_problem": "agents.dssra.segment_problem",
    "agents.share_curves": "agents.dssra.share_curves",
    "agents.training": "agents.learned.agent_training",
    "agents.validation": "agents.learned.validation",
    "baselines.adaptis_search": "baselines.planning.adaptis_search",
    "baselines.asteroid_planner": "baselines.planning.asteroid_planner",
    "baselines.chain_problem": "baselines.planning.chain_problem",
    "baselines.draft_pricing": "baselines.planning.draft_pricing",
    "baselines.flexpipe_search": "baselines.planning.flexpipe_search",
    "baselines.group_plan": "baselines.planning.plan_baseline",
    "baselines.optpipe_model": "baselines.planning.optpipe_model",
    "baselines.oracle_powers": "baselines.planning.oracle_powers",
    "baselines.schedule_search": "baselines.planning.schedule_search",
    "baselines.schedule_tuple": "baselines.planning.schedule_tuple",
    "baselines.scheduled_plan": "baselines.planning.scheduled_plan",
    "baselines.segment_baseline": "baselines.planning.plan_baseline",
    "baselines.split_training": "baselines.planning.split_training",
    "cli.interruption": "cli.early_end",
    "evaluation.comparison_figures": "evaluation.figures",
    "evaluation.comparison_gantt": "evaluation.typical_rounds",
    "evaluation.comparison_report": "evaluation.report",
    "evaluation.registry": "evaluation.scheduler_loading",
    "kernels.learning": "kernels.surrogate",
    "kernels.losses": "kernels.arrivals",
    "learners.aggregation": "training.aggregation",
    "learners.architecture": "models.architecture",
    "learners.compression": "training.update_compression",
    "learners.decoder": "models.decoder",
    "learners.device": "training.compute_device",
    "learners.dropout": "models.dropout",
    "learners.embeddings": "models.embeddings",
    "learners.encoder_blocks": "models.encoder_blocks",
    "learners.evaluation": "training.held_out_evaluation",
    "learners.exchange": "training.exchange",
    "learners.federation": "training.federation",
    "learners.fitting.runs": "learners.fitting.real_runs",
    "learners.flat_parameters": "training.flat_parameters",
    "learners.hf_checkpoint": "models.hf_checkpoint",
    "learners.hf_config": "models.hf_config",
    "learners.hf_tokenizer": "models.hf_tokenizer",
    "learners.lora": "models.lora",
    "learners.merged_step": "training.merged_step",
    "learners.model": "models.cluster_model",
    "learners.optimizer_state": "training.optimizer_state",
    "learners.pipeline_step": "training.pipeline_step",
    "learners.sample_stream": "training.sample_stream",
    "learners.servers": "training.servers",
    "learners.staleness": "training.staleness",
    "learners.torch_learner": "training.real_learner",
    "learners.training_setup": "training.training_setup",
    "physics.chain_orders": "physics.schedules.orders",
    "physics.chain_recurrence": "physics.schedules.recurrence",
    "physics.chain_simulation": "physics.schedules.simulation",
    "physics.convergence": "physics.loss_curve",
    "physics.pipeline": "physics.elements",
    "physics.schedule_timeline": "physics.schedules.events",
    "physics.schedule_times": "physics.schedules.makespans",
    "physics.split_training": "physics.schedules.split",
    "physics.timeline": "physics.schedules.timeline",
    "rendering.panels": "rendering.side_panels",
    "rendering.view": "rendering.round_numbers",
    "round_view": "rendering.round_view",
    "scenario.faults": "scenario.validation_errors",
    "scenario.layers": "scenario.inheritance",
    "scenario.models": "scenario.published_models",
    "scenario.placement": "scenario.cluster_centres",
    "scenario.validation": "scenario.consistency",
    "simulator.losses": "simulator.arrivals",
    "envs.core": "envs.mdp",
    "simulator.channels": "dynamics",
    "simulator.simulator": "simulator.world",
    "simulator.streams": "dynamics.randomness",
    "tasks.column_files": "tasks.conll_files",
    "tasks.decoding": "tasks.beam_search",
    "tasks.parts": "tasks.data_parts",
    "tasks.paths": "typed_paths",
    "tasks.subwords": "tasks.translation_tokenizer",
    "tasks.text_files": "tasks.labelled_texts",
    "tasks.tokenization": "models.tokenization",
    "torch_backend": "envs.torch_vector",
    "tasks.word_pieces": "tasks.tagging_tokenizer",
}
"""Old name to new name of each module, both without the package's own name."""

_PACKAGE = "collapipe_env."


class _Forwarding(Loader):
    """Loads the module that has the new name."""

    def __init__(self, new: str) -> None:
        self._new = new

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        warnings.warn(f"{spec.name} has moved: import {self._new}", DeprecationWarning, stacklevel=2)
        module = import_module(self._new)
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # Importlib has written the old name's specification into the module.
        module.__spec__ = self._own


class MovedModules(MetaPathFinder):
    """Finds modules by their old names, after all other finders have found nothing."""

    def find_spec(self, fullname: str, *_: Sequence[str] | ModuleType | None) -> ModuleSpec | None:
        """Return a specification that leads to the new name, ``None`` for any other module."""
        new = MOVED.get(fullname.removeprefix(_PACKAGE)) if fullname.startswith(_PACKAGE) else None
        return None if new is None else ModuleSpec(fullname, _Forwarding(_PACKAGE + new))


def forward_moved_modules() -> None:
    """Let old names be imported, once for the process."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
