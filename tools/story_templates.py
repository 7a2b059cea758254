"""Words and sentences of the embedded stories, written for the project, for ``make_embedded_stories.py``.

In a sentence ``{a}`` is the hero, ``{he}``, ``{his}`` and ``{him}`` the hero's pronouns, ``{b}`` the friend,
``{thing}`` a thing, ``{place}`` and ``{far}`` two places, ``{helper}`` somebody who knows, ``{food}`` a meal,
``{time_}`` a time of the day and ``{few}`` a small number. Capitals begin a sentence: ``{He}``.
"""

from __future__ import annotations

GIRLS = (
    "Mira", "Tove", "Anouk", "Lena", "Suri", "Ilse", "Nadia", "Runa", "Femke", "Zora", "Elin", "Paloma",
    "Greta", "Oda", "Yara", "Birgit", "Clio", "Hanne", "Juno", "Marit",
)  # fmt: skip
BOYS = (
    "Tomas", "Emil", "Bram", "Idris", "Lasse", "Nico", "Oskar", "Pavel", "Ruben", "Sami", "Anton", "Jonas",
    "Kai", "Milo", "Viggo", "Henrik", "Luca", "Arne", "Dario", "Felix",
)  # fmt: skip
SETTINGS: dict[str, dict[str, tuple[str, ...]]] = {
    "coast": {
        "place": ("the harbour", "the lighthouse", "the fish market", "the old pier", "the boat shed"),
        "far": ("the far island", "the sand bank", "the bay of stones", "the salt marsh"),
        "thing": ("net", "lantern", "compass", "rowing boat", "brass bell", "fishing line"),
        "helper": ("the ferryman", "the lighthouse keeper", "the net maker", "the harbour master"),
        "food": ("smoked fish", "warm bread", "mussels", "seaweed soup"),
    },
    "mountain": {
        "place": ("the stone bridge", "the upper meadow", "the goat stable", "the well", "the wooden chapel"),
        "far": ("the high pass", "the blue glacier", "the empty hut", "the valley of pines"),
        "thing": ("rope", "copper kettle", "walking stick", "sledge", "woollen blanket", "cow bell"),
        "helper": ("the shepherd", "the cheese maker", "the woodcutter", "the guide"),
        "food": ("goat cheese", "barley soup", "dried apples", "honey cake"),
    },
    "town": {
        "place": ("the market square", "the clock tower", "the library", "the bakery", "the tram stop"),
        "far": (
            "the last station", "the park behind the river", "the glass factory", "the hill with the mill"
        ),
        "thing": ("violin", "bicycle", "paper kite", "letter", "silver key", "pocket watch"),
        "helper": ("the baker", "the tram driver", "the watchmaker", "the librarian"),
        "food": ("plum cake", "lentil soup", "roasted nuts", "cinnamon rolls"),
    },
    "forest": {
        "place": ("the mill pond", "the hollow oak", "the charcoal kiln", "the rope bridge", "the clearing"),
        "far": ("the black lake", "the hill of birches", "the ruined tower", "the edge of the moor"),
        "thing": ("basket", "lamp", "wooden flute", "axe", "map", "bee hive"),
        "helper": ("the forester", "the herb woman", "the bee keeper", "the miller"),
        "food": ("mushroom pie", "blueberries", "chestnuts", "rye bread"),
    },
}  # fmt: skip
TIMES = (
    "early in the morning",
    "at noon",
    "late in the afternoon",
    "in the evening",
    "before sunrise",
    "after the rain",
)
FEW = ("two", "three", "four", "five", "six")

