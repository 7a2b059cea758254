"""Text that trained language models wrote at the end of an episode, for a terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from collapipe_env.evaluation.comparison import ScenarioComparison
from collapipe_env.evaluation.labels import counted
from collapipe_env.evaluation.table import markdown_text

KINDS = {"prompt": "beginning", "document": "the document", "greedy": "greedy", "top_p": "top-p 0.9"}
"""Fields of a sample and their labels."""
NOTHING = "(nothing: it ended at once)"


def samples_report(
    comparisons: Sequence[ScenarioComparison], escaped: Callable[[str], str] = markdown_text
) -> str:
    """Return all samples in Markdown; empty where there are none.

    Args:
        escaped: Form of names and texts in the page; ``str`` for a terminal.
    """
    lines = []
    for comparison in comparisons:
        for episode in (one for episodes in comparison.results.values() for one in episodes if one.samples):
            title = escaped(f"{comparison.name}: {episode.title}")
            lines.append(f"## {title}, {counted(len(episode.delay), 'round')}, episode {episode.episode}\n")
            for sample in episode.samples:
                texts = {kind: escaped(_one_line(sample.get(key, ""))) for key, kind in KINDS.items()}
                lines += [*(f"- {kind}: {text or NOTHING}" for kind, text in texts.items()), ""]
    return "\n".join(["# Samples", "", *lines]) if lines else ""


def _one_line(text: str) -> str:
    """Return a text in one line, without control characters; ends of lines become a mark."""
    marked = text.replace("\n", "¶")
    return "".join(c if c.isprintable() else "\ufffd" for c in marked)
