"""What tests of energy feasibility share."""

from unpriced_support import NO_OVERHEADS, PAPER_RADIO

from collapipe_env.scenario import load_scenario

README_EXAMPLE = {
    "base": "medium",
    "cluster": {"clusters": 3, "devices": [4, 6, 5], "layout": "per_episode"},
    "radio": {"link_errors": "arq", "d2e_shadowing_db": 8.0},
    "budgets": {"device_energy_j": 10.0},
}


def tiny(seed, blocks=4, area=40.0, radio=None, overheads=None, workload=None, **budgets):
    """One cluster of three devices, small enough to try every split, with the paper's radio if not given."""
    return load_scenario(
        {
            "base": "medium",
            "name": f"tiny-{seed}-{blocks}-{budgets}",
            "workload": {"blocks": blocks, **(workload or {})},
            "cluster": {"clusters": 1, "devices": 3, "layout_seed": seed, "area_side_m": area},
            "radio": PAPER_RADIO if radio is None else radio,
            "devices": {"power_min_w": 0.002},
            "overheads": overheads or NO_OVERHEADS,
            "budgets": budgets,
        }
    )
