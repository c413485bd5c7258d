"""How good captions are, measured against what people wrote."""
