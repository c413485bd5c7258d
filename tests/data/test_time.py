"""No text of a stranger takes more time than its length explains."""

from collections.abc import Callable
from contextlib import suppress
from time import process_time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from captioning.data.dataset import SIDE_WORDS
from captioning.data.readers import dataset_files, flickr, rows, validation
from captioning.data.splits import split_in
from captioning.data.tokenizers import join_words, tokenizer, tokenizer_hint
from captioning.data.vocabulary import Vocabulary
from captioning.errors import printable
from captioning.evaluation.grounding.targets import RUN_LENGTHS
from captioning.metrics.meteor_words import normalized
from captioning.serving.protection import AUTHORITY

LENGTH, SECONDS = 16_000, 0.8
"""Characters of a text and what they may take, three times of what the slowest matcher needs. A
time that grows with the square of the length is two seconds and more."""

MATCHERS: dict[str, Callable[[str], object]] = {
    "words": lambda text: Vocabulary.build([text]),
    "characters": lambda text: join_words(tokenizer("characters")(text), "characters"),
    "hint": lambda text: tokenizer_hint([text], "ptb"),
    "METEOR": normalized,
    "cells": lambda text: (rows.is_photo_name(text), rows.column_name(text), rows._unquoted(text)),
    "lists": lambda text: rows._parse_captions(f"['{text}']"),
    "names": lambda text: (
        validation.COPY.sub("", text),
        dataset_files.path_ends(text),
        split_in(text),
    ),
    "phrases": flickr._parse_sentence,
    "sides": SIDE_WORDS.search,
    "masks": RUN_LENGTHS.fullmatch,
    "hosts": AUTHORITY.fullmatch,
    "messages": printable,
}

PARTS = r"""
    a A n T s 0 . , - _ ' " / \ # @ < > [ ] ( ) & ; : = ? ! | * + ~ $ é м 字 ก ½ n't 's http:// www.
    .com cannot copy (1) left &# [/EN#1/a -lrb- no. </ S, U.S. x.jpg 😀
"""
PART = st.sampled_from([*PARTS.split(), " ", "\n", "\t", "\u0301", "\u200c", "\u2019", "\ud800"])
"""What patterns look for."""


def text_of(beginning: str, repeated: str, end: str) -> str:
    return beginning + repeated * (LENGTH // len(repeated)) + end


@pytest.mark.parametrize("matcher", MATCHERS.values(), ids=MATCHERS.keys())
@settings(max_examples=3, deadline=None)
@given(st.builds(text_of, PART, st.lists(PART, min_size=1, max_size=3).map("".join), PART))
@example(text_of("<", "\n", "\n"))
@example(text_of("a", "S,", "\u0301"))
@example(text_of("", "-www.", ""))
@example(text_of("", "[/EN#1/a", ""))
@example(text_of("", "[/EN#1/a b] ", ""))
@example(text_of("", "\u0301", "-"))
def test_time_grows_with_the_length_of_a_text_alone(
    matcher: Callable[[str], object], text: str
) -> None:
    def seconds() -> float:
        began = process_time()
        with suppress(ValueError):  # what is refused takes no longer
            matcher(text)
        return process_time() - began

    assert seconds() < SECONDS or seconds() < SECONDS  # the machine may have paused
