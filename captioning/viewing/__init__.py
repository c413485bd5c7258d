"""Visualisations of attention."""
