"""Show, Attend and Tell: captions for photos, and where the model looked for every word."""
