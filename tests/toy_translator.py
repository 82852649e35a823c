"""A second translator of the toy grammar, which parses the source words by rule and knows no tables of shapes."""

from train.tasks import toy_lexicon

NOUNS = {form: entry[-1] for entry in (*toy_lexicon.ANIMATES, *toy_lexicon.THINGS) for form in entry[:2]}
SINGULAR = {entry[0] for entry in (*toy_lexicon.ANIMATES, *toy_lexicon.THINGS, *toy_lexicon.PLACES)}
PLACES, ADJECTIVES, TIMES = (dict(e) for e in (toy_lexicon.PLACES, toy_lexicon.ADJECTIVES, toy_lexicon.TIMES))
LISTS = (toy_lexicon.TRANSITIVES, toy_lexicon.INTRANSITIVES, toy_lexicon.DITRANSITIVES, toy_lexicon.MOTIONS)
VERBS = {form: entry for entries in LISTS for entry in entries for form in entry[:2]}
DETERMINERS = {"the": [], "a": [], "an": [], "this": ["kono"], "these": ["kono"], "my": ["watashi", "no"]}


def translate(words: list[str]) -> list[str]:
    rest = list(words)
    subject, singular = read_phrase(rest, clause=True)
    verb, negated = read_verb(rest, singular)
    objects, to, place, time = list[str](), list[str](), list[str](), list[str]()
    if rest and rest[0] not in ("to", "in", *TIMES):
        objects = [*read_phrase(rest, clause=True)[0], "o"]
    if rest and rest[0] == "to":
        rest.pop(0)
        to = [*read_phrase(rest)[0], "ni"]
    if rest and rest[0] == "in":
        rest.pop(0)
        place = [*read_phrase(rest)[0], "de"]
    if rest:
        time = [TIMES[rest.pop(0)]]
    assert not rest, f"words left over: {rest}"
    assert bool(objects) == (verb in toy_lexicon.TRANSITIVES + toy_lexicon.DITRANSITIVES)
    assert bool(to) == (verb in toy_lexicon.DITRANSITIVES + toy_lexicon.MOTIONS)
    return [*time, *subject, "wa", *place, *to, *objects, verb[2], "masen" if negated else "masu"]


def read_phrase(rest: list[str], *, clause: bool = False) -> tuple[list[str], bool]:
    determiner = rest.pop(0) if rest[0] in DETERMINERS else ""
    if determiner in ("a", "an"):
        assert determiner == ("an" if rest[0][0] in "aeiou" else "a"), f"{determiner} {rest[0]}"
    adjective = [ADJECTIVES[rest.pop(0)]] if rest[0] in ADJECTIVES else []
    noun = rest.pop(0)
    singular = noun in SINGULAR
    assert determiner in (("the", "a", "an", "this", "my") if singular else ("", "the", "these", "my"))
    before = read_clause(rest, singular) if clause and rest and rest[0] == "that" else []
    return [*before, *DETERMINERS.get(determiner, []), *adjective, (NOUNS | PLACES)[noun]], singular


def read_clause(rest: list[str], head_singular: bool) -> list[str]:
    assert rest.pop(0) == "that"
    if rest[0] in VERBS or rest[0] in ("do", "does"):
        verb, negated = read_verb(rest, head_singular)
        arguments = [*read_phrase(rest)[0], "o"] if verb in toy_lexicon.TRANSITIVES else []
    else:
        agent, singular = read_phrase(rest)
        arguments = [*agent, "ga"]
        verb, negated = read_verb(rest, singular)
        assert verb in toy_lexicon.TRANSITIVES
    return [*arguments, verb[4] if negated else verb[3]]


def read_verb(rest: list[str], singular: bool) -> tuple[tuple[str, ...], bool]:
    negated = rest[0] in ("do", "does")
    if negated:
        assert rest.pop(0) == ("does" if singular else "do")
        assert rest.pop(0) == "not"
    form = rest.pop(0)
    verb = VERBS[form]
    assert form == verb[1 if singular and not negated else 0], f"{form} does not agree"
    return verb, negated
