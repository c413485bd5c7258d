"""The alignment of a caption with a reference: which of the possible matches count.

Denkowski and Lavie 2014, section 2: each word is in one match at most, and of all such alignments
one is wanted that covers most words, in the fewest chunks. Chunks are runs of matches that are
adjacent, and in the same order, on both sides. What follows the program instead of the paper:

- Matches that share no word with any other, of one word with one, are always in the alignment.
- The others count by `COVERED` times their words, rounded down on each side, so that a stem, a
  synonym or a paraphrase of one word for one is worth nothing beside a chunk more.
- Of alignments equal in both, one of most matches counts, and of these the first that is found.

The program breaks some of these ties by a rule that has not been found out, so that 2 % of real
captions differ (docs/how-to/evaluate.md).
"""

from operator import itemgetter
from typing import Any, TypeAlias

from captioning.metrics.meteor.matching import Match

BEAM = 40
"""Partial alignments that are kept at each word."""

COVERED = (1, 0.6, 0.8, 0.6)
"""What a word counts that a module covers: the weights of the modules."""

WORDS, CHUNK = 1 << 20, 1 << 10
"""Parts of the cost of an alignment: words decide first, then chunks, then matches (1 each)."""

Linked: TypeAlias = tuple[Any, Match] | None
"""A match after others, which are linked likewise."""

Partial: TypeAlias = tuple[int, int, int, int, Linked]
"""Cost, words of the caption in use (bits), next word of either side, and the matches."""


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
    partial: list[Partial] = [(0, 0, 0, 0, None)]
    for word, options in enumerate(starting):
        if not options:
            continue
        [first, *others] = options
        fixed = not others and uses[word] == 1 and caption_uses[first.caption_start] == 1
        fixed = fixed and first.length == first.caption_length == 1
        partial = _extended(partial, word, options, fixed)
        if len(partial) > BEAM:
            partial = sorted(partial, key=itemgetter(0))[:BEAM]
    found: list[Match] = []
    linked = min(partial, key=itemgetter(0))[4]
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
            -_covered(match) * WORDS - 1,
            word + match.length,
            match.caption_start + match.caption_length,
        )
        for match in options
    ]
    found: list[Partial] = []
    for path in partial:
        cost, used, following, caption_following, linked = path
        if following <= word:
            for match, bits, gain, end, caption_end in choices:
                if not used & bits:
                    adjacent = following == word and caption_following == match.caption_start
                    # What begins both sentences is adjacent to nothing.
                    chunk = 0 if adjacent and linked is not None else CHUNK
                    found.append(
                        (cost + gain + chunk, used | bits, end, caption_end, (linked, match))
                    )
            if fixed:
                continue
        found.append(path)
    return found


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
