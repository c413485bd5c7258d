"""The training's loop over words (Xu et al. 2015, eq. 1-6, 13), with a backward pass of its own.

Equals the same equations in `captioning.models.lstm.LSTMDecoder.step` and PyTorch's gradients of
them. Autograd would make the loop several times as expensive: a product for every weight at every
word, zero-filled gradients of slices, and all energies kept until the end. Here the gradient of a
weight is one product over all words, gradients that many words share are added in place, and the
attention computes the gradients of its scores anew. Long trainings compile the remaining pointwise
arithmetic.

Rows of the LSTM belong to captions that have the word, any number per image. For the attention they
are put at their images.

Shapes: B images, N captions per image, L regions, D annotation width, A attention width, H width of
the LSTM, G its four gates; R rows, r of them of one word, with n captions per image, as in
`captioning.kernels.active_rows`.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from captioning.kernels.active_rows import PackedWords
from captioning.kernels.attention_scores import AttentionKernel
from captioning.kernels.compiled import Compiled
from captioning.kernels.linear import product, transposed_product
from captioning.models.attention import masked_softmax


class Parts(NamedTuple):
    """What the loop computes with. Keys and cell have precisions of their own, the rest one.

    Attributes:
        word_gates: the words' part of the LSTM's gates, bias included.
        word_queries: the words' part of the attention's queries; none where they have none.
        hidden: before the first word.
        cell: before the first word.
        keys: as the attention's kernel prepares them.
        values: what contexts are sums of: the annotation vectors, or their projections to all that
            is linear in a context, the LSTM's gates first.
        query: weight of the hidden state in the queries.
        gate: weight of the hidden state in the LSTM's gates.
        beta: weight of the hidden state in the gate of the context.
        beta_bias: its bias.
        context_gate: weight of the context in the LSTM's gates; none where values are projected.
    """

    word_gates: Float[Tensor, "R G"]
    word_queries: Float[Tensor, "R A"] | None
    hidden: Float[Tensor, "B N H"]
    cell: Float[Tensor, "B N H"]
    keys: Float[Tensor, "B L A"]
    values: Float[Tensor, "B L D"]
    query: Float[Tensor, "A H"]
    gate: Float[Tensor, "G H"]
    beta: Float[Tensor, "1 H"]
    beta_bias: Float[Tensor, "1"]
    context_gate: Float[Tensor, "G D"] | None


class Recurred(NamedTuple):
    """What the loop gives for every row.

    Attributes:
        hidden: the LSTM's hidden states.
        contexts: the gated contexts; where values are projected, what follows the LSTM's gates.
        weights: attention over regions.
    """

    hidden: Float[Tensor, "R H"]
    contexts: Float[Tensor, "R D"]
    weights: Float[Tensor, "R L"]


def recur(
    attention: AttentionKernel, rows: PackedWords, mask: Bool[Tensor, "B L"] | None, parts: Parts
) -> Recurred:
    """Attend and move the LSTM by one word, for all words of all captions (Xu et al., eq. 1-5)."""
    with torch.autocast(parts.hidden.device.type, enabled=False):  # precisions are chosen already
        return Recurred(*_Recurrence.apply(attention, rows, mask, *parts, *attention.scoring))


class Cell(NamedTuple):
    """The LSTM after one word (eq. 1-3), with what the backward pass needs.

    Attributes:
        hidden: the hidden state.
        cell: the cell.
        gates: sigmoids of all four gates, i, f, g and o one after the other.
        new: tanh of g, what is added to the cell.
        shown: tanh of the cell.
    """

    hidden: Float[Tensor, "*B H"]
    cell: Float[Tensor, "*B H"]
    gates: Float[Tensor, "*B G"]
    new: Float[Tensor, "*B H"]
    shown: Float[Tensor, "*B H"]


def lstm_cell(gates: Float[Tensor, "*B G"], cell: Float[Tensor, "*B H"]) -> Cell:
    """The pointwise part of the LSTM, in the precision of its cell; equals the plain `lstm_cell`.

    Args:
        gates: before their sigmoids and, for g, tanh.
        cell: before the word.
    """
    gates = gates.to(cell.dtype)
    opened = gates.sigmoid()
    take, keep, _, show = opened.chunk(4, dim=-1)
    new = gates.chunk(4, dim=-1)[2].tanh()
    cell = torch.addcmul(keep * cell, take, new)
    shown = cell.tanh()
    return Cell(show * shown, cell, opened, new, shown)


class _Kept(NamedTuple):
    """What the backward pass needs of a word."""

    hidden: Tensor  # (r, H), before the word
    cell: Tensor  # (r, H), before the word
    queries: Tensor  # (B, n, A)
    gates: Tensor  # (r, G), after their sigmoids
    new: Tensor  # (r, H)
    shown: Tensor  # (r, H)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        attention: AttentionKernel,
        rows: PackedWords,
        mask: Tensor | None,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, ...]:
        parts = Parts(*tensors[: len(Parts._fields)])  # type: ignore[arg-type]
        by_hidden = torch.cat([parts.query, parts.gate, parts.beta])  # one product for all three
        sizes = [len(parts.query), len(parts.gate), 1]
        count = len(rows.tokens)
        hidden = parts.hidden.new_empty(count, parts.hidden.shape[-1])
        contexts = parts.values.new_empty(count, parts.values.shape[-1])
        weights = parts.cell.new_empty(count, parts.values.shape[1])
        betas = parts.hidden.new_empty(count, 1)
        kept = []
        h, c = (part.flatten(0, 1)[rows.order] for part in (parts.hidden, parts.cell))
        for word in rows.words:
            here = word.here
            h, c = h[: word.size], c[: word.size]
            queries, gates, beta = product(h, by_hidden).split(sizes, dim=1)
            if parts.word_queries is not None:
                queries = queries + parts.word_queries[here]
            queries = word.by_image(queries)
            attended = masked_softmax(attention.scores(queries, parts.keys), mask)
            weights[here] = word.in_rows(attended)
            # Beta gates the weights: there are fewer of them than numbers in a context.
            betas[here] = (beta + parts.beta_bias).sigmoid()
            gated = attended * word.by_image(betas[here])
            contexts[here] = word.in_rows(gated.to(h.dtype) @ parts.values)
            by_context = contexts[here, : sizes[1]]
            if parts.context_gate is not None:
                by_context = product(contexts[here], parts.context_gate)
            after = _next_cell(gates, parts.word_gates[here], by_context, c)
            kept.append(_Kept(h, c, queries, after.gates, after.new, after.shown))
            h, c = after.hidden, after.cell
            hidden[here] = h
        ctx.attention, ctx.rows, ctx.kept, ctx.sizes = attention, rows, kept, sizes
        ctx.save_for_backward(parts.keys, parts.values, by_hidden, parts.context_gate)
        ctx.start, ctx.has_word_queries = parts.hidden.shape, parts.word_queries is not None
        ctx.weights, ctx.betas = weights.detach(), betas
        if parts.context_gate is None:
            return hidden, contexts[:, sizes[1] :].contiguous(), weights
        ctx.contexts = contexts.detach()
        return hidden, contexts, weights

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *of_outputs: Tensor) -> tuple[Tensor | None, ...]:
        of_hidden, of_contexts, of_weights = of_outputs
        keys, values, by_hidden, context_gate = ctx.saved_tensors
        images, captions, width = ctx.start
        of_sums = values.new_empty(len(of_hidden), values.shape[2])  # of values, by gated weights
        of_keys = torch.zeros_like(keys)
        of_scoring = [torch.zeros_like(parameter) for parameter in ctx.attention.scoring]
        of_mixed = by_hidden.new_empty(len(of_hidden), len(by_hidden))
        of_queries, of_gates, of_beta = of_mixed.split(ctx.sizes, dim=1)
        carried_h, carried_c = by_hidden.new_zeros(0, width), of_weights.new_zeros(0, width)
        for word, kept in zip(reversed(ctx.rows.words), reversed(ctx.kept), strict=True):
            here = word.here
            gates, carried_c = _cell_gradients(
                _with_rows(carried_h, word.size),
                of_hidden[here],
                _with_rows(carried_c, word.size),
                kept.cell,
                kept.gates,
                kept.new,
                kept.shown,
            )
            if context_gate is None:
                torch.cat([gates, of_contexts[here]], dim=1, out=of_sums[here])
            else:
                by_gates = product(gates, context_gate.t())
                torch.add(by_gates, of_contexts[here], out=of_sums[here])
            of_gated = word.in_rows(word.by_image(of_sums[here]) @ values.transpose(1, 2))
            weights, beta = ctx.weights[here], ctx.betas[here]
            of_betas = (of_gated * weights).sum(1, keepdim=True)
            of_attention = torch.addcmul(of_weights[here], of_gated, beta)
            of_scores = weights * (of_attention - (weights * of_attention).sum(-1, keepdim=True))
            of_queries[here] = word.in_rows(
                ctx.attention.add_gradients(
                    word.by_image(of_scores), kept.queries, keys, of_keys, of_scoring
                )
            )
            of_gates[here] = gates
            of_beta[here] = of_betas * beta * (1 - beta)
            carried_h = product(of_mixed[here], by_hidden.t())
        of_start = [
            torch.empty_like(x).index_copy_(0, ctx.rows.order, x).view(ctx.start)
            for x in (_with_rows(part, images * captions) for part in (carried_h, carried_c))
        ]
        before = torch.cat([kept.hidden for kept in ctx.kept])
        query, gate, beta = transposed_product(of_mixed, before).split(ctx.sizes)
        of_values = None
        if ctx.needs_input_grad[3 + Parts._fields.index("values")]:
            gated = (ctx.weights * ctx.betas).to(of_sums.dtype)
            by_image = [ctx.rows.by_image(part) for part in (gated, of_sums)]
            of_values = by_image[0].transpose(1, 2) @ by_image[1]
        of_parts: dict[str, Tensor | None] = {
            "word_gates": of_gates,
            "word_queries": of_queries if ctx.has_word_queries else None,
            "hidden": of_start[0],
            "cell": of_start[1],
            "keys": of_keys,
            "values": of_values,
            "query": query,
            "gate": gate,
            "beta": beta,
            "beta_bias": of_beta.sum(0),
            "context_gate": (
                None if context_gate is None else transposed_product(of_gates, ctx.contexts)
            ),
        }
        return None, None, None, *(of_parts[name] for name in Parts._fields), *of_scoring


def _with_rows(x: Tensor, rows: int) -> Tensor:
    """The rows of x, padded with zeros to this number."""
    return F.pad(x, (0, 0, 0, rows - len(x)))


def _summed_cell(by_hidden: Tensor, by_word: Tensor, by_context: Tensor, cell: Tensor) -> Cell:
    """The LSTM's cell from the summands of its gates; the hidden state has their precision."""
    after = lstm_cell(by_hidden + by_word + by_context, cell)
    return after._replace(hidden=after.hidden.to(by_hidden.dtype))


