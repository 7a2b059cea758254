"""Messages as they travel: their real size, what arrives, and what error feedback remembers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collapipe_env.physics.payload import (
    SCALED_TOGETHER,
    UpdateFormat,
    index_bits,
    message_bits,
    worthwhile_entries,
)
from collapipe_env.training.update_compression import UpdateCompressor, encode


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def update(senders, size, seed=0, scale=1.0):
    return scale * torch.randn(senders, size, generator=generator(seed))


def compressor(parts, like, seed=0, **options):
    """A compressor of the updates of all clusters (N, P), which are like these."""
    return UpdateCompressor(UpdateFormat(**options), parts, len(like), like[0], generator(seed))


def packed(message, sender):
    """One sender's message on the air: values, scales of 8-bit integers, indices from their highest bit on.

    The byte that gives the shift of half precision is a control message and is left out.
    """
    data = message.values[sender].numpy().tobytes()
    if message.values.dtype == torch.int8:
        data += message.scale[sender].numpy().astype(np.float32).tobytes()
    if message.indices is not None:
        places = message.indices[sender].numpy()
        bits = places[:, None] >> np.arange(index_bits(message.size) - 1, -1, -1) & 1
        data += np.packbits(bits.astype(np.uint8)).tobytes()
    return data


def unpacked(data, size, entries, bits):
    """An independent receiver: values, scales and indices from the bytes of a message."""
    values = np.frombuffer(data, {32: np.float32, 16: np.float16, 8: np.int8}[bits], entries).astype(float)
    place = entries * bits // 8
    if bits == 8:
        groups = -(-entries // SCALED_TOGETHER)
        scales = np.frombuffer(data, np.float32, groups, place).astype(np.float64)
        values = values * np.repeat(scales, SCALED_TOGETHER)[:entries]
        place += 4 * groups
    indices = np.arange(size)
    if entries < size:
        width = index_bits(size)
        digits = np.unpackbits(np.frombuffer(data, np.uint8, offset=place))[: entries * width]
        indices = digits.reshape(entries, width) @ (1 << np.arange(width - 1, -1, -1, dtype=np.int64))
    return values, indices


BITS, SEEDS = st.sampled_from([8, 16, 32]), st.integers(0, 99)


@settings(max_examples=30, deadline=None)
@given(size=st.integers(1, 5000), share=st.floats(0.001, 1), bits=BITS, seed=SEEDS)
def test_messages_have_the_priced_size_and_can_be_read_back(size, share, bits, seed):
    wire = UpdateFormat(bits, "top-k", share)
    x = update(2, size, seed)
    entries = wire.entries(size)
    indices = x.abs().topk(entries).indices if entries < size else None
    message = encode(x, bits, generator(seed), indices)
    for sender in range(2):
        data = packed(message, sender)
        assert len(data) == -(-wire.upload_bits(size) // 8)
        values, places = unpacked(data, size, entries, bits)
        if bits == 16:
            values = values * float(message.scale[sender])  # the shift, a control message
        received = np.zeros(size)
        received[places] = values
        np.testing.assert_allclose(message.decode()[sender].numpy(), received, rtol=1e-6)


@settings(max_examples=20, deadline=None)
@given(size=st.integers(1, 3000), scale=st.sampled_from([1e-30, 1e-9, 1.0, 1e30]), seed=SEEDS)
def test_half_precision_keeps_eleven_digits_at_any_scale(size, scale, seed):
    """Relative error of half precision is 2^-11, down to entries 2^-28 times as large as the largest."""
    x = update(3, size, seed, scale)
    arrived = encode(x, 16, generator()).decode()
    assert ((arrived - x).abs() <= 2.0**-11 * x.abs() + 2.0**-38 * x.abs().amax(-1, keepdim=True)).all()
    plain = x.half().float()
    if scale in (1e-9, 1e-30):
        assert not plain.any()  # what the shift is there for
        assert arrived.any()
    elif scale == 1.0:
        assert torch.equal(encode(plain, 16, generator()).decode(), plain)


@settings(max_examples=20, deadline=None)
@given(size=st.integers(1, 4000), scale=st.sampled_from([1e-12, 1.0, 1e12]), seed=SEEDS)
def test_integers_err_by_less_than_a_step_of_their_own_group(size, scale, seed):
    x = update(2, size, seed, scale)
    x[:, : size // 2] *= 100.0
    arrived = encode(x, 8, generator(seed)).decode()
    for start in range(0, size, SCALED_TOGETHER):
        part = slice(start, start + SCALED_TOGETHER)
        step = x[:, part].abs().amax(dim=-1, keepdim=True) / 127
        assert ((arrived[:, part] - x[:, part]).abs() <= 1.0001 * step).all()


def test_random_rounding_is_unbiased():
    """Mean of many roundings, within five standard errors; rounding to nearest would be off by far more."""
    x = torch.tensor([[1.27, 0.0123, -0.0057, 0.0049, -0.6261, 0.0]])
    rolls = 4000
    mean = encode(x.expand(rolls, -1), 8, generator(1)).decode().mean(dim=0, keepdim=True)
    step = 0.01
    error = 5 * 0.5 * step / rolls**0.5
    assert ((mean - x).abs() < error).all()
    nearest = (x / step).round() * step
    assert ((nearest - x).abs().max() > 2 * error).item()


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_zeros_stay_zeros_and_broken_updates_do_not_look_sound(bits):
    assert not encode(torch.zeros(2, 40), bits, generator()).decode().any()
    x = update(2, 40)
    x[0, 3] = torch.nan
    arrived = encode(x, bits, generator()).decode()
    assert not arrived[0].isfinite().all()
    assert arrived[1].isfinite().all()


PARTS = [[slice(0, 30)], [slice(30, 50), slice(70, 80)], [slice(50, 70), slice(80, 90)]]
EVERYTHING = np.ones((3, 3), dtype=bool)


@settings(max_examples=20, deadline=None)
@given(share=st.floats(0.02, 1), bits=BITS, rounds=st.integers(1, 6), seed=SEEDS)
def test_error_feedback_loses_nothing(share, bits, rounds, seed):
    """All that was sent and what is still remembered add up to all updates; unsent parts stay untouched."""
    like = update(3, 90).double()
    subject = compressor(PARTS, like, weight_bits=bits, compression="top-k", top_k_share=share)
    sent_total, update_total = torch.zeros(2, 3, 90, dtype=torch.float64)
    rng = np.random.default_rng(seed)
    for t in range(rounds):
        x = update(3, 90, seed + t).double()
        sent = rng.random((3, 3)) < 0.7
        arrived = x.clone()
        memory = subject.residuals.clone()
        subject.upload(arrived, sent)
        on_air = torch.zeros(3, 90, dtype=torch.bool)
        for n, p in np.argwhere(sent):
            for place in PARTS[p]:
                on_air[n, place] = True
        sent_total += arrived * on_air
        update_total += x * on_air
        assert torch.equal(arrived[~on_air], x[~on_air])
        assert torch.equal(subject.residuals[~on_air], memory[~on_air])
    torch.testing.assert_close(sent_total + subject.residuals, update_total, rtol=0, atol=1e-12)


def test_the_largest_entries_of_each_part_are_sent():
    x = update(3, 90)
    subject = compressor(PARTS, x, weight_bits=32, compression="top-k", top_k_share=0.1)
    arrived = x.clone()
    subject.upload(arrived, EVERYTHING)
    for places in PARTS:
        part, got = (torch.cat([rows[:, place] for place in places], -1) for rows in (x, arrived))
        for row, kept in zip(part, got != 0, strict=True):
            assert int(kept.sum()) == 3
            assert row[kept].abs().min() > row[~kept].abs().max()
        assert torch.equal(got[got != 0], part[got != 0])


@pytest.mark.parametrize("share", [0.01, 0.38])
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_broadcast_sends_the_union_in_no_more_than_it_is_priced(bits, share, monkeypatch):
    """Three senders' entries, added up: all of them arrive, and the real message fits its price.

    Places are named only where that makes the message shorter.
    """
    size, wire = 2000, UpdateFormat(bits, "top-k", share)
    x = update(3, size)
    subject = UpdateCompressor(wire, [[slice(0, size)]], 3, x[0], generator())
    subject.upload(x, np.ones((3, 1), dtype=bool))
    mean = x.mean(dim=0)
    union = mean != 0
    assert share * size < int(union.sum()) < min(3.01 * share, 1.0) * size
    sent = []
    monkeypatch.setattr(
        "collapipe_env.training.update_compression.encode", lambda *a: sent.append(encode(*a)) or sent[-1]
    )
    arrived = mean.clone()
    subject.broadcast(arrived, np.ones(1, dtype=bool))
    (message,) = sent
    sent_entries = worthwhile_entries(size, int(union.sum()), bits)
    assert (sent_entries < size) == (message.indices is not None) == (share < 0.1)
    assert 8 * len(packed(message, 0)) <= -(-wire.broadcast_bits(size, 3) // 8) * 8
    assert 8 * len(packed(message, 0)) == -(-message_bits(size, sent_entries, bits) // 8) * 8
    assert not arrived[~union].any()
    tolerance = {8: float(mean.abs().max()) / 127, 16: 1e-3 * float(mean.abs().max()), 32: 0.0}[bits]
    assert (arrived - mean).abs().max() <= 1.0001 * tolerance


def test_nothing_to_send_is_nothing():
    nothing = torch.zeros(2, 5)
    subject = compressor([[slice(0, 5)], []], nothing, weight_bits=8, compression="top-k", top_k_share=0.2)
    subject.upload(nothing, np.ones((2, 2), dtype=bool))
    assert not nothing.any()
    mean = torch.zeros(5)
    subject.broadcast(mean, np.ones(2, dtype=bool))
    assert not mean.any()
