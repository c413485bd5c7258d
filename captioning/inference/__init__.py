"""Many photos: processes that share them, shards of captions, and the manifest beside these."""
