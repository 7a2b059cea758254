"""Meaning of a cluster's option for its round, in compiled code (see :mod:`.option_table`)."""

from __future__ import annotations

from collapipe_env.ground.arrays import IntArray
from collapipe_env.ground.compiled import compiled_leaf, inlined
from collapipe_env.physics.parameters import Numbers

from .option_table import MICRO_BATCHES, SERVER_BLOCKS, SETTING
from .round_input import RoundInput


@inlined
def micro_batches_of(option: int, inputs: RoundInput) -> float:
    """``M`` of an option."""
    return float(inputs.options[option, MICRO_BATCHES])


@inlined
def setting_of(option: int, inputs: RoundInput) -> int:
    """Setting of recomputation of an option: 0 for the workload's own, 1 for the other one."""
    setting: int = inputs.options[option, SETTING]
    return setting


@inlined
def server_blocks_of(option: int, inputs: RoundInput) -> int:
    """Encoder blocks that the server runs under an option."""
    blocks: int = inputs.options[option, SERVER_BLOCKS]
    return blocks


@inlined
def with_server_blocks(option: int, blocks: int, inputs: RoundInput) -> int:
    """The option with another number of blocks on the server, otherwise unchanged."""
    found: int = option - server_blocks_of(option, inputs) + blocks
    return found


@inlined
def other_setting(option: int, inputs: RoundInput) -> int:
    """The option with the other setting of recomputation, otherwise unchanged."""
    rows = inputs.options.shape[0]
    found: int = (option + rows // 2) % rows
    return found


@inlined
def update_bits_of(option: int, inputs: RoundInput, parameters: Numbers) -> float:
    """A cluster's update under an option [bit]: blocks that the server trains need no transfer."""
    kept = server_blocks_of(option, inputs)
    bits: float = parameters.update_bits - kept * parameters.block_payload_bits
    return bits


@compiled_leaf
def fits_option(n: int, segments: IntArray, option: int, inputs: RoundInput) -> bool:
    """Whether a cluster's devices can hold their blocks under an option."""
    fits, setting = True, setting_of(option, inputs)
    for k in range(segments.shape[0]):
        fits = fits and segments[k] <= inputs.cap[setting, n, k]
    return fits


@inlined
def is_open(inputs: RoundInput) -> bool:
    """Whether the search may change recomputation; the first choice then has the other setting."""
    return bool(setting_of(inputs.choices[0], inputs) == 1)
