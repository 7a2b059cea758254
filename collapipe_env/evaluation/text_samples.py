"""Text that trained language models wrote at the end of an episode, for a terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

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
    sections = list(_sections(comparisons, escaped))
    return "\n".join(["# Samples", "", *sections]) if sections else ""


def _sections(comparisons: Sequence[ScenarioComparison], escaped: Callable[[str], str]) -> Iterator[str]:
    for comparison in comparisons:
        for episodes in comparison.results.values():
            for episode in episodes:
                if not episode.samples:
                    continue
                rounds = len(episode.delay)
                after = counted(rounds, "round")
                title = escaped(f"{comparison.name}: {episode.title}")
                yield f"## {title}, {after}, episode {episode.episode}\n"
                for sample in episode.samples:
                    lines = {title: escaped(_one_line(sample.get(key, ""))) for key, title in KINDS.items()}
                    yield "\n".join(f"- {title}: {line or NOTHING}" for title, line in lines.items())
                    yield ""


def _one_line(text: str) -> str:
    """Return a text in one line, without control characters; ends of lines become a mark."""
    marked = text.replace("\n", "¶")
    return "".join(c if c.isprintable() else "\ufffd" for c in marked)
