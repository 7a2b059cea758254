"""A scenario that trains in no time."""

from collapipe_env.scenario import load_scenario

TINY = {
    "workload.blocks": 2,
    "workload.batch_size": 8,
    "learning.proxy.width": 8,
    "learning.proxy.feedforward": 8,
    "learning.proxy.sequence_length": 8,
    "learning.proxy.vocabulary": 200,
    "learning.evaluation_samples": 20,
    "learning.metric_samples": 20,
}


def tiny_scenario(folder):
    """The file of a scenario that trains in no time."""
    path = folder / "tiny.yaml"
    path.write_text(load_scenario("small").with_overrides({"name": "tiny", **TINY}).to_yaml())
    return path
