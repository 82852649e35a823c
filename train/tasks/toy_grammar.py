"""The grammar of toy translation as tables: every shape a source sentence can have, and the way to its target.

A sentence is a row of slots, most of them empty; its *shape* says which category of word each slot holds.

    sentence   phrase [does not] verb [phrase] [to phrase] [in phrase] [time]
    phrase     [a | an | the | this | these | my] [adjective] noun [relative clause]
    relative   that [does not] verb [phrase]    the head acts: the cat that eats the fish
               that phrase [does not] verb      the head is acted on: the fish that the cat eats

Verbs and determiners agree in number; a singular noun has a determiner. There is one relative clause at most, at the
subject or at the object. The verb decides the rest: object (transitive), object and to phrase (ditransitive), to phrase
(motion) or neither (intransitive); an in phrase goes with transitive and intransitive verbs.

The target takes the slots in another order, each word through a table: articles and number vanish, a particle follows
each phrase, a relative clause stands before its head, and the verb comes last, with masu or, negated, with masen.
"""

from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from train.tasks import toy_lexicon as words
from train.tasks.split import Ids
from train.text.vocabulary import SPECIAL, Vocabulary

Shapes = npt.NDArray[np.uint8]  # [k, slots] categories
Slot = tuple[int, dict[str, str]]  # of the target: the source slot it translates, and its words

# Names in the plural are the forms that go with a plural: nouns, and verbs without -s.
Category = IntEnum(
    "Category",
    "EMPTY DETERMINER DETERMINERS THAT DOES DO NOT TO IN ANIMATE ANIMATES OBJECT OBJECTS PLACE ADJECTIVE TIME "
    "TRANSITIVE TRANSITIVES INTRANSITIVE INTRANSITIVES DITRANSITIVE DITRANSITIVES MOTION MOTIONS",
    start=0,
)
C = Category

# Slots, left to right. Those of a relative clause: that, phrase (if the head is acted on), does, not, verb after not,
# verb, phrase (if the head acts).
PHRASE, RELATIVE = 3, 11
SUBJECT, OBJECT, TO, IN, TIME, SLOTS = 0, 18, 32, 36, 40, 41
VERB_NEGATED, VERB = 16, 17  # of the sentence: does 14, not 15


class Grammar(NamedTuple):
    """Tables of k shapes, c categories and the two vocabularies.

    category_ks: category in each slot. length_k, width_k: words of the source, and at most of the target.
    group_k: which sentences a shape belongs with: kind of verb, negated or not, with a relative clause or not.
    sentences_k: number of different sentences of the shape.
    first_c, count_c: the words of a category are the ids first .. first + count - 1; EMPTY is id 0, PAD.
    column_t, table_tn: target slot t is table_tn[t, word in slot column_t]; PAD stands for nothing.
    begins_with_vowel_n, a, an: what turns "a" into "an". masen: the target's last word where the sentence is negated.
    """

    source: Vocabulary
    target: Vocabulary
    category_ks: Shapes
    length_k: npt.NDArray[np.int64]
    width_k: npt.NDArray[np.int64]
    group_k: npt.NDArray[np.int64]
    sentences_k: npt.NDArray[np.int64]
    first_c: Ids
    count_c: Ids
    column_t: npt.NDArray[np.int64]
    table_tn: Ids
    begins_with_vowel_n: npt.NDArray[np.bool_]
    a: int
    an: int
    masen: int


@cache
def grammar() -> Grammar:
    """The tables, made once."""
    source, first_c, count_c = _source_words()
    target, column_t, table_tn = _target_words(source)
    category_ks, group_k = _shapes()
    # A target slot can be filled if a word of its category has a translation there.
    width_k = np.zeros(len(category_ks), dtype=np.int64)
    for column, row_n in zip(column_t, table_tn, strict=True):
        fillable = [row_n[first : first + count].any() for first, count in zip(first_c, count_c, strict=True)]
        width_k += np.array(fillable)[category_ks[:, column]]
    return Grammar(
        source=source,
        target=target,
        category_ks=category_ks,
        length_k=np.count_nonzero(category_ks, axis=1),
        width_k=width_k,
        group_k=group_k,
        sentences_k=np.prod(np.maximum(count_c, 1).astype(np.int64)[category_ks], axis=1),
        first_c=first_c,
        count_c=count_c,
        column_t=column_t,
        table_tn=table_tn,
        begins_with_vowel_n=np.array([token[0] in "aeiou" for token in source.tokens]),
        a=source.encode(["a"])[0],
        an=source.encode(["an"])[0],
        masen=target.encode(["masen"])[0],
    )


