"""Beam search for captions that begin with, avoid or contain given words.

Shapes: B images, N captions per image, V vocabulary, t words so far, S states, A symbols, K
continuations and ended captions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.data.vocabulary import EOS, PAD
from captioning.errors import InputError
from captioning.search.beam import BeamSearch
from captioning.search.search import Decoded

TokenPhrase = tuple[int, ...]
"""Ids of successive words."""

AutomatonState = tuple[frozenset[TokenPhrase], TokenPhrase] | None
"""The missing phrases, and the longest suffix of the words so far that begins a phrase; None after
a phrase to avoid."""

MAX_TRANSITIONS = 2**19
"""Maximum size of an automaton, which takes a second to build."""


@dataclass(eq=False, kw_only=True)
class ConstrainedBeamSearch(BeamSearch):
    """Beam search for captions that meet constraints on their words.

    A finite automaton reads each caption and counts the words it still needs to contain all phrases
    (Anderson et al. 2017, "Guided Open Vocabulary Image Captioning with Constrained Beam
    Search"). Captions that need the same number are a bank. The banks share the beam (Post & Vilar
    2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation for Neural Machine
    Translation"): they choose in turns, the bank that needs the fewest words first, and an empty
    bank leaves its turns to the others. So the beam never drops a begun phrase for its cost, and
    every caption meets the constraints, even with a narrow beam.

    Probabilities are not renormalised among the allowed words.

    Args:
        begin: ids of the words that every caption begins with.
        avoid: phrases, as ids, that no caption contains.
        must_say: phrases that every caption contains; they may overlap. Words of these and of
            `begin` may repeat in spite of `no_repeat_ngram`.

    Raises:
        InputError: no caption meets the constraints, or they are too many.
    """

    begin: Sequence[int] = ()
    avoid: Sequence[Sequence[int]] = ()
    must_say: Sequence[Sequence[int]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.automaton = Automaton(self.avoid, self.must_say)
        begin = torch.tensor([[self.begin]], dtype=torch.long)
        vocabulary = 1 + max((*self.automaton.symbols.tolist(), *self.begin))
        needed = len(self.begin) + self.automaton.read(begin, vocabulary)[0].item()
        if needed == inf:
            raise InputError("words that must be said have words to avoid; drop either of them")
        if needed > self.max_length:
            raise InputError(
                f"what must be said takes {needed:.0f} words, but a caption has at most "
                f"{self.max_length}; allow longer captions"
            )

    def gains(
        self, decoded: Decoded, log_probs: Float[Tensor, "B N V"]
    ) -> Iterable[Float[Tensor, "B N V"]]:
        """The log probabilities of the words that lead to each bank, bank 0 last."""
        tokens, vocabulary, length = decoded.tokens, log_probs.shape[2], decoded.tokens.shape[2]
        needed_now, needed = self.automaton.read(tokens, vocabulary)
        required = needed < needed_now[:, :, None]
        if length < len(self.begin):
            required = torch.arange(vocabulary, device=tokens.device) == self.begin[length]
            log_probs.masked_fill_(~required, -inf)
        log_probs.masked_fill_(needed > self.max_length - length - 1, -inf)
        allowed = log_probs.clone()
        self.forbid(allowed, tokens)
        # Constraints come before the other limits.
        allowed = torch.where(required, log_probs, allowed)
        banks = reversed(range(self.automaton.banks))
        return (allowed.masked_fill(needed != bank, -inf) for bank in banks)

    def choose(self, scores: Float[Tensor, "B K"]) -> Int[Tensor, "B N"]:
        """Let the banks choose captions in turns; finished captions are in bank 0."""
        n = self.width
        indices = torch.arange(scores.shape[1], device=scores.device).expand_as(scores)
        bank_0 = indices[:, -2 * n :].gather(1, scores[:, -2 * n :].topk(n).indices)
        banks = torch.cat([indices[:, : -2 * n], bank_0], dim=1).unflatten(1, (-1, n))
        turns = banks.flip(1).transpose(1, 2).flatten(1)
        is_missing = scores.gather(1, turns).isneginf().int()
        return turns.gather(1, is_missing.argsort(dim=1, stable=True)[:, :n])


class Automaton:
    """Counts the words that a caption still needs to contain all phrases.

    A state holds the missing phrases and the begun part of a phrase (Aho & Corasick 1975,
    "Efficient String Matching"). Words that are in no phrase share a symbol.

    Args:
        avoid: phrases that lead to a final, failed state.
        must_say: phrases without which a caption may not end.

    Attributes:
        symbols: PAD for all words in no phrase, EOS, and the words in phrases: (A,).
        table: the next state by state and symbol, (S, A); captions start in state 0.
        needed: minimum number of words that each state needs, (S,); infinite if it has failed.
        banks: one more than the largest finite number of needed words.
    """

    def __init__(self, avoid: Sequence[Sequence[int]], must_say: Sequence[Sequence[int]]) -> None:
        self.avoid, required = frozenset(map(tuple, avoid)), frozenset(map(tuple, must_say))
        phrases = self.avoid | required
        symbols = [PAD, EOS, *sorted(set(chain.from_iterable(phrases)))]
        self.prefixes: set[TokenPhrase] = {()}
        for phrase in phrases:
            self.prefixes.update(phrase[:length] for length in range(len(phrase)))
        numbers: dict[AutomatonState, int] = {(required, ()): 0}
        states, rows = list(numbers), []
        for state in states:  # which grows in the loop
            if len(states) * len(symbols) > MAX_TRANSITIONS:
                raise InputError("too many words to say or to avoid; give fewer")
            next_states = [self._next_state(state, symbol) for symbol in symbols]
            for next_state in next_states:
                if next_state not in numbers:
                    numbers[next_state] = len(states)
                    states.append(next_state)
            rows.append([numbers[next_state] for next_state in next_states])
        self.symbols, self.table = torch.tensor(symbols), torch.tensor(rows)
        # Shortest paths to states without missing phrases (Bellman-Ford).
        needed = torch.tensor([inf if state is None or state[0] else 0.0 for state in states])
        while not (shorter := needed.minimum(needed[self.table].amin(dim=1) + 1)).equal(needed):
            needed = shorter
        self.needed = needed
        self.banks = 1 + int(needed[needed.isfinite()].amax()) if needed.isfinite().any() else 1

    def _next_state(self, state: AutomatonState, token: int) -> AutomatonState:
        """The state after one more token."""
        if state is None or (token == EOS and state[0]):
            return None
        if token == EOS:
            return state
        missing, prefix = state
        words = (*prefix, token)
        suffixes = [words[start:] for start in range(len(words) + 1)]  # the longest first
        if self.avoid.intersection(suffixes):
            return None
        next_prefix = next(suffix for suffix in suffixes if suffix in self.prefixes)
        return missing.difference(suffixes), next_prefix

    def read(
        self, tokens: Int[Tensor, "B N t"], vocabulary: int
    ) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N V"]]:
        """The number of words that captions need now, and after each next word."""
        device = tokens.device
        if self.table.device != device:  # moved once, not at every word
            self.symbols, self.table = self.symbols.to(device), self.table.to(device)
            self.needed = self.needed.to(device)
        symbol_of = torch.zeros(vocabulary, dtype=torch.long, device=device)
        symbol_of[self.symbols] = torch.arange(len(self.symbols), device=device)
        states = torch.zeros(tokens.shape[:2], dtype=torch.long, device=device)
        for words in tokens.unbind(2):
            states = self.table[states, symbol_of[words]]
        return self.needed[states], self.needed[self.table[states]][..., symbol_of]
