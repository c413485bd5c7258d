"""The model: encoder, adapter, attention and decoders."""

from captioning.models.adapter import Adapter
from captioning.models.attention import (
    AdditiveAttention,
    Attention,
    DotProductAttention,
    HardAttention,
    MultiHeadAttention,
    ScoredAttention,
)
from captioning.models.backbones import BACKBONES
from captioning.models.decoder import Decoder
from captioning.models.encoder import CNNEncoder, Encoder
from captioning.models.lstm import LSTMDecoder
from captioning.models.model import Model
from captioning.models.text_encoder import TextEncoder
from captioning.models.transformer import TransformerDecoder

__all__ = [
    "BACKBONES",
    "Adapter",
    "AdditiveAttention",
    "Attention",
    "CNNEncoder",
    "Decoder",
    "DotProductAttention",
    "Encoder",
    "HardAttention",
    "LSTMDecoder",
    "Model",
    "MultiHeadAttention",
    "ScoredAttention",
    "TextEncoder",
    "TransformerDecoder",
]
