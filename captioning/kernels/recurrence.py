"""The training loop over words (Xu et al. 2015, eq. 1-6, 13), with its own backward pass.

Worth: 2.1 times the speed of a training step of the photo model's size and 3.5 of *large*.

Equals a loop over `captioning.models.lstm.LSTMDecoder.step` up to the deep output, and PyTorch's
gradients of it. Autograd would need a product per weight and word, zero-filled gradients of slices,
and all energies until the end. Here the gradient of a weight is one product over all words,
gradients that many words share are added in place, and the attention recomputes what the gradients
of its scores need. Long trainings compile the remaining pointwise arithmetic.

One word of one caption computes, with h and c the state before it, y the word's embedding and a_l
the annotation vectors:

    q = W_q h + (word's query)                alpha = softmax(scores(q, keys))   (eq. 4-5)
    beta = sigmoid(w_b h + b_b)               z = sum_l beta alpha_l a_l         (eq. 13)
    gates = W_h h + W_z z + (word's gates)    h, c = cell(gates, c)              (eq. 1-3)

In comments, d x is the gradient of the loss by x.

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


class RecurrenceInputs(NamedTuple):
    """The loop's input tensors. Keys and cell have precisions of their own, the rest share one."""

    word_gates: Float[Tensor, "R G"]  # the words' part of the gates, bias included
    word_queries: Float[Tensor, "R A"] | None  # None if queries ignore words
    hidden: Float[Tensor, "B N H"]  # before the first word
    cell: Float[Tensor, "B N H"]  # before the first word
    keys: Float[Tensor, "B L A"]  # as the attention's kernel prepares them
    values: Float[Tensor, "B L D"]  # annotation vectors
    query: Float[Tensor, "A H"]  # W_q
    gate: Float[Tensor, "G H"]  # W_h
    beta: Float[Tensor, "1 H"]  # w_b
    beta_bias: Float[Tensor, "1"]  # b_b
    context_gate: Float[Tensor, "G D"]  # W_z


def recur(
    attention: AttentionKernel,
    rows: PackedWords,
    mask: Bool[Tensor, "B L"] | None,
    parts: RecurrenceInputs,
) -> tuple[Float[Tensor, "R H"], Float[Tensor, "R D"], Float[Tensor, "R L"]]:
    """Attend and update the LSTM for all words; returns h, z and alpha of each word."""
    with torch.autocast(parts.hidden.device.type, enabled=False):  # `parts` have their precisions
        return _Recurrence.apply(attention, rows, mask, *parts, *attention.parameters)


class Cell(NamedTuple):
    """The LSTM after one word, with the activations that the backward pass needs."""

    hidden: Float[Tensor, "*B H"]  # h
    cell: Float[Tensor, "*B H"]  # c
    gates: Float[Tensor, "*B G"]  # sigmoids of i, f, g and o, side by side
    candidate: Float[Tensor, "*B H"]  # tanh of g
    cell_tanh: Float[Tensor, "*B H"]  # tanh of c