def _source_words() -> tuple[Vocabulary, Ids, Ids]:
    """The source vocabulary, and first id and number of words of each category."""
    singular_things, plural_things, _ = zip(*words.THINGS, strict=True)
    singular_animates, plural_animates, _ = zip(*words.ANIMATES, strict=True)
    runs: dict[Category, Sequence[str]] = {
        C.DETERMINER: ("a", "this", "the", "my"),
        C.DETERMINERS: ("the", "my", "these"),
        C.THAT: ("that",),
        C.DOES: ("does",),
        C.DO: ("do",),
        C.NOT: ("not",),
        C.TO: ("to",),
        C.IN: ("in",),
        C.OBJECT: singular_animates + singular_things,
        C.OBJECTS: plural_animates + plural_things,
        C.ANIMATE: singular_animates,
        C.ANIMATES: plural_animates,
        C.PLACE: [entry[0] for entry in words.PLACES],
        C.ADJECTIVE: [entry[0] for entry in words.ADJECTIVES],
        C.TIME: [entry[0] for entry in words.TIMES],
    }
    verbs = {
        C.TRANSITIVE: words.TRANSITIVES,
        C.INTRANSITIVE: words.INTRANSITIVES,
        C.DITRANSITIVE: words.DITRANSITIVES,
        C.MOTION: words.MOTIONS,
    }
    for singular, entries in verbs.items():
        runs[singular] = [entry[1] for entry in entries]
        runs[Category(singular + 1)] = [entry[0] for entry in entries]
    # The words of a category have ids one after the other; categories overlap where they share words.
    source = Vocabulary([*dict.fromkeys(word for run in runs.values() for word in run), "an"])
    first_c, count_c = np.zeros((2, len(Category)), dtype=np.int32)
    for category, run in runs.items():
        first_c[category], count_c[category] = source.encode(run[:1])[0], len(run)
    return source, first_c, count_c


def _target_words(source: Vocabulary) -> tuple[Vocabulary, npt.NDArray[np.int64], Ids]:
    """The target vocabulary, and for each target slot the source slot it translates and its table of words."""
    content = source.tokens[len(SPECIAL) :]
    plain = {"this": "kono", "these": "kono", "my": "watashi"}
    plain |= dict((*words.PLACES, *words.ADJECTIVES, *words.TIMES))
    for singular, plural, translation in (*words.ANIMATES, *words.THINGS):
        plain[singular] = plain[plural] = translation
    stem, before_noun, before_noun_negated = dict[str, str](), dict[str, str](), dict[str, str]()
    for base, third, form, *others in (*words.TRANSITIVES, *words.INTRANSITIVES, *words.DITRANSITIVES, *words.MOTIONS):
        stem[base] = stem[third] = form
        if others:
            before_noun[base] = before_noun[third] = others[0]
            before_noun_negated[base] = others[1]

    def phrase(start: int, particle: str) -> list[Slot]:
        determiner, adjective, noun = range(start, start + PHRASE)
        word = [(determiner, plain), (determiner, {"my": "no"}), (adjective, plain), (noun, plain)]
        return [*word, (noun, dict.fromkeys(content, particle))]

    def relative(start: int) -> list[Slot]:
        verb = [(start + 6, before_noun_negated), (start + 7, before_noun)]
        return [*phrase(start + 1, "ga"), *phrase(start + 8, "o"), *verb]

    slots = [
        (TIME, plain),
        *relative(SUBJECT + PHRASE),
        *phrase(SUBJECT, "wa"),
        *phrase(IN + 1, "de"),
        *phrase(TO + 1, "ni"),
        *relative(OBJECT + PHRASE),
        *phrase(OBJECT, "o"),
        (VERB_NEGATED, stem),
        (VERB, stem),
        (VERB_NEGATED, dict.fromkeys(content, "masen")),
        (VERB, dict.fromkeys(content, "masu")),
    ]
    target = Vocabulary(dict.fromkeys(word for _, table in slots for word in table.values()))
    table_tn = np.zeros((len(slots), len(source)), dtype=np.int32)
    for row_n, (_, table) in zip(table_tn, slots, strict=True):
        row_n[source.encode(table)] = target.encode(table.values())
    return target, np.array([column for column, _ in slots]), table_tn


