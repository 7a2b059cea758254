"""What tests of the tools share: pages with empty parts, and a scenario that trains in no time."""

import generated_parts

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


def page_of(path, *parts):
    """Write a page with words around old parts."""
    begin, end = generated_parts.BEGIN, generated_parts.END
    marks = [f"{begin.format(part)}\nold\n{end.format(part)}" for part in parts]
    path.write_text("\n".join(["Words before", *marks, "Words after", ""]))
    return path


def filled(page):
    """Text of a page, whose old parts are gone while the words around them stay."""
    text = page.read_text()
    assert text.startswith("Words before\n")
    assert text.endswith("Words after\n")
    assert "old" not in text.splitlines()
    return text