class _WordActivations(NamedTuple):
    """The activations of one word that the backward pass needs."""

    hidden: Tensor  # (r, H), before the word
    cell: Tensor  # (r, H), before the word
    queries: Tensor  # (B, n, A)
    output: Cell


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        attention: AttentionKernel,
        rows: PackedWords,
        mask: Tensor | None,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, ...]:
        parts = RecurrenceInputs(*tensors[: len(RecurrenceInputs._fields)])  # type: ignore[arg-type]
        # One product for all three.
        hidden_weight = torch.cat([parts.query, parts.gate, parts.beta])
        sizes = [len(parts.query), len(parts.gate), 1]
        count = len(rows.tokens)
        hidden = parts.hidden.new_empty(count, parts.hidden.shape[-1])
        contexts = parts.values.new_empty(count, parts.values.shape[-1])
        weights = parts.cell.new_empty(count, parts.values.shape[1])
        betas = parts.hidden.new_empty(count, 1)
        activations = []
        h, c = (part.flatten(0, 1)[rows.order] for part in (parts.hidden, parts.cell))
        for word in rows.words:
            span = word.span
            h, c = h[: word.size], c[: word.size]
            queries, gates, beta = product(h, hidden_weight).split(sizes, dim=1)
            if parts.word_queries is not None:
                queries = queries + parts.word_queries[span]
            queries = word.by_image(queries)
            alpha = masked_softmax(attention.scores(queries, parts.keys), mask)
            weights[span] = word.in_rows(alpha)
            # Beta gates the weights rather than the context, which is longer.
            betas[span] = (beta + parts.beta_bias).sigmoid()
            gated_weights = alpha * word.by_image(betas[span])
            contexts[span] = word.in_rows(gated_weights.to(h.dtype) @ parts.values)
            context_gates = product(contexts[span], parts.context_gate)
            output = next_cell(gates, parts.word_gates[span], context_gates, c)
            activations.append(_WordActivations(h, c, queries, output))
            h, c = output.hidden, output.cell
            hidden[span] = h
        ctx.attention, ctx.rows, ctx.sizes = attention, rows, sizes
        ctx.activations = activations
        ctx.save_for_backward(parts.keys, parts.values, hidden_weight, parts.context_gate)
        ctx.start, ctx.has_word_queries = parts.hidden.shape, parts.word_queries is not None
        ctx.weights, ctx.betas, ctx.contexts = weights.detach(), betas, contexts.detach()
        return hidden, contexts, weights

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_contexts, grad_weights = grads
        keys, values, hidden_weight, context_gate = ctx.saved_tensors
        images, captions, width = ctx.start
        grad_sums = values.new_empty(len(grad_hidden), values.shape[2])  # of z
        grad_keys = torch.zeros_like(keys)
        grad_parameters = [torch.zeros_like(parameter) for parameter in ctx.attention.parameters]
        # Queries, gates and beta side by side, as `hidden_weight` computes them.
        grad_qgb = hidden_weight.new_empty(len(grad_hidden), len(hidden_weight))
        grad_queries, grad_gates, grad_beta = grad_qgb.split(ctx.sizes, dim=1)
        carried_h, carried_c = hidden_weight.new_zeros(0, width), grad_weights.new_zeros(0, width)
        words = zip(reversed(ctx.rows.words), reversed(ctx.activations), strict=True)
        for word, activations in words:
            span = word.span
            carried_h, carried_c = (_pad_rows(x, word.size) for x in (carried_h, carried_c))
            _, _, *cell_activations = activations.output
            word_grad_gates, carried_c = cell_gradients(
                carried_h, grad_hidden[span], carried_c, activations.cell, *cell_activations
            )
            grad_gates[span] = word_grad_gates
            # d z = (d gates) W_z + the gradient of z as an output
            grad_z_by_gates = product(word_grad_gates, context_gate.t())
            torch.add(grad_z_by_gates, grad_contexts[span], out=grad_sums[span])
            # z = sum_l g_l a_l with g = beta alpha, so d g_l = d z . a_l
            grad_gated = word.in_rows(word.by_image(grad_sums[span]) @ values.transpose(1, 2))
            weights, beta = ctx.weights[span], ctx.betas[span]
            # d beta = sum_l alpha_l d g_l, times the sigmoid's beta (1 - beta)
            grad_sigmoid = (grad_gated * weights).sum(1, keepdim=True)
            grad_beta[span] = grad_sigmoid * beta * (1 - beta)
            # d alpha = beta d g + the gradient of the weights as an output
            grad_alpha = torch.addcmul(grad_weights[span], grad_gated, beta)
            # softmax: d score_l = alpha_l (d alpha_l - sum_k alpha_k d alpha_k)
            grad_scores = weights * (grad_alpha - (weights * grad_alpha).sum(-1, keepdim=True))
            grad_queries[span] = word.in_rows(
                ctx.attention.add_gradients(
                    word.by_image(grad_scores),
                    activations.queries,
                    keys,
                    grad_keys,
                    grad_parameters,
                )
            )
            # d h = (d q) W_q + (d gates) W_h + (d beta) w_b
            carried_h = product(grad_qgb[span], hidden_weight.t())
        grad_start = [
            torch.empty_like(x).index_copy_(0, ctx.rows.order, x).view(ctx.start)
            for x in (_pad_rows(part, images * captions) for part in (carried_h, carried_c))
        ]
        # d W = sum over words of (d q, d gates, d beta) h^T
        hidden = torch.cat([activations.hidden for activations in ctx.activations])
        query, gate, beta = transposed_product(grad_qgb, hidden).split(ctx.sizes)
        grad_values = None
        if ctx.needs_input_grad[3 + RecurrenceInputs._fields.index("values")]:
            # d a_l = sum over words of beta alpha_l d z
            gated_weights = (ctx.weights * ctx.betas).to(grad_sums.dtype)
            image_weights = ctx.rows.by_image(gated_weights)
            grad_values = image_weights.transpose(1, 2) @ ctx.rows.by_image(grad_sums)
        grad_parts = RecurrenceInputs(
            word_gates=grad_gates,
            word_queries=grad_queries if ctx.has_word_queries else None,
            hidden=grad_start[0],
            cell=grad_start[1],
            keys=grad_keys,
            values=grad_values,  # type: ignore[arg-type]
            query=query,
            gate=gate,
            beta=beta,
            beta_bias=grad_beta.sum(0),
            # d W_z = sum over words of (d gates) z^T
            context_gate=transposed_product(grad_gates, ctx.contexts),
        )
        return None, None, None, *grad_parts, *grad_parameters


