"""Beam search for captions that begin with, avoid or contain given words.

Shapes: B images, N captions per image, V vocabulary, t words so far, S states, A symbols, K
continuations and ended captions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

import torch
from jaxtyping import Float, Int
from torch import Tensor

from captioning.data.vocabulary import EOS, PAD
from captioning.errors import InputError
from captioning.search.beam import BeamSearch
from captioning.search.search import Decoded

Phrase = tuple[int, ...]
"""The ids of words that follow each other."""

State = tuple[frozenset[Phrase], Phrase] | None
"""The phrases that are missing, and the longest end of the words so far with which a phrase begins;
None once a phrase to avoid is said."""

MOST_TRANSITIONS = 2**19
"""The largest automaton: a second's work to build."""


@dataclass(eq=False, kw_only=True)
class ConstrainedBeamSearch(BeamSearch):
    """Beam search among the captions that meet constraints on their words.

    A finite automaton reads each caption and says how many words it still needs until all phrases
    are said (Anderson et al. 2017, "Guided Open Vocabulary Image Captioning with Constrained Beam
    Search"). Captions that need equally many are a bank. The banks share the beam (Post & Vilar
    2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation for Neural Machine
    Translation"): they choose in turns, the bank that needs the fewest words first, and a bank
    that runs out leaves its turns to the others. So a phrase that has been begun is not given up
    for its cost, and every caption meets the constraints, however narrow the beam.

    Probabilities are the model's own, not renormalised among the words that are allowed.

    Args:
        begin: ids of the words that every caption begins with.
        avoid: phrases, as ids, that no caption contains.
        must_say: phrases that every caption contains, where they may overlap. Words of these and
            of `begin` may repeat in spite of `no_repeat_ngram`.

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
        known = 1 + max((*self.automaton.symbols.tolist(), *self.begin))
        needed = len(self.begin) + self.automaton.read(begin, known)[0].item()
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
        tokens, vocabulary, now = decoded.tokens, log_probs.shape[2], decoded.tokens.shape[2]
        before, needed = self.automaton.read(tokens, vocabulary)
        required = needed < before[:, :, None]
        if now < len(self.begin):
            required = torch.arange(vocabulary, device=tokens.device) == self.begin[now]
            log_probs.masked_fill_(~required, -inf)
        log_probs.masked_fill_(needed > self.max_length - now - 1, -inf)
        allowed = log_probs.clone()
        self.forbid(allowed, tokens)
        # What the constraints ask for comes before the other limits.
        allowed = torch.where(required, log_probs, allowed)
        banks = reversed(range(self.automaton.banks))
        return (allowed.masked_fill(needed != bank, -inf) for bank in banks)

    def choose(self, ranks: Float[Tensor, "B K"]) -> Int[Tensor, "B N"]:
        """The captions that the banks choose in turns; ended captions are in bank 0."""
        n = self.width
        places = torch.arange(ranks.shape[1], device=ranks.device).expand_as(ranks)
        of_bank_0 = places[:, -2 * n :].gather(1, ranks[:, -2 * n :].topk(n).indices)
        banks = torch.cat([places[:, : -2 * n], of_bank_0], dim=1).unflatten(1, (-1, n))
        turns = banks.flip(1).transpose(1, 2).flatten(1)
        are_missing = ranks.gather(1, turns).isneginf().int()
        return turns.gather(1, are_missing.argsort(dim=1, stable=True)[:, :n])


class Automaton:
    """Says how many more words a caption needs until all phrases are said.

    A state holds the phrases still to say and the part of a phrase just said (Aho & Corasick 1975,
    "Efficient String Matching"). Words that are in no phrase share a symbol.

    Args:
        avoid: phrases that lead to a state that nothing leads out of.
        must_say: phrases without which a caption may not end.

    Attributes:
        symbols: PAD, which stands for all words in no phrase, EOS and the words in phrases: (A,).
        table: the next state of each state by symbol, (S, A); captions start in state 0.
        needed: the fewest words that each state needs, (S,); infinite if a phrase to avoid is said.
        banks: the number of finite numbers of them, from 0.
    """

    def __init__(self, avoid: Sequence[Sequence[int]], must_say: Sequence[Sequence[int]]) -> None:
        self.avoid, said = frozenset(map(tuple, avoid)), frozenset(map(tuple, must_say))
        phrases = self.avoid | said
        symbols = [PAD, EOS, *sorted({word for phrase in phrases for word in phrase})]
        self.beginnings = {phrase[:n] for phrase in phrases for n in range(len(phrase))} | {()}
        numbers: dict[State, int] = {(said, ()): 0}
        states, rows = list(numbers), []
        for state in states:  # which grows meanwhile
            if len(states) * len(symbols) > MOST_TRANSITIONS:
                raise InputError("too many words to say or to avoid; give fewer")
            after = [self._after(state, symbol) for symbol in symbols]
            for new in after:
                if new not in numbers:
                    numbers[new] = len(states)
                    states.append(new)
            rows.append([numbers[new] for new in after])
        self.symbols, self.table = torch.tensor(symbols), torch.tensor(rows)
        needed = torch.tensor([inf if state is None or state[0] else 0.0 for state in states])
        while not (nearer := needed.minimum(needed[self.table].amin(dim=1) + 1)).equal(needed):
            needed = nearer
        self.needed = needed
        self.banks = 1 + int(needed[needed.isfinite()].amax()) if needed.isfinite().any() else 1

    def _after(self, state: State, token: int) -> State:
        """The state after one more token."""
        if state is None or (token == EOS and state[0]):
            return None
        if token == EOS:
            return state
        missing, end = state
        ends = [(*end, token)[n:] for n in range(len(end) + 2)]  # the longest first
        if self.avoid.intersection(ends):
            return None
        return missing.difference(ends), next(each for each in ends if each in self.beginnings)

    def read(
        self, tokens: Int[Tensor, "B N t"], vocabulary: int
    ) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N V"]]:
        """How many words captions need now, and how many after each next word."""
        device = tokens.device
        if self.table.device != device:  # moved once, not at every word
            parts = self.symbols, self.table, self.needed
            self.symbols, self.table, self.needed = (part.to(device) for part in parts)
        symbol_of = torch.zeros(vocabulary, dtype=torch.long, device=device)
        symbol_of[self.symbols] = torch.arange(len(self.symbols), device=device)
        states = torch.zeros(tokens.shape[:2], dtype=torch.long, device=device)
        for words in tokens.unbind(2):
            states = self.table[states, symbol_of[words]]
        return self.needed[states], self.needed[self.table[states]][..., symbol_of]
