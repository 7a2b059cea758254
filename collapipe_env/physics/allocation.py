"""Allocation: a scheduler's decision for one round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, NamedTuple, get_args

import numpy as np

from collapipe_env.ground.arrays import Array, namespace
from collapipe_env.ground.errors import AllocationError
from collapipe_env.ground.real_numbers import float_numbers, whole_numbers
from collapipe_env.ground.records import Declared, Record, declarations, made

ScheduleName = Literal["gpipe", "1f1b", "interleaved", "zb-h1", "async"]
SCHEDULES: tuple[ScheduleName, ...] = get_args(ScheduleName)
"""Pipeline schedules; an allocation holds their index in this tuple."""
GPIPE, ONE_F_ONE_B, INTERLEAVED, ZERO_BUBBLE, ASYNC = range(len(SCHEDULES))

ServerMode = Literal["copies", "sequential"]
SERVER_MODES: tuple[ServerMode, ...] = get_args(ServerMode)
"""Ways in which the edge server trains its part under split training; allocations hold their index."""
COMMON, COPIES, SEQUENTIAL = -1, 0, 1
"""``COMMON`` is CollaPipe's own server: one head that follows the mean gradient of all clusters."""


class Groups(NamedTuple):
    """Groups of devices, by the plan's own names; without any, each device with blocks is a stage."""

    stage: Array
    sample_share: Array


class Schedules(NamedTuple):
    """Schedules of the micro-batches, by the plan's own names; GPipe where a plan names none."""

    schedule: Array
    caps: Array
    chunks: Array


class ServerPart(NamedTuple):
    """Server's part of the encoder, by the plan's own names; none, on CollaPipe's own server, by default."""

    server_blocks: Array
    server_mode: Array


