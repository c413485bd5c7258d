"""The LSTM decoder's kernel.

In training, everything outside the recurrence is one product over all words, the loop over words
has its own backward pass, captions leave the loop as they end, and the loss needs the logits of a
few words at a time. In a search, captions leave the batch as they end, captions with a shared
prefix attend once, and each distinct word's part of the gates is computed once.

Shapes: B images, N captions per image, r active rows, L regions, D annotation width, A attention
width, H width of the LSTM, G its four gates, m width of a word embedding, S tokens from BOS to EOS,
T words, V vocabulary.
"""

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from captioning.data.vocabulary import PAD
from captioning.kernels.active_rows import ActiveRows, ActiveStep, PackedWords, SharedPrefixes
from captioning.kernels.attention_scores import AttentionKernel, attention_kernel
from captioning.kernels.linear import layer, linear
from captioning.kernels.linear_cross_entropy import linear_cross_entropy
from captioning.kernels.pointwise import dropout, lstm_cell
from captioning.kernels.recurrence import Parts, recur
from captioning.models.attention import ScoredAttention, masked_softmax
from captioning.models.decoder import Decoder, Memory, State
from captioning.models.lstm import LSTMDecoder

OPEN = 100.0
"""A bias that makes the gate beta one to the last bit, in every precision."""

KNOWN_LAYERS = (nn.Linear, nn.Embedding, nn.Dropout)


@dataclass(frozen=True)
class PreparedMemory(Memory):
    """Annotation vectors with their keys as the attention's kernel prepares them."""

    prepared_keys: Float[Tensor, "B L A"]