def _pad_rows(x: Tensor, rows: int) -> Tensor:
    """Pad x with zeros to this number of rows."""
    return F.pad(x, (0, 0, 0, rows - len(x)))


def lstm_cell(gates: Float[Tensor, "*B G"], cell: Float[Tensor, "*B H"]) -> Cell:
    """Equals the cell of `captioning.models.LSTMDecoder` (Xu et al. 2015, eq. 1-3)."""
    gates = gates.to(cell.dtype)
    sigmoids = gates.sigmoid()
    i, f, _, o = sigmoids.chunk(4, dim=-1)
    candidate = gates.chunk(4, dim=-1)[2].tanh()
    cell = torch.addcmul(f * cell, i, candidate)
    cell_tanh = cell.tanh()
    return Cell(o * cell_tanh, cell, sigmoids, candidate, cell_tanh)


@Compiled
def next_cell(
    hidden_gates: Tensor, word_gates: Tensor, context_gates: Tensor, cell: Tensor
) -> Cell:
    """`lstm_cell` of the sum of three parts of the gates; hidden states get their precision."""
    output = lstm_cell(hidden_gates + word_gates + context_gates, cell)
    # Not by `_replace`, which PyTorch 2.11 cannot compile.
    return Cell(output.hidden.to(hidden_gates.dtype), *output[1:])


@Compiled
def cell_gradients(
    carried_h: Tensor,
    grad_hidden: Tensor,
    carried_c: Tensor,
    cell: Tensor,
    gates: Tensor,
    candidate: Tensor,
    cell_tanh: Tensor,
) -> tuple[Tensor, Tensor]:
    """The gradients of the gates' pre-activations, (r, G), and of c', the cell before, (r, H).

    `carried_h` and `carried_c` come from the next word, `grad_hidden` from everything else; the
    last three arguments are those of `Cell`, and n in comments is `candidate`.
    """
    i, f, _, o = gates.chunk(4, dim=-1)
    i_slope, f_slope, _, o_slope = (gates * (1 - gates)).chunk(4, dim=-1)
    grad_h = carried_h.to(cell.dtype) + grad_hidden
    grad_c = carried_c + grad_h * o * (1 - cell_tanh.square())  # h = o tanh(c)
    parts = [
        grad_c * candidate * i_slope,  # c = f c' + i n, di = i (1 - i)
        grad_c * cell * f_slope,  # dc/df = c', df = f (1 - f)
        grad_c * i * (1 - candidate.square()),  # dc/dn = i, dn/dg = 1 - n^2
        grad_h * cell_tanh * o_slope,  # dh/do = tanh(c), do = o (1 - o)
    ]
    return torch.cat(parts, dim=-1).to(grad_hidden.dtype), grad_c * f  # dc/dc' = f
