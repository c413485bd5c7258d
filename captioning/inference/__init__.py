"""Bulk captioning: shards of captions, their manifest, and the machines that share the work."""
