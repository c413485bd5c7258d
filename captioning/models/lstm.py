"""The decoder of Show, Attend and Tell (Xu et al. 2015, section 3.1.2)."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from captioning.data.vocabulary import PAD
from captioning.models.attention import AdditiveAttention, Attention
from captioning.models.beginnings import Beginnings
from captioning.models.decoder import Decoder, Memory, State, Step
from captioning.models.dropout import Dropout
from captioning.models.likelihood import linear_cross_entropy
from captioning.models.linear import Linear, linear, packed
from captioning.models.recurrence import Parts, lstm_cell, recur
from captioning.models.rows import Rows, Word
from captioning.numbers import AnnotationWidth, ShareBelowOne, VocabularySize, Width


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
        annotation_dim: AnnotationWidth,
        vocab_size: VocabularySize,
        embedding_dim: Width = 512,
        hidden_dim: Width = 512,
        attention_dim: Width = 512,
        attention: type[Attention] = AdditiveAttention,
        projection_dim: Width | None = None,
        dropout: ShareBelowOne = 0.5,
        annotation_dropout: ShareBelowOne = 0.0,
        tie_embeddings: bool = False,
        query_with_word: bool = False,
    ) -> None:
        super().__init__(annotation_dim, vocab_size)
        width = projection_dim or annotation_dim
        self.project = (
            nn.Sequential(Linear(annotation_dim, width), nn.ReLU(), Dropout(annotation_dropout))
            if projection_dim
            else Dropout(annotation_dropout)
        )
        self.embedding = nn.Embedding(vocab_size, embedding_dim, padding_idx=PAD)
        self.query_with_word = query_with_word
        query_dim = hidden_dim + embedding_dim if query_with_word else hidden_dim
        self.attention = attention(query_dim, width, attention_dim)
        self.beta = Linear(hidden_dim, 1)
        self.initial_hidden = Linear(width, hidden_dim)
        self.initial_cell = Linear(width, hidden_dim)
        # The four gates i, f, g, o, from the word, the hidden state and the context. Apart, so
        # that the words of a whole caption can be read in one product.
        self.word_gates = Linear(embedding_dim, 4 * hidden_dim)
        self.hidden_gates = Linear(hidden_dim, 4 * hidden_dim, bias=False)
        self.context_gates = Linear(width, 4 * hidden_dim, bias=False)
        self.output_hidden = Linear(hidden_dim, embedding_dim, bias=False)  # L_h
        self.output_context = Linear(width, embedding_dim, bias=False)  # L_z
        self.output = Linear(embedding_dim, vocab_size)  # L_o
        self.dropout = Dropout(dropout)
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
            "origin": torch.zeros(len(mean), n, dtype=torch.long, device=mean.device),
        }

    def prepared(self) -> AbstractContextManager[None]:
        """The weights of all large products of a step packed."""
        layers = [
            self.attention.query,
            self.word_gates,
            self.hidden_gates,
            self.context_gates,
            self.output_hidden,
            self.output_context,
            self.output,
        ]
        return packed(layers)

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        """Read one word of every caption and score the next."""
        rows = Word.going_on(tokens)
        said = rows.in_rows(tokens)
        words = self.dropout(self.embedding(said))
        hidden, cell = rows.in_rows(state["hidden"]), rows.in_rows(state["cell"])
        shared = Beginnings(rows)
        if not self.query_with_word:  # then all until the gates is the same for one hidden state
            shared = Beginnings.shared_by(rows, tokens, state["origin"])
        hidden = shared.once(hidden)
        query = torch.cat([hidden, words], dim=-1) if self.query_with_word else hidden
        queries = shared.rows.by_image(self.attention.query(query))
        context, weights = self.attention.attend(
            queries, memory.keys, memory.annotations, memory.mask
        )
        context = self.beta(hidden).sigmoid() * shared.rows.in_rows(context)
        before = self.hidden_gates(hidden)
        before += self.context_gates(context)
        gates = self._word_gates(said, words)
        gates += shared.again(before)
        after = lstm_cell(gates, cell)
        hidden = after.hidden.to(before.dtype)
        projected = shared.again(self.output_context(context))
        logits = self.output(self._deep(words, hidden, projected))
        weights = rows.by_image(shared.again(shared.rows.in_rows(weights)))
        state = {
            "hidden": rows.by_image(hidden),
            "cell": rows.by_image(after.cell),
            "origin": torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape),
        }
        return Step(logits, rows, weights, state)

    def _word_gates(
        self, said: Int[Tensor, "r"], words: Float[Tensor, "r m"]
    ) -> Float[Tensor, "r G"]:
        """The words' part of the LSTM's gates, in a search once for all captions that say a word.

        Args:
            said: the words.
            words: their embeddings after dropout, which may differ where the words do not.
        """
        if self.training or said.device.type != "cpu":
            return self.word_gates(words)
        distinct, which = said.unique(return_inverse=True)
        return self.word_gates(self.embedding(distinct)).index_select(0, which)

    def read(
        self, memory: Memory, tokens: Int[Tensor, "B N T"]
    ) -> tuple[Float[Tensor, "B N T V"], Float[Tensor, "B N T L"]]:
        """Teacher forcing; logits and weights are zero at PAD."""
        rows = Rows(tokens)
        deep, weights = self._read_rows(memory, rows)
        return rows.spread(self.output(deep)), rows.spread(weights)

    def cross_entropy(
        self,
        memory: Memory,
        tokens: Int[Tensor, "B N S"],
        label_smoothing: float = 0.0,
        importance: Float[Tensor, "B N"] | None = None,
        never: Sequence[int] = (),
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "B N S-1 L"]]:
        """The same as the decoder's promise, without ever holding all logits."""
        targets = tokens[..., 1:]
        rows = Rows(tokens[..., :-1].masked_fill(targets == PAD, PAD))
        deep, weights = self._read_rows(memory, rows)
        places = rows.places[rows.real]
        if importance is not None:
            importance = importance.flatten()[places // targets.shape[2]]
        bias: Tensor = self.output.bias
        if never:
            bias = bias.index_fill(0, torch.tensor(never, device=bias.device), -torch.inf)
        wanted = targets.flatten()[places]
        loss = linear_cross_entropy(
            deep, self.output.weight, bias, wanted, label_smoothing, importance
        )
        return loss, rows.spread(weights)

    def _read_rows(
        self, memory: Memory, rows: Rows
    ) -> tuple[Float[Tensor, "r m"], Float[Tensor, "r L"]]:
        """Read all words: what the vocabulary's layer sees of each real row, and the weights.

        All that does not recur is one product over all words.
        """
        state = self.start(memory, rows.shape[1])
        precision = memory.annotations.dtype
        words = self.dropout(self.embedding(rows.tokens)).to(precision)
        by_hidden, by_word = self.attention.query.weight.split(
            [self.beta.in_features, self.attention.query.in_features - self.beta.in_features], dim=1
        )
        # Gates and deep output are linear in contexts, and these in annotation vectors. So where
        # there are fewer annotation vectors than words, they are projected instead of the contexts.
        of_contexts = [self.context_gates.weight, self.output_context.weight]
        values = memory.annotations
        context_gate: Tensor | None = of_contexts[0].to(precision)
        has_fewer_regions = values.shape[:2].numel() < len(rows.tokens)
        if has_fewer_regions:
            values, context_gate = linear(values, torch.cat(of_contexts)), None
        parts = Parts(
            word_gates=self.word_gates(words),
            word_queries=linear(words, by_word) if self.query_with_word else None,
            hidden=state["hidden"].to(precision),
            cell=state["cell"],
            keys=memory.keys,
            values=values,
            query=by_hidden.to(precision),
            gate=self.hidden_gates.weight.to(precision),
            beta=self.beta.weight.to(precision),
            beta_bias=self.beta.bias.to(precision),
            context_gate=context_gate,
        )
        hidden, contexts, weights = (
            rows.without_padding(part) for part in recur(self.attention, rows, memory.mask, parts)
        )
        projected = contexts if has_fewer_regions else self.output_context(contexts)
        return self._deep(rows.without_padding(words), hidden, projected), weights

    def _deep(
        self,
        words: Float[Tensor, "*B m"],
        hidden: Float[Tensor, "*B H"],
        projected: Float[Tensor, "*B m"],
    ) -> Float[Tensor, "*B m"]:
        """What the vocabulary's layer L_o reads: E y + L_h h + L_z z of eq. 7, given L_z z."""
        return self.dropout(words + self.output_hidden(self.dropout(hidden)) + projected)
