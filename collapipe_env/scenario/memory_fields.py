"""Workload fields that make a large model fit into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collapipe_env.scenario.schema import Scenario
    from collapipe_env.scenario.workload_section import WorkloadSpec

_FOLLOWING = ("stored_activation_bits", "activation_bits", "gradient_bits")
"""Bits of the numbers that a model in bfloat16 produces."""


def require_half_precision(workload: WorkloadSpec) -> None:
    """Refuse 32-bit activations in a 16-bit model.

    Raises:
        ValueError: If activations or boundary tensors have 32 bits although weights have 16.
    """
    wide = [name for name in _FOLLOWING if getattr(workload, name) != 16]
    if workload.train_bits == 16 and wide:
        raise ValueError(
            f"train_bits = 16 makes activations of 16 bits, but {' and '.join(wide)} "
            f"{'is' if len(wide) == 1 else 'are'} 32; set {'it' if len(wide) == 1 else 'them'} to 16"
        )


def require_adam(scenario: Scenario) -> None:
    """Refuse optimisers other than AdamW with reduced precision.

    Raises:
        ValueError: If ``sgd`` is combined with 16-bit weights or 8-bit moments.
    """
    workload, optimizer = scenario.workload, scenario.learning.optimizer
    for name in ("train_bits", "moment_bits"):
        bits = getattr(workload, name)
        if bits != 32 and optimizer != "adamw":
            raise ValueError(
                f"workload.{name} = {bits} needs learning.optimizer = 'adamw', but it is {optimizer!r}; "
                "change one of them"
            )
