"""Segments of chunks, and versions of weights that an asynchronous order leaves behind."""

from dataclasses import replace

import numpy as np
from round_support import make_case

from collapipe_env.physics.allocation import with_schedule
from collapipe_env.physics.segments import pipeline_blocks, version_gaps


def test_chunks_are_the_segments_that_are_trained():
    _, _, plan = make_case(2)
    plan = replace(plan, blocks=np.broadcast_to([5, 4, 0, 3], plan.blocks.shape))
    chunked = with_schedule(plan, "interleaved", np.array([9, 9, 9, 9]), 2)
    assert pipeline_blocks(chunked)[0, 0].tolist() == [3, 2, 0, 2, 2, 2, 0, 1]
    plain = with_schedule(plan, "1f1b", np.array([9, 9, 9, 9]))
    assert pipeline_blocks(plain) is plain.blocks


def test_version_gaps_are_those_of_the_order():
    """Count, in the 1F1B order itself, the updates missing at a mini-batch's first forward."""
    _, _, plain = make_case(4, lead=(1,), clusters=1, devices=4)
    plan = replace(plain, blocks=np.array([[[2, 0, 3, 1]]]), micro_batches=np.array([[4]]))
    for caps in ([9, 1, 5, 2], [3, 1, 4, 1], [6, 1, 6, 6]):
        found = version_gaps(with_schedule(plan, "async", np.array(caps)))[0, 0]
        least = 10**9
        for slot, cap in enumerate(caps):
            if plan.blocks[0, 0, slot] == 0:
                assert found[slot] == 0
                continue
            least = min(least, cap)
            g, M = 20, 4  # a mini-batch in the steady phase
            backwards_before = g * M - least + 1
            assert found[slot] == g - backwards_before // M
    assert version_gaps(with_schedule(plan, "1f1b", np.array([9, 1, 5, 2]))) is None
