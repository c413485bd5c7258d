"""Captions for very many images, by one process or by several that share the work."""
