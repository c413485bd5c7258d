"""The model: encoder, attention, decoder, search, and the captioner that holds them together."""

from captioning.models.attention import AdditiveAttention, Attention, DotProductAttention
from captioning.models.caption import Caption
from captioning.models.captioner import Captioner
from captioning.models.checkpoint import load
from captioning.models.decoder import Decoder
from captioning.models.decoding import BeamSearch, Greedy, Sampling
from captioning.models.encoder import BACKBONES, CNNEncoder
from captioning.models.lstm import LSTMDecoder
from captioning.models.search import Decoded, Search

__all__ = [
    "BACKBONES",
    "AdditiveAttention",
    "Attention",
    "BeamSearch",
    "CNNEncoder",
    "Caption",
    "Captioner",
    "Decoded",
    "Decoder",
    "DotProductAttention",
    "Greedy",
    "LSTMDecoder",
    "Sampling",
    "Search",
    "load",
]