class FastLSTM(LSTMDecoder):
    """Equals the plain `LSTMDecoder` that it was made of, and shares its layers."""

    attention: ScoredAttention
    kernel: AttentionKernel

    @classmethod
    def of(cls, plain: LSTMDecoder) -> "FastLSTM":
        """The kernel of a decoder for which `why_not` returns None."""
        fast = copy.copy(plain)
        fast.__class__ = cls
        assert isinstance(fast, cls)
        kernel = attention_kernel(plain.attention)
        assert kernel is not None
        fast.kernel = kernel
        return fast

    @staticmethod
    def why_not(decoder: Decoder) -> str | None:
        """Why this kernel does not equal the decoder; None if it does."""
        if type(decoder) is not LSTMDecoder:
            return "only LSTMDecoder itself has one"
        attention = decoder.attention
        kind = type(attention).__name__
        if attention_kernel(attention) is None:
            return f"its attention {kind} has none"
        assert isinstance(attention, ScoredAttention)
        if attention.query.bias is not None:
            return f"the query of its {kind} has a bias"
        for name, module in list(decoder.named_modules())[1:]:
            if type(module) not in KNOWN_LAYERS and module is not attention:
                return f"its layer {name} is a {type(module).__name__}"
            if (
                module._forward_hooks
                or module._forward_pre_hooks
                or module._backward_hooks
                or module._backward_pre_hooks
            ):
                return f"its layer {name} has a hook"
        return None

    @property
    def layers_of_a_step(self) -> list[nn.Linear]:
        """The large layers that every step of a search uses."""
        found = [self.attention.query, self.word_gates, self.hidden_gates, self.context_gates]
        found += [self.output_hidden, self.output]
        return [*found, self.output_context] if self.deep_output else found

    def remember(  # type: ignore[override]
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None = None
    ) -> PreparedMemory:
        """Annotation vectors and their prepared keys, which the plain decoder refuses."""
        device = annotations.device.type
        if torch.is_autocast_enabled(device):  # once here, not at every word
            annotations = annotations.to(torch.get_autocast_dtype(device))
        keys = self.kernel.prepare(layer(self.attention.key, annotations))
        return PreparedMemory(annotations, mask, keys)

    def start(self, memory: Memory, n: int) -> State:
        """The plain decoder's state, and the index of the caption that each caption continues."""
        state = super().start(memory, n)
        origin = torch.zeros(memory.images, n, dtype=torch.long, device=state["hidden"].device)
        return state | {"origin": origin}

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> ActiveStep:
        """Read one word of every active caption and score the next."""
        assert isinstance(memory, PreparedMemory)
        rows = ActiveRows.of(tokens)
        read = rows.in_rows(tokens)
        words = self._dropout(self.embedding(read))
        hidden, cell = rows.in_rows(state["hidden"]), rows.in_rows(state["cell"])
        shared = SharedPrefixes(rows)
        if not self.query_with_word:  # then everything up to the gates depends on `hidden` alone
            shared = SharedPrefixes.among(rows, tokens, state["origin"])
        hidden = shared.compact(hidden)
        query = torch.cat([hidden, words], dim=-1) if self.query_with_word else hidden
        queries = shared.rows.by_image(layer(self.attention.query, query))
        weights = masked_softmax(self.kernel.scores(queries, memory.prepared_keys), memory.mask)
        context = shared.rows.in_rows(weights.to(memory.annotations.dtype) @ memory.annotations)
        if self.scalar_gate:
            context = layer(self.beta, hidden).sigmoid() * context
        before = layer(self.hidden_gates, hidden)
        before += layer(self.context_gates, context)
        gates = self._word_gates(read, words)
        gates += shared.expand(before)
        after = lstm_cell(gates, cell)
        hidden = after.hidden.to(before.dtype)
        projected = None
        if self.deep_output:
            projected = shared.expand(layer(self.output_context, context))
        logits = layer(self.output, self._deep(words, hidden, projected))
        captions = torch.arange(tokens.shape[1], device=tokens.device)
        state = {
            "hidden": rows.by_image(hidden),
            "cell": rows.by_image(after.cell),
            "origin": captions.expand(tokens.shape),
        }
        weights = rows.by_image(shared.expand(shared.rows.in_rows(weights)))
        return ActiveStep(rows, logits, weights, state)

    def teacher_forcing(
        self, memory: Memory, tokens: Int[Tensor, "B N T"]
    ) -> tuple[Float[Tensor, "B N T V"], Float[Tensor, "B N T L"]]:
        """Logits and weights; zero at PAD."""
        assert isinstance(memory, PreparedMemory)
        words = PackedWords(tokens)
        deep, weights = self._read(memory, words)
        return words.spread(layer(self.output, deep)), words.spread(weights)

    def cross_entropy(
        self,
        memory: Memory,
        tokens: Int[Tensor, "B N S"],
        label_smoothing: float = 0.0,
        caption_weights: Float[Tensor, "B N"] | None = None,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "B N S-1 L"]]:
        """The plain decoder's cross-entropy without holding all logits; weights are zero at PAD."""
        assert isinstance(memory, PreparedMemory)
        targets = tokens[..., 1:]
        words = PackedWords(tokens[..., :-1].masked_fill(targets == PAD, PAD))
        deep, weights = self._read(memory, words)
        places = words.places[words.real]
        loss_weights = None
        if caption_weights is not None:
            loss_weights = caption_weights.flatten()[places // targets.shape[2]]
        loss = linear_cross_entropy(
            deep,
            self.output.weight,
            self.output.bias,
            targets.flatten()[places],
            label_smoothing,
            loss_weights,
        )
        return loss, words.spread(weights)

    def _word_gates(
        self, read: Int[Tensor, "r"], words: Float[Tensor, "r m"]
    ) -> Float[Tensor, "r G"]:
        """The words' part of the LSTM's gates; a search computes it once per distinct word.

        Dropout may give equal words different embeddings, so a training computes it per row.
        """
        if self.dropout.training:
            return layer(self.word_gates, words)
        distinct, which = read.unique(return_inverse=True)
        gates = layer(self.word_gates, self.embedding(distinct))
        return gates.index_select(0, which)

    def _read(
        self, memory: PreparedMemory, words: PackedWords
    ) -> tuple[Float[Tensor, "r m"], Float[Tensor, "r L"]]:
        """The output layer's input for each real row, and the attention weights."""
        state = self.start(memory, words.shape[1])
        precision = memory.annotations.dtype
        embedded = self._dropout(self.embedding(words.tokens)).to(precision)
        query = self.attention.query
        width = self.hidden_gates.in_features
        by_hidden, by_word = query.weight.split([width, query.in_features - width], dim=1)
        beta, beta_bias = query.weight.new_zeros(1, width), query.weight.new_full((1,), OPEN)
        if self.scalar_gate:
            beta, beta_bias = self.beta.weight, self.beta.bias
        # Gates and deep output are linear in the contexts, which are linear in the annotation
        # vectors. So the annotation vectors are projected instead if there are fewer of them.
        of_contexts = [self.context_gates.weight]
        if self.deep_output:
            of_contexts.append(self.output_context.weight)
        values = memory.annotations
        context_gate: Tensor | None = of_contexts[0].to(precision)
        has_fewer_regions = values.shape[:2].numel() < len(words.tokens)
        if has_fewer_regions:
            values, context_gate = linear(values, torch.cat(of_contexts)), None
        parts = Parts(
            word_gates=layer(self.word_gates, embedded),
            word_queries=linear(embedded, by_word) if self.query_with_word else None,
            hidden=state["hidden"].to(precision),
            cell=state["cell"],
            keys=memory.prepared_keys,
            values=values,
            query=by_hidden.to(precision),
            gate=self.hidden_gates.weight.to(precision),
            beta=beta.to(precision),
            beta_bias=beta_bias.to(precision),
            context_gate=context_gate,
        )
        hidden, contexts, weights = (
            words.without_padding(part) for part in recur(self.kernel, words, memory.mask, parts)
        )
        projected = None
        if self.deep_output:
            projected = contexts if has_fewer_regions else layer(self.output_context, contexts)
        return self._deep(words.without_padding(embedded), hidden, projected), weights

    def _deep(
        self,
        words: Float[Tensor, "r m"],
        hidden: Float[Tensor, "r H"],
        projected: Float[Tensor, "r m"] | None,
    ) -> Float[Tensor, "r m"]:
        """The input of the output layer L_o: E y + L_h h + L_z z of eq. 7, given L_z z."""
        by_hidden = layer(self.output_hidden, self._dropout(hidden))
        if projected is None:  # without the deep output
            return self._dropout(by_hidden)
        return self._dropout(words + by_hidden + projected)

    def _dropout(self, x: Float[Tensor, "r X"]) -> Float[Tensor, "r X"]:
        return dropout(x, self.dropout.p, self.dropout.training)
