"""Factors of an environment that can be combined: processes, decisions, backends, learners, schedulers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from covering_support import Case

from collapipe_env.scenario.decision_names import COLLAPIPE, OPENED

ON = ("off", "on")
FACTORS: Mapping[str, tuple[str, ...]] = {
    "shadowing": ON,
    "fading": ("independent", "correlated", "rayleigh"),
    "load": ("off", "slow", "moving"),
    "migration": ("off", "move", "over_cu", "reset"),
    "tenants": ON,
    "server": ("free", "metered", "contended", "weak"),
    "heat": ("off", "phone_step", "board_pause", "cased_ipa"),
    "mobility": ("off", "closed", "open"),
    "presence": ("off", "light", "heavy", "drop-round"),
    "replicas": ("none", "next_stage", "cu"),
    "traces": ("off", "power", "rates"),
    "knowledge": ("off", "perfect", "delayed", "noisy", "mean", "both"),
    "time_base": ("mixed", "real", "reference"),
    "visibility": ("full", "realistic"),
    **dict.fromkeys(OPENED, ON),
    "budgets": ("round", "second"),
    "link_errors": ("drop", "arq", "harq", "none"),
    "distribution": ("cu", "relay"),
    "head": ("copies", "common"),
    "steps": ("1", "2"),
    "updates": ("none", "top-k", "lora"),
    "duplex": ("full", "half"),
    "task": ("classification", "language-modelling", "ner", "translation"),
    "recomputing": ON,
    "memory": ("full", "compact"),
    "partition": ("iid", "dirichlet"),
    "layout": ("fixed", "per_episode"),
    "devices": ("equal", "uneven"),
    "target": ("none", "set"),
    "observation": ("flat", "graph"),
    "kind": ("single", "made", "discrete", "magnified", "vector", "waiting", "sb3", "torch", "torch32"),
    "learner": ("surrogate", "idle", "real"),
    "reward": ("default", "lyapunov", "drift_plus_penalty", "delay", "time_to_target", "own"),
    "scheduler": (
        "dssra",
        "dssra-plus",
        "dssra-target",
        "pipeline",
        "pipar",
        "random",
        "splitfed_v2",
        "vanilla_fl",
        "xpipe",
    ),
    "plan": ("gpipe", "1f1b", "interleaved", "zb-h1", "async"),
}
"""Levels of every factor, the neutral one first."""

_HEAT = {
    "phone_step": {"profile": "phone", "governor": "step"},
    "board_pause": {"profile": "board", "governor": "pause"},
    "cased_ipa": {"profile": "board_cased", "governor": "ipa"},
}
_MIGRATION = {"move": {}, "over_cu": {"route": "cu", "moment_bits": 16}, "reset": {"moments": "reset"}}
_COMPACT = {
    "train_bits": 16,
    "moment_bits": 8,
    **dict.fromkeys(("stored_activation_bits", "activation_bits", "gradient_bits"), 16),
}
# At the scale of the layout: measured cells are so wide that under `arq` hardly a message ever arrives.
_TRACES = {
    "power": {"profile": "driving", "level": "layout"},
    "rates": {"profile": "bus", "level": "layout", "split": "test"},
}


def scenario_of(case: Case) -> dict[str, Any]:
    """The scenario of a case, small enough for a round of real training in milliseconds.

    Args:
        case: Levels of all factors.
    """
    processes: dict[str, Any] = {}
    if case["migration"] != "off":
        processes["migration"] = _MIGRATION[case["migration"]]
    if case["tenants"] == "on":
        processes["tenants"] = {"stay_probability": 0.5}
    if case["heat"] != "off":
        # Small and hot, so that governors have something to do in a few rounds.
        processes["heat"] = {**_HEAT[case["heat"]], "capacity_j_per_k": 0.5, "ambient_max_c": 60.0}
    if case["mobility"] != "off":
        area = {"area": "open", "roaming": 2.0} if case["mobility"] == "open" else {}
        processes["mobility"] = {"pause_s": 0.5, "speed_max_m_s": 20.0, **area}
    if case["presence"] != "off":
        # So short that something happens in a few rounds, and so long that most clusters play.
        often = {"on_mean_s": 20.0, "off_mean_s": 5.0, "hazard_factors": [0.5, 2.0]}
        processes["presence"] = {"recovery": case["presence"], **often}
        if case["presence"] != "drop-round":
            processes["presence"]["replication"] = case["replicas"]
    if case["traces"] != "off":
        processes["traces"] = _TRACES[case["traces"]]
    if case["knowledge"] != "off":
        both = case["knowledge"] == "both"
        modes = ("delayed", "noisy") if both else (case["knowledge"],)
        processes["channel_knowledge"] = {
            "modes": modes,
            **({"delay_rounds": 2} if "delayed" in modes else {}),
            "noise_correlation": 0.5 if both else 0.0,
        }
    on = case["shadowing"] == "on"
    return {
        "base": "small",
        "name": "combined",
        "decisions": [*COLLAPIPE, *(name for name in OPENED if case[name] == "on")],
        "workload": {
            "blocks": 4,
            "batch_size": 4,
            "local_steps": int(case["steps"]),
            "local_steps_choices": [1, 2, 3],
            "distribution": case["distribution"],
            "head": case["head"],
            "update_compression": case["updates"],
            "task": case["task"],
            "recompute": case["recomputing"] == "on",
            **({} if case["memory"] == "full" else _COMPACT),
        },
        "cluster": {"devices": 3 if case["devices"] == "equal" else [3, 2], "layout": case["layout"]},
        "radio": {
            "d2e_shadowing_db": 8.0 if on else 0.0,
            "d2d_shadowing_db": 4.0 if on else 0.0,
            "diversity": 1 if case["fading"] == "rayleigh" else 4,
            "fading_correlation": 0.7 if case["fading"] == "correlated" else 0.0,
            "d2d_duplex": case["duplex"],
            "link_errors": case["link_errors"],
        },
        "budgets": {"device_energy_j": 200.0, "cu_energy_j": 200.0, "per": case["budgets"]},
        "server": {"terms": case["server"]},
        "dynamics": {
            "rounds": ROUNDS if case["learner"] != "real" else 2,
            "load_levels": {"off": [1.0], "slow": [0.5], "moving": [0.25, 0.5, 1.0]}[case["load"]],
            "load_stay_probability": 0.5,
            "target_loss": None if case["target"] == "none" else 0.5,
            "time_base": case["time_base"],
            "visibility": case["visibility"],
            "processes": processes,
        },
        "learning": {
            "partition": case["partition"],
            "proxy": {"width": 4, "feedforward": 4, "heads": 1, "sequence_length": 8, "vocabulary": 260},
            "evaluation_samples": 4,
            "metric_samples": 4,
            "evaluate_every": 1,
            "metric_every": 1,
            "device": "cpu",
        },
        "dssra_plus": {"migration_weight": 0.5, "heat_price": 0.1, "channel_weight": 0.8},
    }


ROUNDS = 3
"""Rounds of an episode."""


@dataclass(frozen=True)
class Refusal:
    """A combination that is refused, on purpose.

    Attributes:
        reason: Why it cannot be played.
        levels: Levels that are refused together, several of a factor where any of them is.
        message: What the error says: the value, and the remedy.
    """

    reason: str
    levels: Mapping[str, tuple[str, ...]]
    message: tuple[str, ...]

    def holds(self, case: Case) -> bool:
        """Whether a case, perhaps a partial one, has such levels."""
        return all(case.get(name) in levels for name, levels in self.levels.items())

    def says(self, error: Exception) -> bool:
        """Whether an error names the value and the remedy."""
        return all(re.search(part, str(error)) for part in self.message)


_ON_TENSORS = ("torch", "torch32")
_GPIPE_ONLY = ("the torch backend plays only GPipe", "use backend='numpy'")
REFUSALS = (
    Refusal(
        "models are trained by PyTorch on their own, and the idle learner has NumPy arrays",
        {"kind": _ON_TENSORS, "learner": ("real", "idle")},
        ("learner = ", "use learner='surrogate'"),
    ),
    Refusal(
        "the wrapper magnifies entries of the flat observation",
        {"kind": ("magnified",), "observation": ("graph",)},
        ("MagnifiedBacklog needs the flat observation", "leave out observation='graph'"),
    ),
    Refusal(
        "nothing ends an episode early, and no decision gives the scenario a target of its own",
        {
            "reward": ("time_to_target",),
            "target": ("none",),
            "participation": ("off",),
            "local_steps": ("off",),
        },
        ("dynamics.target_loss, which is null", "set the evaluation loss"),
    ),
    Refusal(
        "schedules are simulated on the host, which tensors wait for only where the scenario opens them",
        {"kind": _ON_TENSORS, "schedule": ("off",), "plan": ("1f1b", "zb-h1")},
        _GPIPE_ONLY,
    ),
    Refusal(
        "no action says these schedules, whatever is open",
        {"kind": _ON_TENSORS, "plan": ("interleaved", "async")},
        _GPIPE_ONLY,
    ),
    Refusal(
        "PiPar runs 1F1B", {"kind": _ON_TENSORS, "schedule": ("off",), "scheduler": ("pipar",)}, _GPIPE_ONLY
    ),
    Refusal("XPipe is asynchronous", {"kind": _ON_TENSORS, "scheduler": ("xpipe",)}, _GPIPE_ONLY),
)
"""All that is refused. What is not in this list has to play."""


def refusal_of(case: Case) -> Refusal | None:
    """The first refusal that holds for a case, ``None`` for one that plays."""
    return next((refusal for refusal in REFUSALS if refusal.holds(case)), None)


def plays(case: Case) -> bool:
    """Whether a case, perhaps a partial one, is to play."""
    return refusal_of(case) is None
