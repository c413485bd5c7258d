"""The alignment of a caption with a reference: which of the possible matches count.

Denkowski and Lavie 2014, section 2: each word is in one match at most, and of all such alignments
one is wanted that covers most words, in the fewest chunks, with the smallest distance. Chunks are
runs of matches that are adjacent, and in the same order, on both sides. A beam search over the
words of the reference finds it. What follows the program instead of the paper:

- Matches that share no word with any other, of one word with one, are always in the alignment.
- The others count by `COVERED` times their words, rounded down on each side, so that a stem, a
  synonym or a paraphrase of one word for one is worth nothing beside a chunk more.
- The distance, between the positions at which a match starts on either side, is that of the matches
  an alignment passed over, not of those it has: of several matches at one word, each adds the
  distance of those before it, and passing over the word adds that of all.
- A chunk counts when it ends. So of alignments equal in all, one with a chunk that is still open
  comes before one without, and stays before it.
"""

from operator import itemgetter
from typing import Any, TypeAlias

from captioning.metrics.meteor.matching import Match

BEAM = 40
"""Partial alignments that are kept at each word, and at the end."""

COVERED = (1, 0.6, 0.8, 0.6)
"""What a word counts that a module covers: the weights of the modules."""

WORDS, CHUNK = 1 << 60, 1 << 40
"""Parts of the cost of an alignment: words decide first, then chunks, then the distance."""

CLOSED = -1
"""In place of the caption's next word, where no chunk is open."""

Linked: TypeAlias = tuple[Any, Match] | None
"""A match after others, which are linked likewise."""

Partial: TypeAlias = tuple[int, int, int, int, Linked]
"""Cost, words of the caption in use (bits), next word of either side, and the matches."""

cost_of = itemgetter(0)


def align(matches: list[Match], words: int, caption_words: int) -> list[Match]:
    """The alignment, in the order of the reference.

    Args:
        matches: all that are possible.
        words: how many words the reference has.
        caption_words: how many the caption has.
    """
    starting: list[list[Match]] = [[] for _ in range(words)]
    uses, caption_uses = [0] * words, [0] * caption_words
    for match in matches:
        starting[match.start].append(match)
        for word in range(match.start, match.start + match.length):
            uses[word] += 1
        for word in range(match.caption_start, match.caption_start + match.caption_length):
            caption_uses[word] += 1
    partial: list[Partial] = [(0, 0, 0, CLOSED, None)]
    for word, options in enumerate(starting):
        fixed = len(options) == 1 and uses[word] == caption_uses[options[0].caption_start] == 1
        fixed = fixed and options[0].length == options[0].caption_length == 1
        # Sorting is stable: paths of one cost keep their order from word to word.
        partial = _extended(sorted(partial, key=cost_of)[:BEAM], word, options, fixed)
    found: list[Match] = []
    linked = min(sorted(partial, key=cost_of)[:BEAM], key=_closed)[4]
    while linked is not None:
        linked, match = linked
        found.append(match)
    return found[::-1]


def _extended(
    partial: list[Partial], word: int, options: list[Match], fixed: bool
) -> list[Partial]:
    """Partial alignments with each of the matches that start at a word, and without any."""
    choices = [
        (
            match,
            ((1 << match.caption_length) - 1) << match.caption_start,
            _covered(match) * WORDS,
            word + match.length,
            match.caption_start + match.caption_length,
        )
        for match in options
    ]
    found: list[Partial] = []
    for path in partial:
        cost, used, following, caption_following, linked = path
        if following > word:
            found.append(path)
            continue
        closed = _closed(path) - cost
        for match, bits, gain, end, caption_end in choices:
            if not used & bits:
                chunk = 0 if caption_following == match.caption_start else closed
                found.append((cost + chunk - gain, used | bits, end, caption_end, (linked, match)))
                cost += abs(word - match.caption_start)
        if not fixed:
            found.append((cost + closed, used, following, CLOSED, linked))
    return found


def _closed(path: Partial) -> int:
    """The cost with the chunk that is open."""
    return path[0] + (0 if path[3] == CLOSED else CHUNK)


def _covered(match: Match) -> int:
    weight = COVERED[match.module]
    return int(weight * match.length) + int(weight * match.caption_length)


def chunk_count(alignment: list[Match]) -> int:
    """How many chunks an alignment has."""
    count, ends = 0, (-1, -1)
    for match in alignment:
        count += ends != (match.start, match.caption_start)
        ends = (match.start + match.length, match.caption_start + match.caption_length)
    return count
