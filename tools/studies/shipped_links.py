"""SNR and spectral efficiency of links of all shipped scenarios: a table, and a figure with the limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from generated_parts import markdown_table
from matplotlib.figure import Figure

from collapipe_env.evaluation.plotting import COLOURS, INK, new_figure
from collapipe_env.feasibility.sampled_rounds import sample_rounds
from collapipe_env.ground.arrays import FloatArray
from collapipe_env.physics.radio import d2d_noise, d2d_snr
from collapipe_env.physics.rates import spectral_efficiency, uplink_snr
from collapipe_env.scenario import load_scenario
from collapipe_env.scenario.loading import scenario_digest
from collapipe_env.scenario.names import PRESETS
from collapipe_env.simulator.build import system_parameters
from collapipe_env.simulator.costs import round_costs
from collapipe_env.simulator.even_split import even_split

KINDS = ("hops", "uplinks", "downlinks")
PARTS = (0.05, 0.5, 0.95)
"""Shares of links and rounds below the figures."""


def snr_by_kind(name: str) -> dict[str, FloatArray]:
    """SNR of the links of a scenario under the even split at full power, in sampled rounds."""
    scenario = load_scenario(name)
    parameters, state = system_parameters(scenario), sample_rounds(scenario).state
    plan = even_split(parameters, state)
    costs = round_costs(parameters, state, plan)
    noise = d2d_noise(parameters.noise_density, parameters.d2d_bandwidth_hz, costs.interference)
    gain = np.asarray(state.d2d_gain)
    hops = d2d_snr(plan.node_power, gain, noise)
    works = np.concatenate((np.ones_like(plan.blocks[..., :1]), plan.blocks), axis=-1) > 0
    used = works[..., None] & works[..., None, :] & ~np.eye(gain.shape[-1], dtype=bool)
    uplinks = uplink_snr(plan.bandwidth, plan.cu_power, state.uplink_gain, parameters.uplink_noise_w)
    downlinks = parameters.bs_power_w * state.uplink_gain / parameters.downlink_noise_w
    return dict(zip(KINDS, (hops[used], np.ravel(uplinks), np.ravel(downlinks)), strict=True))


def _decibels(snr: FloatArray) -> FloatArray:
    return 10.0 * np.log10(np.maximum(snr, 1e-30))


def digest() -> bytes:
    """The scenarios, which the parts do not name."""
    return repr([scenario_digest(load_scenario(name)) for name in PRESETS]).encode()


def table(entry: Mapping[str, Any], quick: bool) -> str:
    """The table of all shipped scenarios."""
    rows = []
    for name in PRESETS[:1] if quick else PRESETS:
        law, cells = system_parameters(load_scenario(name)).link, []
        for snr in snr_by_kind(name).values():
            cells.append(" / ".join(f"{x:.0f}" for x in np.quantile(_decibels(snr), PARTS)))
            cells.append(" / ".join(f"{x:.1f}" for x in np.quantile(spectral_efficiency(law, snr), PARTS)))
        rows.append([f"`{name}`", *cells])
    heads = [head for kind in KINDS for head in (f"{kind}, dB", "bit/s/Hz")]
    return markdown_table(("scenario", *heads), rows)


def _limits() -> Iterator[tuple[float, str]]:
    """SNR of the limits of the default law of rates [dB], and what they are."""
    law = system_parameters(load_scenario("medium")).link
    yield 10.0 * np.log10(law.snr_floor), "floor"
    yield 10.0 * np.log10(2.0 ** (law.ceiling / law.attenuation) - 1.0), "256-QAM"


def picture() -> Figure:
    """Ranges from 5 to 95 % of the SNR of each kind of link in each shipped scenario."""
    figure = new_figure(9.0, 0.22 * len(PRESETS) + 1.2)
    panels = figure.subplots(1, 3, sharey=True)
    for panel, kind in zip(panels, KINDS, strict=True):
        for level, limit in _limits():
            panel.axvline(level, color=INK, linewidth=1.0, linestyle=(0, (3.0, 1.5)))
            panel.text(level, -1.0, limit, color=INK, fontsize=7.5, ha="center")
        panel.set_title(kind, pad=22)
        panel.set_xlabel("SNR (dB)")
    for place, name in enumerate(PRESETS):
        for panel, colour, snr in zip(panels, COLOURS, snr_by_kind(name).values(), strict=False):
            low, middle, high = np.quantile(_decibels(snr), PARTS)
            panel.plot((low, high), (place, place), color=colour, linewidth=4.0, solid_capstyle="butt")
            panel.plot(middle, place, "o", color=INK, markersize=3.0)
    panels[0].set_yticks(range(len(PRESETS)), PRESETS, fontsize=7.5)
    panels[0].set_ylim(len(PRESETS) - 0.5, -0.5)
    return figure
