"""The decoder of Show, Attend and Tell (Xu et al. 2015, section 3.1.2).

Shapes: B images, N captions per image, L regions, D annotation width, H width of the LSTM, m width
of a word embedding, A attention width, V vocabulary.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from captioning.data.vocabulary import PAD
from captioning.errors import InputError
from captioning.models.attention import (
    AdditiveAttention,
    Attention,
    MultiHeadAttention,
    Option,
    with_options,
)
from captioning.models.decoder import Decoder, Memory, State, Step
from captioning.models.neighbourhood import neighbourhood_means
from captioning.models.region_encoder import RegionEncoder
from captioning.numbers import (
    AnnotationWidth,
    Grid,
    Heads,
    OptionalLayers,
    ShareBelowOne,
    VocabularySize,
    Width,
)


@dataclass(frozen=True)
class LSTMMemory(Memory):
    """What the LSTM remembers of its images.

    Attributes:
        keys: the annotation vectors as the attention projects them.
    """

    keys: Float[Tensor, "B L A"]


class LSTMDecoder(Decoder):
    """An LSTM that attends over the annotation vectors before every word.

    The LSTM reads the last word and the gated context (eq. 1-3), starts from the mean annotation
    vector, gates the context with a scalar beta per word (section 4.2.1), and a deep output layer
    scores the next word from word embedding, hidden state and context together (eq. 7).

    The defaults are the paper's model; `projection_dim`, the dropout of annotations and
    `tie_embeddings` help on small data sets. `scalar_gate`, `deep_output` and `start_from_mean`,
    when false, take a part of the paper's model away, to see what it is worth.

    Args:
        annotation_dim: D, width of an annotation vector.
        vocab_size: V, special tokens included.
        embedding_dim: m, width of a word embedding.
        hidden_dim: H, width of the LSTM; n in the paper.
        attention_dim: A, width of the attention's space.
        attention: the kind of attention.
        attention_options: its further arguments by name, such as the heads of several; its own
            defaults if none.
        projection_dim: width that annotation vectors are projected to (linear, ReLU) before all
            else; none for the paper's raw vectors.
        dropout: of word embeddings and of the deep output.
        annotation_dropout: of the projected annotation vectors.
        tie_embeddings: one matrix for the words read and the words scored.
        query_with_word: the attention's query is the hidden state and the last word. By default it
            is the hidden state alone (eq. 4), which has not read that word yet. After "a small red"
            the model then knows which object to look at before it names its shape.
        scalar_gate: beta gates the context; without, the context counts in full.
        deep_output: words are scored from embedding, hidden state and context; without, from the
            hidden state alone.
        start_from_mean: the first state comes from the mean annotation vector; without, it is zero.
        smooth_keys: a region's key is made of the mean of the 3 x 3 annotation vectors around it.
            Neighbours then weigh alike, and no single region attracts attention by chance.
        region_layers: of self-attention over the annotation vectors before the first word, see
            `RegionEncoder`; 0 for none.
        region_heads: of these layers; a divisor of the annotation vectors' width.
        grid_columns: columns of the encoder's grid, for these layers and smooth keys; none if it
            is square.

    Raises:
        InputError: the attention takes no such option, heads do not divide a width, or keys would
            be smooth of an attention with several heads.
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
        scalar_gate: bool = True,
        deep_output: bool = True,
        start_from_mean: bool = True,
        attention_options: dict[str, Option] | None = None,
        smooth_keys: bool = False,
        region_layers: OptionalLayers = 0,
        region_heads: Heads = 8,
        grid_columns: Grid | None = None,
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
        self.region_encoder = (
            RegionEncoder(
                *(width, region_layers, region_heads, 4 * width),
                dropout=annotation_dropout,
                grid_columns=grid_columns,
            )
            if region_layers
            else None
        )
        self.embedding = nn.Embedding(vocab_size, embedding_dim, padding_idx=PAD)  # E
        self.query_with_word = query_with_word
        self.scalar_gate = scalar_gate
        self.deep_output = deep_output
        self.start_from_mean = start_from_mean
        query_dim = hidden_dim + embedding_dim if query_with_word else hidden_dim
        self.attention = with_options(
            attention, attention_options or {}, query_dim, width, attention_dim
        )
        if smooth_keys and isinstance(self.attention, MultiHeadAttention):
            raise InputError(
                "smooth_keys: multi-head attention has values beside its keys, which would be "
                "smooth too; set it to false, or choose another attention"
            )
        self.smooth_keys = smooth_keys
        self.grid_columns = grid_columns
        # A layer that is taken away must not be there: DDP waits for every parameter's gradient.
        if scalar_gate:
            self.beta = nn.Linear(hidden_dim, 1)
        if start_from_mean:
            self.initial_hidden = nn.Linear(width, hidden_dim)
            self.initial_cell = nn.Linear(width, hidden_dim)
        # The matrix of eq. 1 in three parts: the four gates i, f, g, o from each of its inputs.
        self.word_gates = nn.Linear(embedding_dim, 4 * hidden_dim)
        self.hidden_gates = nn.Linear(hidden_dim, 4 * hidden_dim, bias=False)
        self.context_gates = nn.Linear(width, 4 * hidden_dim, bias=False)
        self.output_hidden = nn.Linear(hidden_dim, embedding_dim, bias=False)  # L_h
        if deep_output:
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

    @property
    def map_names(self) -> tuple[str, ...]:
        """Those of the attention."""
        return self.attention.map_names

    @property
    def reported_map(self) -> str | None:
        """What the attention reports."""
        return self.attention.reported_map

    def report_map(self, name: str) -> None:
        """Let the attention report another one.

        Raises:
            InputError: there is no map of this name.
        """
        self.attention.report_map(name)

    def remember(
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None = None
    ) -> LSTMMemory:
        """Projected annotation vectors and their keys."""
        annotations = self.project(annotations)
        if self.region_encoder is not None:
            annotations = self.region_encoder(annotations, mask)
        keys = self.attention.project(self.key_vectors(annotations, mask))
        return LSTMMemory(annotations, mask, keys)

    def key_vectors(
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None
    ) -> Float[Tensor, "B L D"]:
        """What keys are made of: projected annotation vectors, or their means."""
        if not self.smooth_keys:
            return annotations
        return neighbourhood_means(annotations, mask, self.grid_columns)

    def start(self, memory: Memory, n: int) -> State:
        """Hidden state and cell from the mean annotation vector (section 3.1.2)."""
        mean = mean_annotation(memory)
        # At least in single precision, also under autocast: the cell is a running sum.
        precision = torch.promote_types(mean.dtype, torch.float32)
        if not self.start_from_mean:
            zeros = mean.new_zeros(len(mean), n, self.hidden_gates.in_features)
            return {"hidden": zeros, "cell": zeros.to(precision)}
        return {
            "hidden": self.initial_hidden(mean).tanh().expand(-1, n, -1),
            "cell": self.initial_cell(mean).to(precision).tanh().expand(-1, n, -1),
        }

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        """Read one word of every caption and score the next (eq. 1-7, 13, section 4.2.1)."""
        word = self.dropout(self.embedding(tokens))  # E y
        context, weights = self.attend(word, state, memory)
        logits, state = self.write(word, context, state)
        return Step(logits, weights, state)

    def attend(
        self, word: Float[Tensor, "B N m"], state: State, memory: Memory
    ) -> tuple[Float[Tensor, "B N D"], Float[Tensor, "B N L"]]:
        """The context before the next word, not gated yet, and attention weights (eq. 4-6, 13)."""
        assert isinstance(memory, LSTMMemory)
        h = state["hidden"]
        query = torch.cat([h, word], dim=-1) if self.query_with_word else h
        return self.attention(query, memory.keys, memory.annotations, memory.mask)

    def write(
        self, word: Float[Tensor, "B N m"], context: Float[Tensor, "B N D"], state: State
    ) -> tuple[Float[Tensor, "B N V"], State]:
        """The logits of the next word, and the state after the step (eq. 1-3, 7, section 4.2.1)."""
        h, c = state["hidden"], state["cell"]
        if self.scalar_gate:
            context = self.beta(h).sigmoid() * context  # section 4.2.1
        gates = self.word_gates(word) + self.hidden_gates(h) + self.context_gates(context)
        h, c = lstm_cell(gates, c)  # eq. 1-3
        deep = self.output_hidden(self.dropout(h))
        if self.deep_output:
            deep = word + deep + self.output_context(context)
        return self.output(self.dropout(deep)), {"hidden": h, "cell": c}  # eq. 7

    @property
    def has_evidence(self) -> bool:
        """Whether words are scored by the deep output."""
        return self.deep_output

    def evidence(
        self,
        memory: Memory,
        words: Int[Tensor, "B N T"],
        expected: Float[Tensor, "B N T V"] | None = None,
    ) -> Float[Tensor, "B N T L"]:
        """The deep output's part that depends on the context: L_o L_z a of each region (eq. 7).

        Eq. 7 is linear in the context, so this is what a region would add to a word's logit if the
        context were its vector alone, and beta one. A word's row of L_o is taken against the mean
        row, since what a region adds to all words alike changes no probability. With the mean by
        the expected probabilities it is the gradient of the word's log probability by the context,
        times the region's vector.

        Raises:
            InputError: this decoder has no deep output.
        """
        if not self.deep_output:
            raise InputError("without deep output no word is scored by a region alone")
        regions = self.output_context(memory.annotations)  # (B, L, m)
        weight = self.output.weight
        mean = weight.mean(dim=0) if expected is None else expected @ weight
        rows = weight[words] - mean
        return torch.einsum("bntm,blm->bntl", rows, regions)

    def context_evidence(
        self,
        memory: Memory,
        tokens: Int[Tensor, "B N S"],
        expected: Float[Tensor, "B N T V"],
        earlier: float = 1.0,
    ) -> Float[Tensor, "B N T L"]:
        """The gradient of a word's score by the contexts up to it, times each region's vector.

        The score is the word's logit minus the mean logit by the expected probabilities. The
        gradient goes through gates, cells and the deep output (eq. 1-3, 7, section 4.2.1).
        Attention weights and the first state count as given.
        """
        state = self.start(memory, tokens.shape[1])
        state = {name: part.detach() for name, part in state.items()}
        contexts: list[Tensor] = []
        found = []
        for read, word, odds in zip(
            tokens[..., :-1].unbind(2), tokens[..., 1:].unbind(2), expected.unbind(2), strict=True
        ):
            embedded = self.embedding(read)
            context, _ = self.attend(embedded, state, memory)
            contexts.append(context.detach().requires_grad_())
            with torch.enable_grad():  # whatever the caller wants
                logits, state = self.write(embedded, contexts[-1], state)
                of_word = logits.gather(-1, word[..., None])[..., 0]
                score = of_word - (odds * logits).sum(dim=-1)
                *before, own = torch.autograd.grad(score.sum(), contexts, retain_graph=True)
            gradient = own + earlier * torch.stack([torch.zeros_like(own), *before]).sum(dim=0)
            found.append(torch.einsum("bnd,bld->bnl", gradient, memory.annotations))
        return torch.stack(found, dim=2)


def lstm_cell(
    gates: Float[Tensor, "B N G"], cell: Float[Tensor, "B N H"]
) -> tuple[Float[Tensor, "B N H"], Float[Tensor, "B N H"]]:
    """Hidden state and cell after a word (Xu et al. 2015, eq. 1-3), in the cell's precision.

    Args:
        gates: i, f, g and o one after the other, before their sigmoids and, for g, tanh.
        cell: before the word.
    """
    i, f, g, o = gates.to(cell.dtype).chunk(4, dim=-1)
    cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def mean_annotation(memory: Memory) -> Float[Tensor, "B 1 D"]:
    """The mean of each image's annotation vectors that may be attended."""
    if memory.mask is None:
        return memory.annotations.mean(dim=1, keepdim=True)
    real = memory.mask[:, :, None].to(memory.annotations.dtype)
    return (memory.annotations * real).sum(1, keepdim=True) / real.sum(1, keepdim=True)
