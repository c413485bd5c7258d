"""Data: from files on disk to batches of tensors."""