@dataclass(frozen=True, eq=False)
class Allocation(Record):
    """Segments, micro-batches, bandwidth and transmit powers of all clusters for one round.

    Arrays have leading batch axes ``...``, then ``N`` clusters and ``K`` devices (or stage slots).
    CollaPipe's own plans put every segment on one device, run GPipe and train only the decoder on the
    server: they need only the first five fields. The others are extensions for the published systems, which
    the action box cannot express. Each kind has a view that also answers where a plan leaves it out:

    * :attr:`groups`: several devices in a stage, data parallel inside it (VanillaFL, Asteroid);
    * :attr:`schedules`: the order of the micro-batches' operations (Asteroid, AdaPtis, OptPipe, FlexPipe,
      XPipe);
    * :attr:`server`, split training: the server also runs the encoder's last blocks (SplitFed, PiPar).

    Where a scenario opens these decisions, a plan may also set recomputation of activations, participation in
    the round and local steps for each cluster, and a cap on each device's clock.
    """

    blocks: Annotated[Array, Declared("N K", kind="whole")]
    """Consecutive encoder blocks of each stage slot, in pipeline order, at least 0; they sum to ``L`` less
    the server's."""
    micro_batches: Annotated[Array, Declared("N", kind="whole")]
    """``M_n``; divides the mini-batch."""
    bandwidth: Annotated[Array, Declared("N")]
    """Share ``beta_n`` of the uplink, at least 1e-9, summing to at most 1."""
    device_power: Annotated[Array, Declared("N K", "W")]
    """Device transmit powers."""
    cu_power: Annotated[Array, Declared("N", "W")]
    """CU transmit powers, on device-to-device links and the uplink alike."""
    stage: Annotated[Array | None, Declared("N K", kind="whole")] = None
    """Slot of each device, -1 for a device in no stage; ``None`` for the identity."""
    sample_share: Annotated[Array | None, Declared("N K")] = None
    """Share ``y_k`` of each micro-batch's samples, summing to 1 in each stage; ``None`` where every stage has
    one device."""
    schedule: Annotated[Array | None, Declared("N", kind="whole")] = None
    """Index in ``SCHEDULES``; ``None`` for GPipe."""
    caps: Annotated[Array | None, Declared("N K", kind="whole")] = None
    """Largest number in flight in each stage slot: micro-batches between forward and backward (``1f1b``,
    ``async``), stored micro-batches until their weight gradient is done (``zb-h1``), chunks
    (``interleaved``); not read under ``gpipe`` or in slots without blocks."""
    chunks: Annotated[Array | None, Declared("N", kind="whole")] = None
    """Chunks ``v`` of each stage, 1 unless ``interleaved``."""
    server_blocks: Annotated[Array | None, Declared("N", kind="whole")] = None
    """Number of the encoder's last blocks that the server runs; ``None`` for 0."""
    server_mode: Annotated[Array | None, Declared("", kind="whole")] = None
    """Index in ``SERVER_MODES``, -1 for CollaPipe's own server. ``copies`` (SplitFed V1) keeps a server-side
    copy for every cluster and averages them at the end of the round; ``sequential`` (V2) has one copy,
    which serves the clusters one after another."""
    recompute: Annotated[Array | None, Declared("N", kind="whole", neutral=-1)] = None
    """Whether a cluster's devices store only the inputs of blocks and recompute the rest, 0 or 1; -1, or
    ``None`` for all clusters, leaves it to the scenario's workload."""
    participates: Annotated[Array | None, Declared("N", kind="whole", neutral=1)] = None
    """Whether a cluster takes part, 0 or 1; ``None`` if all do. A cluster that sits out computes, sends and
    uses nothing in the round; its other entries are not read."""
    local_steps: Annotated[Array | None, Declared("N", kind="whole", neutral=-1)] = None
    """``H_n``, at least 1; -1, or ``None`` for all clusters, leaves it to the scenario's workload."""
    clock_cap: Annotated[Array | None, Declared("N K", neutral=1.0)] = None
    """Cap ``c`` on each device's clock, relative to its full clock, in (0, 1]; ``None`` without caps. A cap
    does not speed up a device that background load or a governor slows down below it."""
    others: Mapping[str, Array] = field(default_factory=dict)
    """Values of registered decisions without a field of their own, by the fields that their rows declare."""

    def __post_init__(self) -> None:
        plain = self.stage is self.sample_share is self.schedule is None
        if plain and self.caps is self.chunks is self.server_blocks is self.server_mode is None:
            return  # the common case, quickly
        for view in (Groups, Schedules, ServerPart):
            names = view._fields
            given = [name for name in names if getattr(self, name) is not None]
            if given and len(given) < len(names):
                raise AllocationError(
                    f"{', '.join(names)} go together: give all of them or none, not {', '.join(given)} alone"
                )

    def given(self, name: str) -> Array | None:
        """Value of a field, its own or one of :attr:`others`; ``None`` where the plan leaves it out."""
        return self.others.get(name, self.__dict__.get(name))

    def said(self, name: str, declared: Declared | None = None) -> Array:
        """Value of a field, or its neutral number where the plan leaves it out.

        Args:
            declared: The field as its decision declares it, where it is one of :attr:`others`.
        """
        value = self.given(name)
        if value is not None:
            return value
        declared = declared or declarations(Allocation)[name]
        like = self.device_power if declared.axes == "N K" else self.micro_batches
        return np.full(np.shape(like), declared.neutral)

    @property
    def is_grouped(self) -> bool:
        """Whether the plan names the devices of its stages."""
        return self.stage is not None

    @property
    def is_scheduled(self) -> bool:
        """Whether the plan names schedules, GPipe or others."""
        return self.schedule is not None

    @property
    def is_split(self) -> bool:
        """Whether the plan names the server's part of the encoder."""
        return self.server_mode is not None

    @property
    def is_plain(self) -> bool:
        """Whether the plan has no groups, schedule or split training, so the action box can express it."""
        return self.stage is None and self.schedule is None and self.server_mode is None

    @property
    def plays(self) -> Array:
        """Clusters that take part (..., N), bool."""
        given = self.participates
        return self.micro_batches > 0 if given is None else given != 0

    def whole_steps(self, own: int) -> Array:
        """Local steps ``H_n`` of the clusters (..., N), int.

        Args:
            own: ``H`` of the workload, for clusters whose steps the plan leaves to it.
        """
        given = self.local_steps
        if given is None:
            return 0 * self.micro_batches + own
        return namespace(given).where(given < 0, own, given)

    def taken_steps(self, own: int, *, decided: bool) -> Array | None:
        """The same where schedulers decide about them or the plan gives them; ``None`` elsewhere."""
        return self.whole_steps(own) if decided or self.local_steps is not None else None

    def real_steps(self, own: int) -> Array:
        """Local steps as real numbers; see :meth:`whole_steps`."""
        if self.local_steps is None:
            return 0.0 * self.bandwidth + own
        return namespace(self.bandwidth).astype(self.whole_steps(own), self.bandwidth.dtype)

    @property
    def groups(self) -> Groups:
        """Slot and share of samples of each device."""
        if self.is_grouped:
            return Groups(self.stage, self.sample_share)
        held, xp = self.blocks > 0, namespace(self.blocks)
        slots = xp.arange(held.shape[-1], device=getattr(held, "device", None))
        return Groups(xp.where(held, slots, -1), xp.astype(held, self.device_power.dtype))

    @property
    def schedules(self) -> Schedules:
        """Schedule and chunks of each cluster, and the caps of its slots."""
        if self.is_scheduled:
            return Schedules(self.schedule, self.caps, self.chunks)
        nothing = 0 * self.micro_batches
        return Schedules(nothing + GPIPE, 0 * self.blocks, nothing + 1)

    @property
    def server(self) -> ServerPart:
        """Blocks of each cluster on the server, and the server's way of training them."""
        if self.is_split:
            return ServerPart(self.server_blocks, self.server_mode)
        nothing = 0 * self.micro_batches
        return ServerPart(nothing, nothing[..., 0] + COMMON)

    @property
    def device_blocks(self) -> Array:
        """Blocks of the stage that each device belongs to (..., N, K), 0 for an idle device."""
        return self.per_device(self.blocks)

    def per_device(self, slots: Array) -> Array:
        """Return each device's value of an array over stage slots (..., N, K), 0 for an idle device."""
        if self.stage is None:
            return slots
        xp = namespace(slots)
        slot = xp.where(self.stage < 0, 0, self.stage)
        return xp.where(self.stage < 0, 0, xp.take_along_axis(slots, slot, axis=-1))

    def of_share(self, values: Array) -> Array:
        """Return values of whole micro-batches (..., N, K) for the samples that each device has of them."""
        return values if self.sample_share is None else values * self.sample_share

    @property
    def node_power(self) -> Array:
        """Transmit powers of the CU and the devices (..., N, K+1) [W]."""
        xp = namespace(self.device_power)
        if xp is np:
            return np.concatenate((self.cu_power[..., None], self.device_power), axis=-1)
        return xp.concat((self.cu_power[..., None], self.device_power), axis=-1)


