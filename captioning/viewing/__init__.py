"""Pictures of where the model looked."""