def _shapes() -> tuple[Shapes, npt.NDArray[np.int64]]:
    """All shapes [k, SLOTS], and the group of each."""
    # A pair is (singular, plural); `number` is the place in it.
    animate = _singular(C.ANIMATE), _plural(C.ANIMATES)
    anything = _singular(C.OBJECT), _plural(C.OBJECTS)
    acted_on = [
        _beside(_row(C.THAT), animate[number], _either(*_verb(C.TRANSITIVE, number)), _gap(PHRASE)) for number in (0, 1)
    ]
    subject_with_relative, object_with_relative = [], []
    for number in (0, 1):
        acts = _either(
            _beside(_row(C.THAT), _gap(PHRASE), _either(*_verb(C.TRANSITIVE, number)), _either(*anything)),
            _beside(_row(C.THAT), _gap(PHRASE), _either(*_verb(C.INTRANSITIVE, number)), _gap(PHRASE)),
        )
        subject_with_relative.append(_beside(animate[number], _either(acts, *acted_on)))
        object_with_relative += [_beside(animate[number], acts), _beside(anything[number], _either(*acted_on))]
    no_object, bare_object = _gap(PHRASE + RELATIVE), _beside(_either(*anything), _gap(RELATIVE))

    place = _singular(C.PLACE)
    no_to, no_in = _gap(IN - TO), _gap(TIME - IN)
    maybe_in = _either(no_in, _beside(_row(C.IN), place))
    kinds = [
        (C.INTRANSITIVE, False, _beside(no_to, maybe_in)),
        (C.MOTION, False, _beside(_row(C.TO), place, no_in)),
        (C.TRANSITIVE, True, _beside(no_to, maybe_in)),
        (C.DITRANSITIVE, True, _beside(_row(C.TO), _either(*animate), no_in)),
    ]
    maybe_time = _either(_gap(1), _row(C.TIME))

    shapes: list[Shapes] = []
    groups: list[npt.NDArray[np.int64]] = []
    for kind, (verb, has_object, rest) in enumerate(kinds):
        for number in (0, 1):
            bare_subject, after = _beside(animate[number], _gap(RELATIVE)), bare_object if has_object else no_object
            arguments = [(0, bare_subject, after), (1, subject_with_relative[number], after)]
            if has_object:
                arguments.append((1, bare_subject, _either(*object_with_relative)))
            for negated, predicate in enumerate(_verb(verb, number)):
                for relative, subject, after in arguments:
                    shapes.append(_beside(subject, predicate, after, rest, maybe_time))
                    groups.append(np.full(len(shapes[-1]), 4 * kind + 2 * negated + relative, dtype=np.int64))
    return np.concatenate(shapes), np.concatenate(groups)


def _row(*categories: int) -> Shapes:
    return np.array([categories], dtype=np.uint8)


def _gap(slots: int) -> Shapes:
    return np.zeros((1, slots), dtype=np.uint8)


def _either(*parts: Shapes) -> Shapes:
    """One of the parts, all of one width."""
    return np.concatenate(parts)


def _beside(*parts: Shapes) -> Shapes:
    """Every combination of the parts, side by side."""
    row = np.indices([len(part) for part in parts]).reshape(len(parts), -1)
    return np.concatenate([part[index] for part, index in zip(parts, row, strict=True)], axis=1)


def _singular(noun: int) -> Shapes:
    return _beside(_row(C.DETERMINER), _either(_row(C.ADJECTIVE, noun), _row(C.EMPTY, noun)))


def _plural(noun: int) -> Shapes:
    determiner = _either(_row(C.DETERMINERS), _row(C.EMPTY))
    return _beside(determiner, _either(_row(C.ADJECTIVE, noun), _row(C.EMPTY, noun)))


def _verb(singular: int, number: int) -> tuple[Shapes, Shapes]:
    """Affirmed and negated: does, not, verb after not, verb. The category of a verb's plural follows its singular."""
    affirmed = _row(C.EMPTY, C.EMPTY, C.EMPTY, singular + number)
    return affirmed, _row((C.DOES, C.DO)[number], C.NOT, singular + 1, C.EMPTY)
