"""The decoder of Show, Attend and Tell (Xu et al. 2015, section 3.1.2).

Shapes: B images, N captions per image, L regions, D annotation width, H width of the LSTM, m width
of a word embedding, A attention width, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from captioning.data.vocabulary import PAD
from captioning.models.attention import AdditiveAttention, Attention, HardAttention
from captioning.models.decoder import Decoder, Memory, State, Step


@dataclass(frozen=True)
class LSTMMemory(Memory):
    """Annotation vectors with their attention keys."""

    keys: Float[Tensor, "B L A"]


class LSTMDecoder(Decoder):
    """An LSTM that attends over the annotation vectors before every word.

    The defaults are the paper's model.

    Args:
        annotation_dim: D.
        vocab_size: V, special tokens included.
        embedding_dim: m.
        hidden_dim: H; n in the paper.
        attention_dim: A.
        attention: builds the attention from the widths of queries, annotation vectors and keys: a
            class, or a `functools.partial` of one with further arguments.
        dropout: of word embeddings and of the deep output.
        tie_embeddings: use one matrix for word embeddings and the output layer.
        query_with_word: use the hidden state and the last word as the query of the attention, so
            that after "a small red" the model can look for a small red object. By default the query
            is the hidden state (eq. 4), which has not read that word yet.
        scalar_gate: ablation if false: the gate beta of the context is one.
        deep_output: ablation if false: only the hidden state scores words.
    """

    removed: ClassVar = {"start_from_mean": True}

    def __init__(
        self,
        annotation_dim: int,
        vocab_size: int,
        embedding_dim: int = 512,
        hidden_dim: int = 512,
        attention_dim: int = 512,
        attention: Callable[[int, int, int], Attention] = AdditiveAttention,
        dropout: float = 0.5,
        tie_embeddings: bool = False,
        query_with_word: bool = False,
        scalar_gate: bool = True,
        deep_output: bool = True,
    ) -> None:
        super().__init__(annotation_dim, vocab_size)
        self.query_with_word = query_with_word
        self.scalar_gate = scalar_gate
        self.deep_output = deep_output
        self.embedding = nn.Embedding(vocab_size, embedding_dim, padding_idx=PAD)  # E
        query_dim = hidden_dim + embedding_dim if query_with_word else hidden_dim
        self.attention = attention(query_dim, annotation_dim, attention_dim)
        # An unused layer must not exist: DDP waits for the gradient of every parameter.
        if scalar_gate:
            self.beta = nn.Linear(hidden_dim, 1)
        self.initial_hidden = nn.Linear(annotation_dim, hidden_dim)
        self.initial_cell = nn.Linear(annotation_dim, hidden_dim)
        # The matrix of eq. 1 in three parts: the four gates i, f, g, o from each of its inputs.
        self.word_gates = nn.Linear(embedding_dim, 4 * hidden_dim)
        self.hidden_gates = nn.Linear(hidden_dim, 4 * hidden_dim, bias=False)
        self.context_gates = nn.Linear(annotation_dim, 4 * hidden_dim, bias=False)
        self.output_hidden = nn.Linear(hidden_dim, embedding_dim, bias=False)  # L_h
        if deep_output:
            self.output_context = nn.Linear(annotation_dim, embedding_dim, bias=False)  # L_z
        self.output = nn.Linear(embedding_dim, vocab_size)  # L_o
        self.dropout = nn.Dropout(dropout)
        nn.init.normal_(self.embedding.weight, std=embedding_dim**-0.5)
        nn.init.zeros_(self.embedding.weight.detach()[PAD])
        nn.init.zeros_(self.word_gates.bias)
        nn.init.ones_(self.word_gates.bias.detach().chunk(4)[1])  # forget gate: remember at first
        nn.init.zeros_(self.output.bias)
        if tie_embeddings:
            self.output.weight = self.embedding.weight

    def remember(
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None = None
    ) -> LSTMMemory:
        return LSTMMemory(annotations, mask, self.attention.project(annotations))

    def start(self, memory: Memory, n: int) -> State:
        """Compute hidden state and cell from the mean annotation vector (section 3.1.2)."""
        vectors, mask = memory.annotations, memory.mask
        if mask is None:
            mean = vectors.mean(dim=1, keepdim=True)  # (B, 1, D)
        else:
            region_mask = mask[:, :, None].to(vectors.dtype)
            mean = (vectors * region_mask).sum(1, keepdim=True) / region_mask.sum(1, keepdim=True)
        # At least single precision, also under autocast: the cell is a running sum.
        precision = torch.promote_types(mean.dtype, torch.float32)
        return {
            "hidden": self.initial_hidden(mean).tanh().expand(-1, n, -1),
            "cell": self.initial_cell(mean).to(precision).tanh().expand(-1, n, -1),
        }

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        """Read one word of every caption and score the next (eq. 1-7, 13, section 4.2.1).

        A state with ``draws``, True for the captions (B, N) whose hard attention draws a region
        for each word, gets the region's log probability as ``log_probs`` (B, N).
        """
        assert isinstance(memory, LSTMMemory)
        h, c = state["hidden"], state["cell"]  # (B, N, H)
        word = self.dropout(self.embedding(tokens))  # E y, (B, N, m)

        query = torch.cat([h, word], dim=-1) if self.query_with_word else h
        context, weights = self.attention(query, memory.keys, memory.annotations, memory.mask)
        draw_state: State = {}
        if "draws" in state:  # section 4.1
            assert isinstance(self.attention, HardAttention)
            draws = state["draws"]
            context, log_probs = self.attention.drawn(weights, memory.annotations, draws)
            draw_state = {"draws": draws, "log_probs": log_probs}
        if self.scalar_gate:
            context = self.beta(h).sigmoid() * context  # section 4.2.1, (B, N, D)

        gates = self.word_gates(word) + self.hidden_gates(h) + self.context_gates(context)  # eq. 1
        i, f, g, o = gates.to(c.dtype).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()  # eq. 2, in the cell's precision
        h = o.sigmoid() * c.tanh()  # eq. 3

        deep = self.output_hidden(self.dropout(h))  # (B, N, m)
        if self.deep_output:
            deep = word + deep + self.output_context(context)
        logits = self.output(self.dropout(deep))  # eq. 7, (B, N, V)
        return Step(logits, weights, {"hidden": h, "cell": c, **draw_state})