OPENINGS = (
    "{a} lived near {place} with {his} friend {b}.",
    "There was once a {child} called {a}, who lived close to {place}.",
    "Everybody at {place} knew {a} and {his} friend {b}.",
    "{a} and {b} had been friends for {few} years, and they met at {place} every day.",
    "In a small house by {place} there lived a {child} called {a}.",
)
PLOTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "lost": (
        (
            "One day {he} could not find {his} {thing}.",
            "{time_} {he} noticed that {his} {thing} was gone.",
            "But one day the {thing} that {he} loved most was lost.",
        ),
        (
            "{He} looked under the bed, behind the door and in the garden, but the {thing} was not there.",
            "{He} asked {few} neighbours, but nobody had seen the {thing}.",
            "{He} searched the whole house {few} times and found nothing.",
        ),
        (
            '"I will help you," said {b}, and together they went to {far}.',
            '{b} said, "Where did you use the {thing} last?" and {a} remembered {far}.',
            "Then {b} had an idea, and they walked all the way to {far}.",
        ),
        (
            "There they met {helper}, who had found the {thing} and kept it dry.",
            "On the way they asked {helper}, who pointed at a {thing} on a shelf.",
            "{Helper} was waiting there with the {thing} in both hands.",
        ),
        (
            "{a} was so glad that {he} gave {helper} some {food}.",
            '"Thank you," said {a}, and {he} shared {his} {food} with {helper} and {b}.',
            "To thank {helper}, {a} and {b} brought {food} the next day.",
        ),
    ),
    "broken": (
        (
            "{time_} the {thing} fell from the table and broke.",
            "{He} had a {thing}, but it had been broken for {few} weeks.",
            "One day {he} borrowed a {thing} from {helper}, and it broke in {his} hands.",
        ),
        (
            '"What shall I do?" said {a}. "I need the {thing} tomorrow."',
            "{a} was sad, because {he} could not mend a {thing} alone.",
            "{He} tried to mend the {thing} with glue, but it did not hold.",
        ),
        (
            "{b} knew that {helper} could mend everything, and so they carried the {thing} to {place}.",
            '"Let us ask {helper}," said {b}, "who knows all about such things."',
            "So {a} and {b} put the {thing} in a bag and took it to {helper}.",
        ),
        (
            "{Helper} looked at it for a long time and asked for {few} nails and a little oil.",
            '"It is not as bad as it looks," said {helper}, and began to work.',
            "{Helper} showed {a} how to hold the {thing}, and they worked until it was dark.",
        ),
        (
            "{time_} the {thing} was as good as new, and they ate {food} together.",
            "In the end the {thing} was better than before, and {a} paid with {food}.",
            "When the {thing} was whole again, {a} laughed, and {b} laughed, too.",
        ),
    ),
    "journey": (
        (
            "One day {helper} asked {him} to bring a {thing} to {far}.",
            "{time_} {he} heard that somebody at {far} needed a {thing}.",
            "{He} had always wanted to see {far}.",
        ),
        (
            "{He} packed a {thing} and some {food} and said goodbye to {b}.",
            '"Take me with you," said {b}, and so the two of them left with the {thing} and a bag of {food}.',
            "{He} took the {thing} and enough {food} for {few} days.",
        ),
        (
            "The way to {far} was long, and after {few} hours it began to snow.",
            "They walked for {few} days, and at night they slept under a tree.",
            "After {few} hours {a} came to a river, and there was no bridge.",
        ),
        (
            "When {a} was too tired to go on, {helper} came by and showed {him} a shorter way.",
            "Luckily the {thing} was of use, and {he} did not lose the way.",
            '"You are nearly there," said {helper}. "Follow the path to {far}."',
        ),
        (
            "At last {a} saw {far}, and everybody there was glad about the {thing}.",
            "{time_} {he} reached {far}, gave away the {thing} and ate all the {food}.",
            "So {a} came to {far}, and {he} never forgot it.",
        ),
    ),
    "contest": (
        (
            "Every year there was a contest at {place}, and the prize was a {thing}.",
            "{time_} {helper} told everybody that whoever made the best {food} would get a {thing}.",
            "{He} wanted to win the {thing} that {helper} had promised to the fastest runner.",
        ),
        (
            "{a} practised for {few} weeks, and {b} helped {him}.",
            '"You cannot win," said some, but {b} believed in {him}.',
            "{He} got up {few} hours earlier than the others to practise near {far}.",
        ),
        (
            "On the day of the contest it rained, and only {few} people came to {place}.",
            "When the contest began, {his} hands were shaking.",
            "{time_} the contest began, and all of {place} was full of people.",
        ),
        (
            "In the middle {b} fell down, and {a} stopped to help.",
            "{a} was far ahead when {he} heard {b} call for help.",
            "Near the end {a} saw that {b} was crying, and {he} went back.",
        ),
        (
            "So {a} did not win, but {helper} gave {him} the {thing} all the same.",
            "{Helper} had seen it all, and both {a} and {b} got a {thing}.",
            "Somebody else won the {thing}, but {a} and {b} shared the {food} and were happy.",
        ),
    ),
}
ENDINGS = (
    "From that day on {a} and {b} went to {place} together.",
    "And if you come to {place}, you can still see the {thing} of {a} there.",
    "{b} still tells the story of {a} and the {thing}.",
    "That night {a} slept well.",
    "Since then {a} always says: a good friend is worth more than a {thing}.",
)
