"""Cost of one sample: FLOPs, parameters, activation bytes and payload bits.

All figures are of the *priced* architecture (`system_model.md` section 2; [R]: the field's standard
counts). They are scalars: the architecture is the same for every environment of a batch.

Arguments are the model's ``width`` ``d``, its ``feedforward`` width ``d_ff``, and the tokens of a sample
``sequence_length`` ``q``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from collapipe_env.ground.arrays import Array
from collapipe_env.physics.payload import Compression, UpdateFormat, message_bits
from collapipe_env.physics.training_memory import FULL_PRECISION, TrainingMemory

BACKWARD_OVER_FORWARD = 2.0
"""A backward pass costs twice a forward pass (one product for each of the two gradients)."""


def decoder_forward_flops(
    decoder_blocks: int, width: int, feedforward: int, sequence_length: int, outputs: int, positions: int
) -> float:
    """Forward FLOPs of the server's part for one sample.

    ``L_dec (2 q (8 d^2 + 2 d d_ff) + 8 q^2 d) + 2 n d V_out``: decoder blocks with self- and
    cross-attention, then one matrix product to the outputs at ``n`` positions.

    Args:
        decoder_blocks: Decoder depth ``L_dec`` (0 for a bare task head).
        outputs: Output classes or target vocabulary ``V_out``.
        positions: Positions ``n`` that reach the output product: ``q`` for a generator or tagger, 1 for
            a head on the pooled sentence.
    """
    q, d = sequence_length, width
    blocks = decoder_blocks * (2 * q * (8 * d * d + 2 * d * feedforward) + 8 * q * q * d)
    return float(blocks + 2 * positions * d * outputs)


def decoder_weight_flops(
    decoder_blocks: int, width: int, feedforward: int, sequence_length: int, outputs: int, positions: int
) -> float:
    """FLOPs of the weight gradients of the server's part for one sample: its linear maps without attention.

    Arguments as for :func:`decoder_forward_flops`.
    """
    d = width
    return float(
        decoder_blocks * 2 * sequence_length * (8 * d * d + 2 * d * feedforward) + 2 * positions * d * outputs
    )


@dataclass(frozen=True)
class WorkloadCosts:
    """The per-sample and per-block figures that the simulator charges for (all scalars).

    Attributes:
        blocks: Encoder depth ``L``.
        batch_size: Samples ``B`` of one cluster's mini-batch in one local step.
        local_steps: Local steps ``H`` of a round.
        block_forward_flops: ``Phi_F`` per sample and block [FLOP].
        decoder_forward_flops: ``Phi_dec`` forward per sample [FLOP].
        block_weight_flops: Part of a block's backward pass that is weight gradients, per sample [FLOP].
        decoder_weight_flops: The same part of the server's backward pass [FLOP].
        block_parameters: ``w`` per block.
        stored_activation_bytes: ``alpha`` per sample and block [byte]; with recomputation only its input.
        activation_bits: Boundary activation ``A`` per sample [bit].
        gradient_bits: Boundary gradient per sample [bit].
        weight_bits: Bits of one number in segment collection, upload, broadcast and all-reduce.
        top_k_share: Share of a part's entries that compression ``top-k`` sends.
        adapter_parameters: Parameters of a block's low-rank adapters if only these are trained; 0 if the
            whole block is. FLOPs are still those of training the whole block, an upper bound: adapters save
            the frozen maps' weight gradients, a third of the block's products, and add three times their own
            forward pass.
        training_memory: Bits of trained numbers, and whether activations are recomputed.
        working_bytes: Part of a sample's activations of a single block that is not stored but recomputed
            while its backward pass runs [byte]; 0 without recomputation.
        fewest_micro_batches: Smallest number of micro-batches that is allowed; memory caps leave room for the
            working set of a micro-batch of that size.
    """

    blocks: int
    batch_size: int
    local_steps: int
    block_forward_flops: float
    decoder_forward_flops: float
    block_weight_flops: float
    decoder_weight_flops: float
    block_parameters: int
    embedding_parameters: int
    stored_activation_bytes: float
    activation_bits: float
    gradient_bits: float
    weight_bits: int
    compression: Compression = "none"
    top_k_share: float = 0.1
    adapter_parameters: int = 0
    training_memory: TrainingMemory = FULL_PRECISION
    working_bytes: float = 0.0
    fewest_micro_batches: int = 1

    @property
    def update_format(self) -> UpdateFormat:
        """Format in which updates travel."""
        return UpdateFormat(self.weight_bits, self.compression, self.top_k_share)

    @property
    def trained_block_parameters(self) -> int:
        """Parameters of a block that are trained: all of them, or its adapters."""
        return self.adapter_parameters or self.block_parameters

    @property
    def block_state_bytes(self) -> float:
        """Bytes of one block's weights, gradients and optimiser moments; ``4 w + 16 w_a`` with adapters."""
        return self.training_memory.block_bytes(self.block_parameters, self.adapter_parameters)

    @property
    def backward_over_forward(self) -> float:
        """Cost of a device's backward pass in forward passes, ``rho``: 2, or 3 with recomputation."""
        return BACKWARD_OVER_FORWARD + (1.0 if self.training_memory.recompute else 0.0)

    @property
    def block_copy_bytes(self) -> float:
        """Bytes of a second copy of one block's trained weights."""
        return self.training_memory.weight_bytes * self.trained_block_parameters

    @property
    def block_payload_bits(self) -> float:
        """Bits of the message about one block's update, in segment collection and upload."""
        return float(self.update_format.upload_bits(self.trained_block_parameters))

    @property
    def block_gradient_bits(self) -> float:
        """Bits of one block's gradients in an all-reduce, which compresses nothing."""
        return float(self.trained_block_parameters * self.weight_bits)

    @property
    def embedding_payload_bits(self) -> float:
        """Bits of the message about the embedding's update; adapters leave the embedding as it is."""
        return float(self._embedding(self.update_format.upload_bits(self.embedding_parameters)))

    @property
    def update_payload_bits(self) -> float:
        """Bits of a cluster's whole update: encoder and embedding."""
        return self.blocks * self.block_payload_bits + self.embedding_payload_bits

    def block_broadcast_bits(self, senders: int) -> float:
        """Bits of the message about a block's new state.

        Args:
            senders: Clusters whose compressed updates went into it; 0 if some were not compressed, so that
                the message has to be dense.
        """
        return float(self._broadcast(self.trained_block_parameters, senders))

    def embedding_broadcast_bits(self, senders: int) -> float:
        """Bits of the message about the embedding's new state.

        Args:
            senders: Clusters that contributed.
        """
        return float(self._embedding(self._broadcast(self.embedding_parameters, senders)))

    def _broadcast(self, size: int, senders: int) -> int:
        if senders:
            return self.update_format.broadcast_bits(size, senders)
        return message_bits(size, size, self.weight_bits)

    def _embedding(self, bits: int) -> int:
        return 0 if self.adapter_parameters else bits


class RecomputationTerms(NamedTuple):
    """Terms of time and memory that depend on recomputation: numbers, or arrays (..., N, 1).

    Attributes:
        backward_over_forward: ``rho``, cost of a device's backward pass over that of its forward pass.
        activation_bytes: ``alpha`` per sample and block [byte].
        working_bytes: ``omega``, activations of a sample in one block that are recomputed [byte].
    """

    backward_over_forward: Array | float
    activation_bytes: Array | float
    working_bytes: Array | float
