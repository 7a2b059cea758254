"""Prices of update messages: against counting by hand, and where they enter the costs of a round."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from physics_support import make_case

from collapipe_env.physics.allocation import COPIES
from collapipe_env.physics.block_costs import adapter_parameters, linear_maps
from collapipe_env.physics.payload import UpdateFormat, index_bits
from collapipe_env.simulator.costs import round_costs


def test_prices_by_hand():
    assert UpdateFormat(32).upload_bits(1000) == 32_000
    assert UpdateFormat(16).upload_bits(1000) == 16_000
    assert UpdateFormat(8).upload_bits(1024) == 8 * 1024 + 32
    assert UpdateFormat(8).upload_bits(1025) == 8 * 1025 + 64
    # 1000 numbers need 10 bits of index: 100 entries of 16 + 10 bits.
    assert UpdateFormat(16, "top-k", 0.1).upload_bits(1000) == 2_600
    assert UpdateFormat(8, "top-k", 0.1).upload_bits(1000) == 1_832
    # Four senders' entries, none in common, while that is shorter than all 1000 numbers.
    assert UpdateFormat(16, "top-k", 0.1).broadcast_bits(1000, 4) == 10_400
    assert UpdateFormat(16, "top-k", 0.1).broadcast_bits(1000, 7) == 16_000
    # With 70 % of them, indices cost more than they save, so all are sent.
    assert UpdateFormat(16, "top-k", 0.7).upload_bits(1000) == 16_000
    assert UpdateFormat(16, "none").broadcast_bits(1000, 7) == 16_000


def test_shares_are_taken_as_they_are_written():
    """In binary 0.07 * 100 is a little more than 7, and 0.29 * 100 a little less than 29."""
    assert UpdateFormat(16, "top-k", 0.07).entries(100) == 7
    assert UpdateFormat(16, "top-k", 0.29).entries(100) == 29
    assert UpdateFormat(16, "top-k", 0.071).entries(100) == 8
    assert UpdateFormat(16, "top-k", 1e-6).entries(100) == 1
    assert UpdateFormat(16, "top-k", 1e-12).entries(100) == 1


@given(size=st.integers(1, 10**7))
def test_indices_tell_all_places_apart_and_no_bit_is_wasted(size):
    bits = index_bits(size)
    assert 2**bits >= size
    assert bits == 0 or 2 ** (bits - 1) < size


@settings(max_examples=200)
@given(
    size=st.integers(1, 10**6),
    bits=st.sampled_from([8, 16, 32]),
    share=st.floats(1e-4, 1),
    senders=st.integers(1, 9),
)
def test_messages_never_exceed_the_dense_one_and_grow_with_the_share(size, bits, share, senders):
    dense = UpdateFormat(bits).upload_bits(size)
    sparse = UpdateFormat(bits, "top-k", share)
    assert sparse.upload_bits(size) <= sparse.broadcast_bits(size, senders) <= dense
    assert UpdateFormat(bits, "top-k", share / 2).upload_bits(size) <= sparse.upload_bits(size)
    assert sparse.broadcast_bits(size, 1) == sparse.upload_bits(size)


def test_adapters_by_hand():
    """Maps d -> 3d, d -> d, d -> f, f -> d of rank r: r times (4d + 2d + (d + f) + (f + d))."""
    assert adapter_parameters(linear_maps(256, 1024), 8) == 8 * (1024 + 512 + 1280 + 1280)


def priced(seed=3, *, groups=False, server_blocks=None, **changes):
    """Costs of the same random round under other formats of the updates."""
    parameters, state, allocation = make_case(seed, clusters=3, steps=2, groups=groups)
    parameters = replace(parameters, costs=replace(parameters.costs, **changes))
    if server_blocks is not None:
        cut = np.array(server_blocks)
        blocks = np.zeros_like(allocation.blocks)
        blocks[..., 0] = parameters.costs.blocks - cut
        allocation = replace(
            allocation,
            blocks=blocks,
            micro_batches=np.ones_like(allocation.micro_batches),
            server_blocks=np.broadcast_to(cut, blocks.shape[:-1]),
            server_mode=np.full(blocks.shape[:-2], COPIES),
        )
    return parameters.costs, round_costs(parameters, state, allocation)


FORMATS = [
    {"weight_bits": 8},
    {"compression": "top-k", "top_k_share": 0.01},
    {"compression": "top-k", "top_k_share": 0.3},
    {"adapter_parameters": 1234, "compression": "lora"},
]


@pytest.mark.parametrize("options", FORMATS)
def test_every_transfer_of_a_round_shrinks_by_its_priced_ratio_and_nothing_else_changes(options):
    costs, found = priced(**options)
    plain_costs, plain = priced()
    w, e, L, bits = costs.block_parameters, costs.embedding_parameters, costs.blocks, costs.weight_bits
    lora = "adapter_parameters" in options
    wire = UpdateFormat(bits, options.get("compression", "none"), options.get("top_k_share", 0.1))
    trained = 1234 if lora else w
    block, embedding = wire.upload_bits(trained), 0 if lora else wire.upload_bits(e)
    whole = (L * w + e) * 16
    np.testing.assert_allclose(found.collect, plain.collect * block / (w * 16), rtol=1e-12)
    np.testing.assert_allclose(found.upload, plain.upload * (L * block + embedding) / whole, rtol=1e-12)
    merged = L * wire.broadcast_bits(trained, 3) + (0 if lora else wire.broadcast_bits(e, 3))
    np.testing.assert_allclose(found.broadcast, plain.broadcast * merged / whole, rtol=1e-12)
    np.testing.assert_array_equal(found.local_step, plain.local_step)
    np.testing.assert_array_equal(found.survival, plain.survival)
    assert (found.energy < plain.energy).any()
    assert (found.energy <= plain.energy).all()
    if not lora:
        np.testing.assert_array_equal(found.memory, plain.memory)
    assert plain_costs.update_payload_bits == whole


def test_a_ring_moves_dense_gradients_whatever_is_sent_later():
    plain, compressed, lora, eight = (
        priced(groups=True, **options)[1].allreduce for options in ({}, FORMATS[1], FORMATS[3], FORMATS[0])
    )
    assert plain.any()
    w = priced()[0].block_parameters
    np.testing.assert_array_equal(compressed, plain)
    np.testing.assert_allclose(lora, plain * 1234 / w, rtol=1e-12)
    np.testing.assert_allclose(eight, plain / 2, rtol=1e-12)


def test_frozen_blocks_need_their_weights_and_the_adapters_state():
    costs, found = priced(adapter_parameters=1234)
    _, plain = priced()
    assert costs.block_state_bytes == 4 * costs.block_parameters + 16 * 1234
    assert costs.block_copy_bytes == 4 * 1234
    saved = costs.blocks * (12 * costs.block_parameters - 16 * 1234)
    np.testing.assert_allclose((plain.memory - found.memory).sum(axis=-1), saved, rtol=1e-9)


def test_blocks_that_only_some_clusters_send_are_broadcast_densely():
    """Clusters 0 to 2 send 6, 4 and 3 blocks: all send three, and the server trains three for some."""
    options = {"compression": "top-k", "top_k_share": 0.01}
    costs, found = priced(server_blocks=(0, 2, 3), **options)
    _, plain = priced(server_blocks=(0, 2, 3))
    wire, w, e = UpdateFormat(16, "top-k", 0.01), costs.block_parameters, costs.embedding_parameters
    merged = wire.broadcast_bits(e, 3) + 3 * wire.broadcast_bits(w, 3) + 3 * 16 * w
    np.testing.assert_allclose(found.broadcast, plain.broadcast * merged / (16 * (6 * w + e)), rtol=1e-12)
    _, less = priced(server_blocks=(1, 2, 3), **options)
    np.testing.assert_allclose(less.broadcast, found.broadcast * (merged - 16 * w) / merged, rtol=1e-12)
    sent = np.array([6, 4, 3])
    ratio = (wire.upload_bits(e) + sent * wire.upload_bits(w)) / (16 * (e + sent * w))
    np.testing.assert_allclose(found.upload, plain.upload * ratio, rtol=1e-12)
