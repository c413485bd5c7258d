"""The decoder of Show, Attend and Tell (Xu et al. 2015, section 3.1.2)."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from captioning.data.vocabulary import PAD
from captioning.models.attention import AdditiveAttention, Attention
from captioning.models.decoder import Decoder, Memory, State, Step


class LSTMDecoder(Decoder):
    """An LSTM that attends over the annotation vectors before every word.

    The LSTM reads the last word and the gated context (eq. 1-3), starts from the mean annotation
    vector, gates the context with a scalar beta per word (section 4.2.1), and a deep output layer
    scores the next word from word embedding, hidden state and context together (eq. 7).

    The defaults are the paper's model; `projection_dim`, the dropout of annotations and
    `tie_embeddings` are what helps on small data sets.

    Args:
        annotation_dim: D, width of an annotation vector.
        vocab_size: V, special tokens included.
        embedding_dim: m, width of a word embedding.
        hidden_dim: n, width of the LSTM.
        attention_dim: A, width of the attention's space.
        attention: the kind of attention.
        projection_dim: width that annotation vectors are projected to (linear, ReLU) before all
            else; none for the paper's raw vectors.
        dropout: of word embeddings and of the deep output.
        annotation_dropout: of the projected annotation vectors.
        tie_embeddings: one matrix for the words read and the words scored.
        query_with_word: the attention's query is the hidden state and the last word, not the
            hidden state alone (eq. 4), which has not read that word yet. After "a small red" the
            model then knows which object to look at before it names its shape.
    """

    def __init__(
        self,
        annotation_dim: int,
        vocab_size: int,
        embedding_dim: int = 512,
        hidden_dim: int = 512,
        attention_dim: int = 512,
        attention: type[Attention] = AdditiveAttention,
        projection_dim: int | None = None,
        dropout: float = 0.5,
        annotation_dropout: float = 0.0,
        tie_embeddings: bool = False,
        query_with_word: bool = False,
    ) -> None:
        super().__init__(annotation_dim, vocab_size)
        width = projection_dim or annotation_dim
        self.project = (
            nn.Sequential(
                nn.Linear(annotation_dim, width), nn.ReLU(), nn.Dropout(annotation_dropout)
            )
            if projection_dim
            else nn.Dropout(annotation_dropout)
        )
        self.embedding = nn.Embedding(vocab_size, embedding_dim, padding_idx=PAD)
        self.query_with_word = query_with_word
        query_dim = hidden_dim + embedding_dim if query_with_word else hidden_dim
        self.attention = attention(query_dim, width, attention_dim)
        self.beta = nn.Linear(hidden_dim, 1)
        self.initial_hidden = nn.Linear(width, hidden_dim)
        self.initial_cell = nn.Linear(width, hidden_dim)
        # The four gates i, f, g, o, from the word, the hidden state and the context. Apart, so
        # that the words of a whole caption can be read in one product.
        self.word_gates = nn.Linear(embedding_dim, 4 * hidden_dim)
        self.hidden_gates = nn.Linear(hidden_dim, 4 * hidden_dim, bias=False)
        self.context_gates = nn.Linear(width, 4 * hidden_dim, bias=False)
        self.output_hidden = nn.Linear(hidden_dim, embedding_dim, bias=False)  # L_h
        self.output_context = nn.Linear(width, embedding_dim, bias=False)  # L_z
        self.output = nn.Linear(embedding_dim, vocab_size)  # L_o
        self.dropout = nn.Dropout(dropout)
        self._initialise()
        if tie_embeddings:
            self.output.weight = self.embedding.weight

    def _initialise(self) -> None:
        nn.init.normal_(self.embedding.weight, std=self.embedding.embedding_dim**-0.5)
        nn.init.zeros_(self.embedding.weight.detach()[PAD])
        nn.init.zeros_(self.word_gates.bias)
        nn.init.ones_(self.word_gates.bias.detach().chunk(4)[1])  # forget gate: remember at first
        nn.init.zeros_(self.output.bias)

    def remember(
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None = None
    ) -> Memory:
        """Projected annotation vectors and their keys."""
        annotations = self.project(annotations)
        device = annotations.device.type
        if torch.is_autocast_enabled(device):  # once here, not at every word
            annotations = annotations.to(torch.get_autocast_dtype(device))
        return Memory(annotations, self.attention.project(annotations), mask)

    def start(self, memory: Memory, n: int) -> State:
        """Hidden and cell state from the mean annotation vector (section 3.1.2)."""
        if memory.mask is None:
            mean = memory.annotations.mean(dim=1, keepdim=True)
        else:
            kept = memory.mask[:, :, None].to(memory.annotations.dtype)
            mean = (memory.annotations * kept).sum(1, keepdim=True) / kept.sum(1, keepdim=True)
        precision = torch.promote_types(mean.dtype, torch.float32)
        return {
            "hidden": self.initial_hidden(mean).tanh().expand(-1, n, -1),
            # At least in single precision, also under autocast: the cell is a running sum.
            "cell": self.initial_cell(mean).to(precision).tanh().expand(-1, n, -1),
        }

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        """Read one word of every caption and score the next."""
        words = self.dropout(self.embedding(tokens))
        context, weights, state = self._recur(words, self.word_gates(words), state, memory)
        return Step(self._score(words, state["hidden"], context), weights, state)

    def forward(
        self,
        annotations: Float[Tensor, "B L D"],
        tokens: Int[Tensor, "B N T"],
        mask: Bool[Tensor, "B L"] | None = None,
    ) -> tuple[Float[Tensor, "B N T V"], Float[Tensor, "B N T L"]]:
        """Teacher forcing, with what does not recur taken out of the loop over words."""
        memory = self.remember(annotations, mask)
        state = self.start(memory, tokens.shape[1])
        words = self.dropout(self.embedding(tokens))  # (B, N, T, m)
        hidden, contexts, weights = [], [], []
        for word, gates in zip(words.unbind(2), self.word_gates(words).unbind(2), strict=True):
            context, attended, state = self._recur(word, gates, state, memory)
            hidden.append(state["hidden"])
            contexts.append(context)
            weights.append(attended)
        logits = self._score(words, torch.stack(hidden, dim=2), torch.stack(contexts, dim=2))
        return logits, torch.stack(weights, dim=2)

    def _recur(
        self,
        words: Float[Tensor, "B N m"],
        word_gates: Float[Tensor, "B N G"],
        state: State,
        memory: Memory,
    ) -> tuple[Float[Tensor, "B N D"], Float[Tensor, "B N L"], State]:
        """Attend, then move the LSTM by one word (eq. 1-3); gives context, weights and state."""
        hidden, cell = state["hidden"], state["cell"]
        query = torch.cat([hidden, words], dim=-1) if self.query_with_word else hidden
        context, weights = self.attention(query, memory.keys, memory.annotations, memory.mask)
        context = self.beta(hidden).sigmoid() * context
        gates = word_gates + self.hidden_gates(hidden) + self.context_gates(context)
        take, keep, new, show = gates.chunk(4, dim=-1)
        cell = keep.sigmoid() * cell + take.sigmoid() * new.tanh()
        hidden = show.sigmoid() * cell.to(gates.dtype).tanh()
        return context, weights, {"hidden": hidden, "cell": cell}

    def _score(
        self,
        words: Float[Tensor, "*B m"],
        hidden: Float[Tensor, "*B n"],
        context: Float[Tensor, "*B D"],
    ) -> Float[Tensor, "*B V"]:
        """The deep output layer: L_o (E y + L_h h + L_z z), eq. 7."""
        deep = words + self.output_hidden(self.dropout(hidden)) + self.output_context(context)
        return self.output(self.dropout(deep))
