"""Sentence patterns and common words of ``make_embedded_entities.py``; all written for this project.

A pattern is a sentence cut into words. ``{person}``, ``{location}``, ``{organisation}`` and
``{product}`` stand for names of that type, ``{date}`` for a day and ``{period}`` for a month or year, every
other word in braces for one of :data:`COMMON`.
"""


def words_of(text: str) -> list[str]:
    """Return the words of a text."""
    return text.split()


FORMAL = (
    "{person} was born in {location} in {period} .",
    "{person} , the mayor of {location} , opened the {adjective} {building} on {date} .",
    "shares of {organisation} fell {number} percent on {date} .",
    "{organisation} named {person} its new {job} .",
    "the {job} {person} will leave {organisation} in {period} .",
    "{organisation} presented the {product} at a fair in {location} .",
    "the {product} goes on sale on {date} for {number} crowns .",
    "a fire in {location} damaged the {building} of {organisation} .",
    "heavy rain is expected in {location} and {location} on {date} .",
    "{person} beat {person} in the final in {location} .",
    "{organisation} lost to {organisation} by {number} points on {date} .",
    "{organisation} sued {organisation} over the design of the {product} .",
    "the road from {location} to {location} is closed until {period} .",
    "{person} wrote a {adjective} book about {location} .",
    "according to {person} , the {product} needs a {adjective} {thing} .",
    "the {thing} was sent to {person} by mistake .",
    "the {thing} was sent to {location} by train .",
    "{job} {person} met workers of {organisation} in {location} .",
    "{organisation} will open a {building} in {location} by {period} .",
    "{person} studied at {organisation} until {period} .",
    "every {thing} in the {building} was sold before noon .",
    "the {adjective} {thing} stood next to the {building} .",
    "a {job} and a {job} argued about the {adjective} {thing} .",
    "the rose in the garden grew over the {thing} .",
    "they hope that the {building} will open soon .",
    "you may mark the {adjective} {thing} with a pen .",
    "the lantern in the hall threw a {adjective} light .",
    "soldiers march past the {building} at dawn .",
    "a comet was seen above the {building} .",
    "the anchor of the {adjective} boat was lost in the tide .",
    "the bill for the {thing} came to {number} crowns .",
    "the canvas hung in the {building} with grace .",
    "{number} people visited the {building} , the {job} said .",
    "the {job} said nothing about the {thing} .",
    "most of the {thing} came from {location} .",
    "most of the {thing} came from {organisation} .",
    "{person} and {person} founded {organisation} in {period} .",
    "{organisation} , based in {location} , makes the {product} .",
    "the {product} replaces the {product} , {organisation} said .",
    "in {location} , the {job} waited for {person} .",
    "on {date} , {person} resigned as {job} of {organisation} .",
    "since {period} , {organisation} has hired {number} people in {location} .",
    "the river near {location} rose after {date} .",
    "the museum in {location} shows a {thing} from {period} .",
    "the {adjective} {job} of {organisation} praised {person} .",
    "critics called the {product} a {adjective} {thing} .",
    "engineers at {organisation} tested the {product} with a {thing} .",
    "{person} , {number} , lives near {location} with a {job} .",
    "police in {location} are looking for {person} .",
    "workers at {organisation} went on strike on {date} .",
    "the bank raised rates by {number} points .",
    "the university closed its {adjective} {building} .",
    "the valley and the lake were quiet .",
    "the council met the {job} in the {building} .",
    "the {product} crashed while {person} gave a talk .",
    "an update of the {product} is planned for {date} .",
    "{location} borders {location} in the north .",
    "flights to {location} leave on {date} .",
    "the ferry between {location} and {location} was late .",
    "{person} scored twice for {organisation} .",
    "the trainer of {organisation} , {person} , blamed the {thing} .",
    "readers of the {thing} voted for {person} .",
    "prices in {location} rose {number} percent in {period} .",
    "the {building} was designed by {person} in {period} .",
    "the {building} was bought by {organisation} in {period} .",
    "a spokesman for {organisation} refused to comment .",
    "a letter from {person} to {person} was found in {location} .",
    "{organisation} and {person} agreed on a contract until {period} .",
    "the owners of the {product} complained about the {thing} .",
    "the {thing} of {person} was found near {location} .",
)
"""News-like sentences."""

CHATTY = (
    "just landed in {location} and it is {adjective} here !",
    "anyone else having problems with {product} since {period} ?",
    "omg {person} just liked my {thing} !!",
    "i hate how {organisation} treats its workers",
    "my {product} died again , going back to {product}",
    "see you in {location} on {date} ?",
    "cant wait for {date} lol",
    "{person} is the best {job} ever",
    "who is coming to the {building} on {date} ?",
    "traffic in {location} is so {adjective} today",
    "got a job at {organisation} !!! starting {date}",
    "why does {product} need so much {thing}",
    "thx {person} for the {thing} :)",
    "{product} or {product} ? need a new {thing}",
    "i will never ever buy a {thing} again",
    "had the most {adjective} {thing} today",
    "so we may or may not get a {thing} , hope so",
    "look at this {adjective} {thing} lol",
    "will someone mark the {thing} please",
    "up at dawn , {number} miles to go",
    "{person} told me {organisation} is hiring in {location}",
    "lost my {thing} in {location} , pls help",
    "is {organisation} down for anyone else ?",
    "rt : {person} plays in {location} on {date}",
    "@friend did you see {person} last night ?",
    "my {job} moved to {location} to work for {organisation}",
    "tried {product} on the train , so {adjective}",
    "{organisation} just sent me the wrong {thing} smh",
    "happy birthday {person} !",
    "back in {location} after {number} years",
    "{location} > {location} , fight me",
    "{organisation} vs {organisation} on {date} , who is in ?",
    "the {product} is such a {adjective} {thing}",
    "with {person} at the {building} , {adjective} evening",
    "no {thing} today , the {job} is ill",
)
"""Sentences as in messages, many of which are lower-cased."""

LINKS = (", and", ", but", ", while", "because", ", although", ";")
"""Words that join two clauses."""

COMMON = {
    "adjective": words_of("""
        old new small large quiet bright strange broken golden simple heavy early modern famous cheap lovely
        awful great boring slow wonderful weird red blue wooden
    """),
    "thing": words_of("""
        lamp table report song painting bicycle phone ticket letter parcel machine sandwich map bottle jacket
        camera plan bell guitar game cake battery screen coat garden engine speech story coin
    """),
    "building": [
        *words_of(
            "library station bridge museum factory theatre school market tower hospital harbour bakery"
        ),
        *("town hall", "city gate", "post office", "old mill", "stadium"),
    ],
    "job": words_of("""
        teacher director doctor minister singer captain engineer baker lawyer coach president painter nurse
        driver judge editor professor pilot chairwoman treasurer
    """),
    "number": words_of("3 4 5 7 9 12 15 18 20 24 30 42 65 90 120 300 1500"),
}
"""Words for the slots that are not names."""
