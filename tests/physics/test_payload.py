"""Prices of update messages, against counting by hand."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from round_support import make_parameters

from collapipe_env.physics.block_costs import adapter_parameters, linear_maps
from collapipe_env.physics.payload import UpdateFormat, index_bits, message_bits
from collapipe_env.scenario import load_scenario
from collapipe_env.simulator.build import system_parameters


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


@settings(max_examples=100)
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


@pytest.mark.parametrize(
    "options",
    [
        {"weight_bits": 8},
        {"compression": "top-k", "top_k_share": 0.01},
        {"compression": "top-k", "top_k_share": 0.3},
        {"adapter_parameters": 1234, "compression": "lora"},
    ],
)
def test_a_workload_sends_its_parts_in_its_format(options):
    plain = make_parameters(3).costs
    costs = replace(plain, **options)
    w, e, L, bits = costs.block_parameters, costs.embedding_parameters, costs.blocks, costs.weight_bits
    wire = UpdateFormat(bits, options.get("compression", "none"), options.get("top_k_share", 0.1))
    lora = "adapter_parameters" in options
    trained = 1234 if lora else w
    assert costs.block_payload_bits == wire.upload_bits(trained)
    embedding = 0 if lora else wire.upload_bits(e)
    assert costs.update_payload_bits == L * wire.upload_bits(trained) + embedding
    assert costs.block_broadcast_bits(3) == wire.broadcast_bits(trained, 3)
    assert costs.block_broadcast_bits(0) == trained * bits + (32 * -(-trained // 1024) if bits == 8 else 0)
    assert costs.embedding_broadcast_bits(3) == (0 if lora else wire.broadcast_bits(e, 3))
    assert plain.update_payload_bits == (L * w + e) * 16
    # A ring moves dense gradients, whatever is sent later; frozen blocks need their weights alone.
    assert costs.block_gradient_bits == trained * bits
    assert costs.block_state_bytes == (4 * w + 16 * 1234 if lora else 16 * w)
    assert costs.block_copy_bytes == 4 * trained


def test_compressed_and_adapted_updates_are_sent_on_as_the_broadcast_has_them():
    w = 789_760  # parameters of a block of medium
    for fields, bits in (
        ({"update_compression": "none"}, 16 * w),
        ({"update_compression": "none", "weight_bits": 32}, 32 * w),
        ({"update_compression": "lora", "lora_rank": 4}, 16 * 4 * (8 * 256 + 2 * 1024)),
        ({"update_compression": "top-k", "top_k_share": 0.01}, message_bits(w, 4 * math.ceil(0.01 * w), 16)),
    ):
        scenario = load_scenario({"base": "medium", "workload": {"distribution": "relay", **fields}})
        assert system_parameters(scenario).numbers.relay_bits == bits
