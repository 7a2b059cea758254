"""Labels of schedulers in tables and figures, the notes that explain their marks, and counted nouns."""

SERVER_MARK = "†"
"""Mark after the name of a scheduler whose plans put encoder blocks on the edge server."""
SERVER_NOTE = (
    f"{SERVER_MARK} also trains encoder blocks on the edge server, whose energy is in no budget here; with "
    "the other schedulers the server trains only the head or decoder."
)
BUDGET_NOTE = (
    f"{SERVER_MARK} also trains encoder blocks on the edge server, whose energy has a budget here: the "
    "worst energy and the queues include it."
)


def counted(number: int, noun: str) -> str:
    """A number of things in words, such as ``1 round`` and ``2 rounds``, from the noun in the singular."""
    return f"{number} {noun}{'s' if number != 1 else ''}"


def label_of(title: str, server_blocks: int, runs: int = 1) -> str:
    """A scheduler's title with its training runs, if several, and a mark if it uses the server's compute."""
    named = f"{title} ({runs} runs)" if runs > 1 else title
    return f"{named} {SERVER_MARK}" if server_blocks > 0 else named
