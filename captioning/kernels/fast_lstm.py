"""The LSTM decoder's kernel, which is made of the other ones.

Worth: with all that it uses, 2.4 times the speed of a training step of the photo model's size and
3.2 of *large*, and 2.1 and 2.0 times that of beam search.

In training, everything outside the recurrence is one product over all words, the loop over words
has its own backward pass, captions leave the loop as they end, and the loss takes a block of words
at a time. In a search, captions that have ended cost nothing, and each distinct word's part of the
gates is computed once.

Shapes: B images, N captions per image, r active rows, L regions, D annotation width, A attention
width, H width of the LSTM, G its four gates, m width of a word embedding, S tokens from BOS to EOS,
T words, V vocabulary.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from captioning.data.vocabulary import PAD
from captioning.kernels import plain_losses
from captioning.kernels.active_rows import ActiveRows, PackedWords
from captioning.kernels.attention_scores import attention_kernel
from captioning.kernels.linear import layer, linear
from captioning.kernels.recurrence import RecurrenceInputs, lstm_cell, recur
from captioning.models.attention import ScoredAttention, masked_softmax
from captioning.models.decoder import Decoder, Memory, State, Step
from captioning.models.losses import cross_entropy
from captioning.models.lstm import LSTMDecoder

OPEN_GATE_BIAS = 100.0
"""Bias with which the gate beta is exactly one, in every precision."""

BLOCK_LOGITS = 2**22
"""Number of logits in a block of words, 16 MB in single precision. Larger blocks would be requested
from the operating system each time."""

DROPOUT_STEPS = 2**16
"""Dropout's probability is rounded to a multiple of one over this."""

SUPPORTED_LAYERS = (nn.Linear, nn.Embedding, nn.Dropout)


@dataclass(frozen=True)
class PreparedMemory(Memory):
    """Annotation vectors with their keys as the attention's kernel prepares them."""

    prepared_keys: Float[Tensor, "B L A"]


