"""The kernel of the LSTM decoder: the same numbers in a fraction of the time.

Shapes: B images, N captions per image, r active rows, L regions, D annotation width, H width of the
LSTM, G its four gates, m width of a word embedding, T words, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from captioning.data.vocabulary import PAD
from captioning.kernels.active_rows import ActiveRows, PackedWords
from captioning.kernels.active_step import ActiveStep
from captioning.kernels.attention_scores import attention_kernel
from captioning.kernels.dropout import dropout
from captioning.kernels.linear import layer, linear
from captioning.kernels.linear_cross_entropy import linear_cross_entropy
from captioning.kernels.lstm_cell import lstm_cell
from captioning.kernels.recurrence import Parts, recur
from captioning.kernels.shared_prefixes import SharedPrefixes
from captioning.models.attention import masked_softmax
from captioning.models.decoder import Decoder, Memory, State
from captioning.models.lstm import LSTMDecoder, LSTMMemory, mean_annotation

OPEN = 100.0
"""A bias by which the gate beta is one to the last bit, in every precision."""

KNOWN_LAYERS = (nn.Linear, nn.Embedding, nn.Dropout, nn.ReLU, nn.Sequential)


@dataclass(frozen=True)
class PreparedMemory(Memory):
    """The memory of the LSTM's kernel.

    Attributes:
        prepared_keys: the keys as the attention's kernel prepares them.
    """

    prepared_keys: Float[Tensor, "B L A"]


class FastLSTM(Decoder):
    """Equals the plain `LSTMDecoder` whose parameters it uses.

    In training, everything outside the recurrence is one product over all words, the loop over
    words has its own backward pass, captions leave the loop as they end, and the logits are in
    memory for a few words at a time. In a search, captions leave the batch as they end, captions
    with a shared prefix attend once, and each distinct word's part of the gates is computed once.

    Args:
        plain: a decoder that `knows` accepts.
    """

    def __init__(self, plain: LSTMDecoder) -> None:
        super().__init__(plain.annotation_dim, plain.vocab_size)
        kernel = attention_kernel(plain.attention)
        assert kernel is not None
        self.plain = plain
        self.attention = kernel

    @staticmethod
    def knows(decoder: Decoder) -> bool:
        """Whether this kernel equals the decoder.

        False for subclasses, unknown attentions or layers, and modules with hooks.
        """
        if type(decoder) is not LSTMDecoder or attention_kernel(decoder.attention) is None:
            return False
        modules = [module for module in decoder.modules() if module is not decoder]
        return decoder.attention.query.bias is None and not any(
            (type(module) not in KNOWN_LAYERS and module is not decoder.attention)
            or module._forward_hooks
            or module._forward_pre_hooks
            or module._backward_hooks
            or module._backward_pre_hooks
            for module in modules
        )

    def remember(
        self, annotations: Float[Tensor, "B L D"], mask: Bool[Tensor, "B L"] | None = None
    ) -> PreparedMemory:
        """Projected annotation vectors and their prepared keys."""
        project = self.plain.project
        for module in project if isinstance(project, nn.Sequential) else [project]:
            if isinstance(module, nn.Linear):
                annotations = layer(module, annotations)
            elif isinstance(module, nn.Dropout):
                annotations = dropout(annotations, module.p, module.training)
            else:
                annotations = module(annotations)
        device = annotations.device.type
        if torch.is_autocast_enabled(device):  # once here, not at every word
            annotations = annotations.to(torch.get_autocast_dtype(device))
        keys = layer(self.plain.attention.key, self.plain.key_vectors(annotations, mask))
        return PreparedMemory(annotations, mask, self.attention.prepare(keys))

    def start(self, memory: Memory, n: int) -> State:
        """The plain decoder's state, and the index of the caption that each caption continues."""
        mean = mean_annotation(memory)
        origin = torch.zeros(len(mean), n, dtype=torch.long, device=mean.device)
        if not self.plain.start_from_mean:
            return self.plain.start(memory, n) | {"origin": origin}
        precision = torch.promote_types(mean.dtype, torch.float32)
        cell = layer(self.plain.initial_cell, mean).to(precision)
        return {
            "hidden": layer(self.plain.initial_hidden, mean).tanh().expand(-1, n, -1),
            "cell": cell.tanh().expand(-1, n, -1),
            "origin": origin,
        }

    def step(self, tokens: Int[Tensor, "B N"], state: State, memory: Memory) -> ActiveStep:
        """Read one word of every active caption and score the next."""
        plain, memory = self.plain, self._prepared(memory)
        rows = ActiveRows.of(tokens)
        read = rows.in_rows(tokens)
        words = self._dropout(plain.embedding(read))
        hidden, cell = rows.in_rows(state["hidden"]), rows.in_rows(state["cell"])
        shared = SharedPrefixes(rows)
        if not plain.query_with_word:  # then everything up to the gates depends on `hidden` alone
            shared = SharedPrefixes.among(rows, tokens, state["origin"])
        hidden = shared.compact(hidden)
        query = torch.cat([hidden, words], dim=-1) if plain.query_with_word else hidden
        queries = shared.rows.by_image(layer(plain.attention.query, query))
        weights = masked_softmax(self.attention.scores(queries, memory.prepared_keys), memory.mask)
        context = shared.rows.in_rows(weights.to(memory.annotations.dtype) @ memory.annotations)
        if plain.scalar_gate:
            context = layer(plain.beta, hidden).sigmoid() * context
        before = layer(plain.hidden_gates, hidden)
        before += layer(plain.context_gates, context)
        gates = self._word_gates(read, words)
        gates += shared.expand(before)
        after = lstm_cell(gates, cell)
        hidden = after.hidden.to(before.dtype)
        projected = None
        if plain.deep_output:
            projected = shared.expand(layer(plain.output_context, context))
        logits = layer(plain.output, self._deep(words, hidden, projected))
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
        words = PackedWords(tokens)
        deep, weights = self._read(self._prepared(memory), words)
        return words.spread(layer(self.plain.output, deep)), words.spread(weights)

    def cross_entropy(
        self,
        memory: Memory,
        tokens: Int[Tensor, "B N S"],
        label_smoothing: float = 0.0,
        importance: Float[Tensor, "B N"] | None = None,
        never: Sequence[int] = (),
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "B N S-1 L"]]:
        """The plain decoder's loss without ever holding all logits; weights are zero at PAD."""
        targets = tokens[..., 1:]
        words = PackedWords(tokens[..., :-1].masked_fill(targets == PAD, PAD))
        deep, weights = self._read(self._prepared(memory), words)
        places = words.places[words.real]
        if importance is not None:
            importance = importance.flatten()[places // targets.shape[2]]
        output = self.plain.output
        bias: Tensor = output.bias
        if never:
            bias = bias.index_fill(0, torch.tensor(never, device=bias.device), -torch.inf)
        wanted = targets.flatten()[places]
        loss = linear_cross_entropy(deep, output.weight, bias, wanted, label_smoothing, importance)
        return loss, words.spread(weights)

    def _prepared(self, memory: Memory) -> PreparedMemory:
        """The memory with prepared keys, also if the plain decoder made it."""
        if isinstance(memory, PreparedMemory):
            return memory
        assert isinstance(memory, LSTMMemory)
        return PreparedMemory(memory.annotations, memory.mask, self.attention.prepare(memory.keys))

    def _word_gates(
        self, read: Int[Tensor, "r"], words: Float[Tensor, "r m"]
    ) -> Float[Tensor, "r G"]:
        """The words' part of the LSTM's gates; a search computes it once per distinct word.

        Args:
            read: the words.
            words: their embeddings after dropout, which may differ between equal words.
        """
        if self.plain.training or read.device.type != "cpu":
            return layer(self.plain.word_gates, words)
        distinct, which = read.unique(return_inverse=True)
        gates = layer(self.plain.word_gates, self.plain.embedding(distinct))
        return gates.index_select(0, which)

    def _read(
        self, memory: PreparedMemory, words: PackedWords
    ) -> tuple[Float[Tensor, "r m"], Float[Tensor, "r L"]]:
        """The output layer's input for each real row, and the attention weights.

        Everything outside the recurrence is one product over all words.
        """
        plain = self.plain
        state = self.start(memory, words.shape[1])
        precision = memory.annotations.dtype
        embedded = self._dropout(plain.embedding(words.tokens)).to(precision)
        query = plain.attention.query
        width = plain.hidden_gates.in_features
        by_hidden, by_word = query.weight.split([width, query.in_features - width], dim=1)
        beta, beta_bias = query.weight.new_zeros(1, width), query.weight.new_full((1,), OPEN)
        if plain.scalar_gate:
            beta, beta_bias = plain.beta.weight, plain.beta.bias
        # Gates and deep output are linear in the contexts, and contexts in the annotation vectors.
        # So if there are fewer annotation vectors than words, they are projected instead of the
        # contexts.
        of_contexts = [plain.context_gates.weight]
        if plain.deep_output:
            of_contexts.append(plain.output_context.weight)
        values = memory.annotations
        context_gate: Tensor | None = of_contexts[0].to(precision)
        has_fewer_regions = values.shape[:2].numel() < len(words.tokens)
        if has_fewer_regions:
            values, context_gate = linear(values, torch.cat(of_contexts)), None
        parts = Parts(
            word_gates=layer(plain.word_gates, embedded),
            word_queries=linear(embedded, by_word) if plain.query_with_word else None,
            hidden=state["hidden"].to(precision),
            cell=state["cell"],
            keys=memory.prepared_keys,
            values=values,
            query=by_hidden.to(precision),
            gate=plain.hidden_gates.weight.to(precision),
            beta=beta.to(precision),
            beta_bias=beta_bias.to(precision),
            context_gate=context_gate,
        )
        hidden, contexts, weights = (
            words.without_padding(part) for part in recur(self.attention, words, memory.mask, parts)
        )
        projected = None
        if plain.deep_output:
            projected = contexts if has_fewer_regions else layer(plain.output_context, contexts)
        return self._deep(words.without_padding(embedded), hidden, projected), weights

    def _deep(
        self,
        words: Float[Tensor, "r m"],
        hidden: Float[Tensor, "r H"],
        projected: Float[Tensor, "r m"] | None,
    ) -> Float[Tensor, "r m"]:
        """The input of the output layer L_o: E y + L_h h + L_z z of eq. 7, given L_z z."""
        by_hidden = layer(self.plain.output_hidden, self._dropout(hidden))
        if projected is None:  # without the deep output
            return self._dropout(by_hidden)
        return self._dropout(words + by_hidden + projected)

    def _dropout(self, x: Float[Tensor, "r X"]) -> Float[Tensor, "r X"]:
        return dropout(x, self.plain.dropout.p, self.plain.dropout.training)
