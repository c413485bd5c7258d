"""The training's loop over words, with a backward pass of its own.

What autograd would make of the loop costs several times as much: a product for every weight at
every word, zero-filled gradients of slices, and all energies kept until the end. Here gradients of
weights are one product over all words, gradients that many words share are added in place, and the
attention computes its scores' gradients anew.

Shapes: B images, N captions per image (n of them still running), L regions, D annotation width, A
attention width, H width of the LSTM, G its four gates, R rows as in `captioning.models.rows`.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from captioning.models.attention import Attention, masked_softmax
from captioning.models.linear import product, transposed_product
from captioning.models.rows import Rows


class Parts(NamedTuple):
    """What the loop computes with: all in one precision but keys and cell, which have their own.

    Attributes:
        word_gates: the words' part of the LSTM's gates, bias included.
        word_queries: the words' part of the attention's queries; none where they have none.
        hidden: before the first word.
        cell: before the first word.
        keys: of the attention.
        annotations: the annotation vectors.
        query: weight of the hidden state in the queries.
        gate: weight of the hidden state in the LSTM's gates.
        beta: weight of the hidden state in the gate of the context.
        beta_bias: its bias.
        context_gate: weight of the context in the LSTM's gates.
    """

    word_gates: Float[Tensor, "R G"]
    word_queries: Float[Tensor, "R A"] | None
    hidden: Float[Tensor, "B N H"]
    cell: Float[Tensor, "B N H"]
    keys: Float[Tensor, "B L A"]
    annotations: Float[Tensor, "B L D"]
    query: Float[Tensor, "A H"]
    gate: Float[Tensor, "G H"]
    beta: Float[Tensor, "1 H"]
    beta_bias: Float[Tensor, "1"]
    context_gate: Float[Tensor, "G D"]


class Recurred(NamedTuple):
    """What the loop gives for every row.

    Attributes:
        hidden: the LSTM's hidden states.
        contexts: the gated contexts.
        weights: attention over regions.
    """

    hidden: Float[Tensor, "R H"]
    contexts: Float[Tensor, "R D"]
    weights: Float[Tensor, "R L"]


def recur(
    attention: Attention, rows: Rows, mask: Bool[Tensor, "B L"] | None, parts: Parts
) -> Recurred:
    """Attend and move the LSTM by one word, for all words of all captions (Xu et al., eq. 1-5)."""
    with torch.autocast(parts.hidden.device.type, enabled=False):  # precisions are chosen already
        return Recurred(*_Recurrence.apply(attention, rows, mask, *parts, *attention.scoring))


class Cell(NamedTuple):
    """What becomes of the LSTM with one word (eq. 1-3).

    Attributes:
        hidden: the hidden state.
        cell: the cell.
        gates: sigmoids of all four gates, i, f, g and o one after the other.
        new: tanh of g, what is new to the cell.
        shown: tanh of the cell.
    """

    hidden: Float[Tensor, "*B H"]
    cell: Float[Tensor, "*B H"]
    gates: Float[Tensor, "*B G"]
    new: Float[Tensor, "*B H"]
    shown: Float[Tensor, "*B H"]


def lstm_cell(gates: Float[Tensor, "*B G"], cell: Float[Tensor, "*B H"]) -> Cell:
    """The pointwise part of the LSTM, in the precision of its cell.

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

    hidden: Tensor  # (B, n, H), before the word
    cell: Tensor  # (B, n, H), before the word
    queries: Tensor  # (B, n, A)
    beta: Tensor  # (B n, 1)
    context: Tensor  # (B n, D), before its gate
    gates: Tensor  # (B, n, G), after their sigmoids
    new: Tensor  # (B, n, H)
    shown: Tensor  # (B, n, H)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, attention: Attention, rows: Rows, mask: Tensor | None, *tensors: Tensor | None
    ) -> tuple[Tensor, ...]:
        parts = Parts(*tensors[: len(Parts._fields)])  # type: ignore[arg-type]
        by_hidden = torch.cat([parts.query, parts.gate, parts.beta])  # one product for all three
        sizes = [len(parts.query), len(parts.gate), 1]
        count = len(rows.tokens)
        hidden = parts.hidden.new_empty(count, parts.hidden.shape[-1])
        contexts = parts.annotations.new_empty(count, parts.annotations.shape[-1])
        weights = parts.cell.new_empty(count, parts.annotations.shape[1])
        kept = []
        h, c = parts.hidden, parts.cell
        for here, n in rows.slices:
            h, c = h[:, :n].contiguous(), c[:, :n].contiguous()
            queries, gates, beta = product(h.flatten(0, 1), by_hidden).split(sizes, dim=1)
            if parts.word_queries is not None:
                queries = queries + parts.word_queries[here]
            queries = queries.unflatten(0, (-1, n))
            attended = masked_softmax(attention.scores(queries, parts.keys), mask)
            context = (attended.to(h.dtype) @ parts.annotations).flatten(0, 1)
            beta = (beta + parts.beta_bias).sigmoid()
            torch.mul(beta, context, out=contexts[here])
            gates = gates + parts.word_gates[here]
            gates += product(contexts[here], parts.context_gate)
            after = lstm_cell(gates.unflatten(0, (-1, n)), c)
            kept.append(_Kept(h, c, queries, beta, context, after.gates, after.new, after.shown))
            h, c = after.hidden.to(h.dtype), after.cell
            hidden[here] = h.flatten(0, 1)
            weights[here] = attended.flatten(0, 1)
        ctx.attention, ctx.rows, ctx.kept, ctx.sizes = attention, rows, kept, sizes
        ctx.save_for_backward(parts.keys, parts.annotations, by_hidden, parts.context_gate)
        ctx.start, ctx.has_word_queries = parts.hidden.shape, parts.word_queries is not None
        ctx.contexts, ctx.weights = contexts.detach(), weights.detach()
        return hidden, contexts, weights

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *of_outputs: Tensor) -> tuple[Tensor | None, ...]:
        of_hidden, of_contexts, of_weights = of_outputs
        keys, annotations, by_hidden, context_gate = ctx.saved_tensors
        images, captions, width = ctx.start
        of_keys = torch.zeros_like(keys)
        of_scoring = [torch.zeros_like(parameter) for parameter in ctx.attention.scoring]
        of_attended = torch.empty_like(ctx.contexts)  # the gradients of contexts before their gates
        of_mixed = by_hidden.new_empty(len(ctx.contexts), len(by_hidden))
        of_queries, of_gates, of_beta = of_mixed.split(ctx.sizes, dim=1)
        carried_h = carried_c = of_weights.new_zeros(images, 0, width)
        for (here, n), kept in zip(
            reversed(list(ctx.rows.slices)), reversed(ctx.kept), strict=True
        ):
            new_captions = (0, 0, 0, n - carried_h.shape[1])
            of_h = F.pad(carried_h, new_captions) + of_hidden[here].unflatten(0, (-1, n))
            of_c = F.pad(carried_c, new_captions)
            gates, carried_c = _cell_gradients(of_h, of_c, kept)
            gates = gates.flatten(0, 1).to(of_mixed.dtype)
            context = product(gates, context_gate.t()).add_(of_contexts[here])
            beta = (context * kept.context).sum(1, keepdim=True)
            context = torch.mul(context, kept.beta, out=of_attended[here]).unflatten(0, (-1, n))
            weights = ctx.weights[here].unflatten(0, (-1, n))
            of_attention = of_weights[here].unflatten(0, (-1, n)) + (
                context @ annotations.transpose(1, 2)
            )
            of_scores = weights * (of_attention - (weights * of_attention).sum(-1, keepdim=True))
            of_queries[here] = ctx.attention.add_gradients(
                of_scores, kept.queries, keys, of_keys, of_scoring
            ).flatten(0, 1)
            of_gates[here] = gates
            of_beta[here] = beta * kept.beta * (1 - kept.beta)
            carried_h = product(of_mixed[here], by_hidden.t()).unflatten(0, (-1, n)).to(of_c.dtype)
        rest = (0, 0, 0, captions - carried_h.shape[1])
        before = torch.cat([kept.hidden.flatten(0, 1) for kept in ctx.kept])
        query, gate, beta = transposed_product(of_mixed, before).split(ctx.sizes)
        of_annotations = None
        if ctx.needs_input_grad[3 + Parts._fields.index("annotations")]:
            of_annotations = _annotation_gradients(ctx.rows, ctx.weights, of_attended)
        of_parts: dict[str, Tensor | None] = {
            "word_gates": of_gates,
            "word_queries": of_queries if ctx.has_word_queries else None,
            "hidden": F.pad(carried_h, rest).to(before.dtype),
            "cell": F.pad(carried_c, rest),
            "keys": of_keys,
            "annotations": of_annotations,
            "query": query,
            "gate": gate,
            "beta": beta,
            "beta_bias": of_beta.sum(0),
            "context_gate": transposed_product(of_gates, ctx.contexts),
        }
        return None, None, None, *(of_parts[name] for name in Parts._fields), *of_scoring


def _cell_gradients(of_h: Tensor, of_c: Tensor, kept: _Kept) -> tuple[Tensor, Tensor]:
    """The gradients of the gates, before their sigmoids, and of the cell before the word."""
    take, keep, _, show = kept.gates.chunk(4, dim=-1)
    of_c = of_c + of_h * show * (1 - kept.shown.square())
    slopes = kept.gates * (1 - kept.gates)
    slopes.chunk(4, dim=-1)[2].copy_(1 - kept.new.square())
    of_gates = torch.cat([of_c * kept.new, of_c * kept.cell, of_c * take, of_h * kept.shown], -1)
    return of_gates.mul_(slopes), of_c * keep


def _annotation_gradients(rows: Rows, weights: Tensor, of_attended: Tensor) -> Tensor:
    """Those of the annotation vectors, by the contexts of all words in one product per image."""
    by_image = [
        torch.cat([part[here].unflatten(0, (-1, n)) for here, n in rows.slices], dim=1)
        for part in (weights.to(of_attended.dtype), of_attended)
    ]
    return by_image[0].transpose(1, 2) @ by_image[1]
