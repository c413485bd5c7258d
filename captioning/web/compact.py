"""ONNX graphs with their weights in 16 or 8 bits, which are computed with in single precision."""

from pathlib import Path

import numpy as np

LEAST = 4096  # numbers; smaller tensors stay as they are
LARGEST = 127  # of an 8-bit number


def compact(source: Path, target: Path, matrices_in_8_bits: bool) -> None:
    """Write a graph with its large tensors in half precision, or its matrices in 8 bits.

    Tensors of at least `LEAST` numbers are packed, except those that exceed the range of half
    precision. In 8 bits each row has a scale of its own. The graph begins with the conversion to
    single precision, which a runtime does once, when it loads the graph.

    Args:
        source: the graph.
        target: the smaller one.
        matrices_in_8_bits: for tensors of two axes; others are in half precision all the same.
    """
    import onnx  # an extra
    from onnx import TensorProto, helper, numpy_helper

    model = onnx.load(str(source))
    graph = model.graph
    converting = []
    for tensor in [*graph.initializer]:
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.size < LEAST:
            continue
        name, small = tensor.name, f"{tensor.name}.small"
        cast = name
        if matrices_in_8_bits and values.ndim == 2:
            scales = np.abs(values).max(axis=1, keepdims=True) / LARGEST
            scales = np.maximum(scales, np.finfo(np.float32).tiny).astype(np.float32)
            packed = np.rint(values / scales).astype(np.int8)
            cast, scale = f"{name}.cast", f"{name}.scale"
            graph.initializer.append(numpy_helper.from_array(scales, scale))
            converting.append(helper.make_node("Mul", [cast, scale], [name]))
        else:
            with np.errstate(over="ignore"):
                packed = values.astype(np.float16)
            if not np.isfinite(packed).all():
                continue
        converting.insert(0, helper.make_node("Cast", [small], [cast], to=TensorProto.FLOAT))
        graph.initializer.remove(tensor)
        graph.initializer.append(numpy_helper.from_array(packed, small))
    nodes = [*converting, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.checker.check_model(model)
    target.write_bytes(model.SerializeToString())
