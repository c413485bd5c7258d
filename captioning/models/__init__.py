"""The model of the paper: encoder, attention and decoder."""

from captioning.models.attention import (
    AdditiveAttention,
    Attention,
    DotProductAttention,
    MultiHeadAttention,
)
from captioning.models.backbones import BACKBONES
from captioning.models.decoder import Decoder
from captioning.models.encoder import CNNEncoder, Encoder
from captioning.models.hard_attention import ArgmaxHardAttention, HardAttention
from captioning.models.lstm import LSTMDecoder
from captioning.models.text_encoder import TextEncoder
from captioning.models.transformer import TransformerDecoder

__all__ = [
    "BACKBONES",
    "AdditiveAttention",
    "ArgmaxHardAttention",
    "Attention",
    "CNNEncoder",
    "Decoder",
    "DotProductAttention",
    "Encoder",
    "HardAttention",
    "LSTMDecoder",
    "MultiHeadAttention",
    "TextEncoder",
    "TransformerDecoder",
]