_next_cell = Compiled(_summed_cell)


@Compiled
def _cell_gradients(
    carried_h: Tensor,
    of_hidden: Tensor,
    carried_c: Tensor,
    cell: Tensor,
    gates: Tensor,
    new: Tensor,
    shown: Tensor,
) -> tuple[Tensor, Tensor]:
    """The gradients of the gates, before their sigmoids, and of the cell before the word.

    Gates and their gradients are (r, G), everything else (r, H).

    Args:
        carried_h: the gradient of the hidden state, by the next word.
        of_hidden: the same by everything else.
        carried_c: the gradient of the cell, by the next word.
        cell: before the word.
        gates: after their sigmoids.
        new: tanh of g.
        shown: tanh of the cell.
    """
    take, keep, _, show = gates.chunk(4, dim=-1)
    of_h = carried_h.to(cell.dtype) + of_hidden
    of_c = carried_c + of_h * show * (1 - shown.square())
    take_slope, keep_slope, _, show_slope = (gates * (1 - gates)).chunk(4, dim=-1)
    parts = [
        of_c * new * take_slope,
        of_c * cell * keep_slope,
        of_c * take * (1 - new.square()),
        of_h * shown * show_slope,
    ]
    return torch.cat(parts, dim=-1).to(of_hidden.dtype), of_c * keep
