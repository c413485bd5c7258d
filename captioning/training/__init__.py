"""Training: losses, the Lightning module, and what goes with it."""