def own_arrays(allocation: Allocation) -> Allocation:
    """Return an allocation with its own copies of the arrays.

    Shares and powers become ``float64``, integers ``int64``: the checks and compiled code then see the same
    numbers whatever the types of the input.

    Raises:
        AllocationError: If the argument is not an allocation, one of its first five fields is missing, or an
            array holds a value that is not a real number or an integer that ``int64`` cannot hold.
    """
    if not isinstance(allocation, Allocation):
        raise AllocationError(f"a {type(allocation).__name__} was given, expected an Allocation")
    owned: dict[str, Array] = {}
    for name, declared in declarations(Allocation).items():
        value = getattr(allocation, name)
        yes_or_no = name in ("recompute", "participates") and value is not None
        if yes_or_no and np.asarray(value).dtype == np.bool_:
            value = np.asarray(value, dtype=np.int64)
        if value is not None:
            owned[name] = (float_numbers if declared.kind == "real" else whole_numbers)(name, value)
        elif not hasattr(Allocation, name):
            raise AllocationError(f"{name} is None, which every plan needs: give an array")
    if not isinstance(allocation.others, Mapping) or not all(isinstance(n, str) for n in allocation.others):
        raise AllocationError("others is no dictionary of arrays by name: give one, or leave it out")
    others = {
        name: (whole_numbers if np.asarray(value).dtype.kind in "iu" else float_numbers)(name, value)
        for name, value in allocation.others.items()
    }
    return Allocation(**owned, others=others)


def with_values(allocation: Allocation, values: Mapping[str, Array]) -> Allocation:
    """Return the same plan with some values of decisions, its own fields or :attr:`Allocation.others`."""
    names = values.keys() - Allocation.__dataclass_fields__.keys()
    own = values if not names else {name: value for name, value in values.items() if name not in names}
    others = allocation.others if not names else {**allocation.others, **{k: values[k] for k in names}}
    found = made(Allocation, **{**allocation.__dict__, **own, "others": others})
    found.__post_init__()
    return found


def stack_allocations(
    allocations: Sequence[Allocation], join: Callable[[Sequence[Array]], Array] = np.stack
) -> Allocation:
    """Stack single allocations into one with a new leading batch axis.

    Allocations with and without extensions may be mixed: those without get the explicit defaults.

    Args:
        allocations: At least one allocation; all of the same shape.
        join: Joins the arrays of a field.

    Raises:
        AllocationError: If only some of them give a value that has no field of its own.
    """
    names = [name for name in declarations(Allocation) if any(a.given(name) is not None for a in allocations)]
    if any(a.given(name) is None for a in allocations for name in names):
        allocations = [_explicit(a) for a in allocations]
    own = allocations[0].others.keys()
    for some in (allocation.others.keys() ^ own for allocation in allocations):
        if some:
            raise AllocationError(
                f"{', '.join(sorted(some))}: give it in all plans that are joined, or in none"
            )
    return Allocation(
        **{name: join([getattr(a, name) for a in allocations]) for name in names},
        others={name: join([a.others[name] for a in allocations]) for name in own},
    )


def _explicit(plan: Allocation) -> Allocation:
    """The same plan with all of its own fields given."""
    neutral = [name for name, declared in declarations(Allocation).items() if declared.neutral is not None]
    views = {**plan.groups._asdict(), **plan.schedules._asdict(), **plan.server._asdict()}
    return replace(plan, **views, **{name: plan.said(name) for name in neutral})


def with_schedule(
    allocation: Allocation, name: ScheduleName, caps: Array, chunks: int | Array = 1
) -> Allocation:
    """Return the same plan under one schedule in all clusters.

    Args:
        allocation: A plan (...).
        caps: Caps of the stage slots, broadcastable to (..., N, K).
        chunks: ``v``, broadcastable to (..., N).
    """
    clusters = allocation.micro_batches.shape
    return replace(
        allocation,
        schedule=np.full(clusters, SCHEDULES.index(name)),
        caps=np.broadcast_to(np.asarray(caps, dtype=np.int64), allocation.blocks.shape).copy(),
        chunks=np.broadcast_to(np.asarray(chunks, dtype=np.int64), clusters).copy(),
    )
