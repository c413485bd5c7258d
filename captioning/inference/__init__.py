"""Bulk captioning: processes that share the photos, shards of captions, and their manifest."""