class FastLSTM(Decoder):
    """Equals a plain `LSTMDecoder`, whose layers it uses.

    In training with an attention that drops weights, the plain decoder computes.

    Args:
        plain: a decoder without `unsupported_reason`.
    """

    def __init__(self, plain: LSTMDecoder) -> None:
        super().__init__(plain.annotation_dim, plain.vocab_size)
        self.plain = plain
        kernel = attention_kernel(plain.attention)
        assert kernel is not None
        self.kernel = kernel

    @property
    def drops_weights(self) -> bool:
        """Whether the attention drops weights in training, which no kernel supports."""
        return self.kernel.attention.dropout.p > 0

    def remember(
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None = None
    ) -> Memory:
        """Annotation vectors and their prepared keys, for this decoder only."""
        if self.drops_weights and self.plain.attention.training:
            return self.plain.remember(annotations, mask)
        device = annotations.device.type
        if torch.is_autocast_enabled(device):  # once here, not at every word
            annotations = annotations.to(torch.get_autocast_dtype(device))
        key = self.kernel.attention.key
        keys = self.kernel.prepare(linear(annotations, key.weight, key.bias))
        return PreparedMemory(annotations, mask, keys)

    def start(self, memory: Memory, n: int) -> State:
        return self.plain.start(memory, n)

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> Step:
        """Read one word of every active caption and score the next."""
        plain = self.plain
        if not isinstance(memory, PreparedMemory):
            return plain.step(tokens, state, memory)
        rows = ActiveRows.of(tokens)
        row_tokens = rows.in_rows(tokens)
        words = dropout(plain.embedding(row_tokens), plain.dropout)
        hidden, cell = rows.in_rows(state["hidden"]), rows.in_rows(state["cell"])
        query = torch.cat([hidden, words], dim=-1) if plain.query_with_word else hidden
        queries = rows.by_image(layer(self.kernel.attention.query, query))
        weights = masked_softmax(self.kernel.scores(queries, memory.prepared_keys), memory.mask)
        context = rows.in_rows(weights.to(memory.annotations.dtype) @ memory.annotations)
        if plain.scalar_gate:
            context = layer(plain.beta, hidden).sigmoid() * context
        recurrent_gates = layer(plain.hidden_gates, hidden)
        recurrent_gates += layer(plain.context_gates, context)
        gates = self._word_gates(row_tokens, words)
        gates += recurrent_gates
        output = lstm_cell(gates, cell)
        hidden = output.hidden.to(recurrent_gates.dtype)
        projected = None
        if plain.deep_output:
            projected = layer(plain.output_context, context)
        logits = layer(plain.output, self._deep_output(words, hidden, projected))
        state = {"hidden": rows.by_image(hidden), "cell": rows.by_image(output.cell)}
        weights = rows.by_image(rows.in_rows(weights))  # zero for captions that have ended
        return Step(rows.by_image(logits), weights, state)

    def teacher_forcing(
        self, memory: Memory, tokens: Int[Tensor, "B N T"]
    ) -> tuple[Float[Tensor, "B N T V"], Float[Tensor, "B N T L"]]:
        """Logits and weights; zero at PAD."""
        if not isinstance(memory, PreparedMemory):
            return self.plain.teacher_forcing(memory, tokens)
        words = PackedWords(tokens)
        deep_output, weights = self._read(memory, words)
        return words.scatter(layer(self.plain.output, deep_output)), words.scatter(weights)

    def cross_entropy(
        self,
        memory: Memory,
        tokens: Int[Tensor, "B N S"],
        label_smoothing: float = 0.0,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "B N S-1 L"]]:
        """See `captioning.kernels.caption_cross_entropy`."""
        if not isinstance(memory, PreparedMemory):
            return plain_losses(self.plain, memory, tokens, label_smoothing)
        targets = tokens[..., 1:]
        words = PackedWords(tokens[..., :-1].masked_fill(targets == PAD, PAD))
        deep_output, weights = self._read(memory, words)
        word_indices = words.word_indices[words.real_rows]
        row_targets = targets.flatten()[word_indices]
        size = max(1, BLOCK_LOGITS // self.vocab_size)
        blocks = zip(deep_output.split(size), row_targets.split(size), strict=True)
        losses = []
        for block_output, block_targets in blocks:
            losses.append(
                cross_entropy(  # each word as a caption of its own
                    layer(self.plain.output, block_output)[:, None, None],
                    block_targets[:, None, None],
                    label_smoothing,
                )
            )
        loss = torch.stack(losses).sum()
        return loss, words.scatter(weights)

    def _word_gates(
        self, tokens: Int[Tensor, " r"], words: Float[Tensor, "r m"]
    ) -> Float[Tensor, "r G"]:
        """The words' part of the LSTM's gates; a search computes it once per distinct word.

        Dropout may give equal words different embeddings, so a training computes it per row.
        """
        plain = self.plain
        if plain.dropout.training:
            return layer(plain.word_gates, words)
        unique_tokens, indices = tokens.unique(return_inverse=True)
        return layer(plain.word_gates, plain.embedding(unique_tokens)).index_select(0, indices)

    def _read(
        self, memory: PreparedMemory, words: PackedWords
    ) -> tuple[Float[Tensor, "r m"], Float[Tensor, "r L"]]:
        """The output layer's input for each real row, and the attention weights."""
        plain, values = self.plain, memory.annotations
        state, precision = plain.start(memory, words.shape[1]), values.dtype
        embedded = dropout(plain.embedding(words.tokens), plain.dropout).to(precision)
        query = self.kernel.attention.query
        width = plain.hidden_gates.in_features
        query_sizes = [width, query.in_features - width]
        hidden_query, word_query = query.weight.split(query_sizes, dim=1)
        beta, beta_bias = (
            query.weight.new_zeros(1, width),
            query.weight.new_full((1,), OPEN_GATE_BIAS),
        )
        if plain.scalar_gate:
            beta, beta_bias = plain.beta.weight, plain.beta.bias
        parts = RecurrenceInputs(
            word_gates=layer(plain.word_gates, embedded),
            word_queries=linear(embedded, word_query) if plain.query_with_word else None,
            hidden=state["hidden"].to(precision),
            cell=state["cell"],
            keys=memory.prepared_keys,
            values=values,
            query=hidden_query.to(precision),
            gate=plain.hidden_gates.weight.to(precision),
            beta=beta.to(precision),
            beta_bias=beta_bias.to(precision),
            context_gate=plain.context_gates.weight.to(precision),
        )
        hidden, contexts, weights = (
            words.without_padding(part) for part in recur(self.kernel, words, memory.mask, parts)
        )
        projected = layer(plain.output_context, contexts) if plain.deep_output else None
        return self._deep_output(words.without_padding(embedded), hidden, projected), weights

    def _deep_output(
        self,
        words: Float[Tensor, "r m"],
        hidden: Float[Tensor, "r H"],
        projected: Float[Tensor, "r m"] | None,
    ) -> Float[Tensor, "r m"]:
        """The input of the output layer L_o: E y + L_h h + L_z z of eq. 7, given L_z z."""
        plain = self.plain
        deep_output = layer(plain.output_hidden, dropout(hidden, plain.dropout))
        if projected is not None:
            deep_output = words + deep_output + projected
        return dropout(deep_output, plain.dropout)


def dropout(x: Float[Tensor, "r X"], module: nn.Dropout) -> Float[Tensor, "r X"]:
    """Equals the module in distribution; four elements share a draw of 64 bits."""
    threshold = round(module.p * DROPOUT_STEPS)
    if not module.training or not 0 < threshold < DROPOUT_STEPS:
        return module(x)
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    bits = draws.view(torch.int16)[: x.numel()].view_as(x)  # uniform from -2^15 to 2^15 - 1
    mask = (bits >= threshold - DROPOUT_STEPS // 2).to(x.dtype)
    return x * mask.mul_(DROPOUT_STEPS / (DROPOUT_STEPS - threshold))


def unsupported_reason(decoder: Decoder) -> str | None:
    """Why `FastLSTM` would not equal the decoder; None if it does."""
    if type(decoder) is not LSTMDecoder:
        return "only LSTMDecoder itself has one"
    attention = decoder.attention
    class_name = type(attention).__name__
    if attention_kernel(attention) is None:
        return f"its attention {class_name} has none"
    assert isinstance(attention, ScoredAttention)
    if attention.query.bias is not None:
        return f"the query of its {class_name} has a bias"
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    for name, module in list(decoder.named_modules())[1:]:
        if type(module) not in SUPPORTED_LAYERS and module is not attention:
            return f"its layer {name} is a {type(module).__name__}"
        if any(getattr(module, hook) for hook in hooks):
            return f"its layer {name} has a hook"
    return None
