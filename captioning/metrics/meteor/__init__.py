"""METEOR 1.5 for English, without Java.

Denkowski and Lavie, "Meteor Universal: Language Specific Translation Evaluation for Any Target
Language", WMT 2014, https://aclanthology.org/W14-3348. Where the papers are ambiguous, for instance
about which of two equally good alignments counts, this follows the authors' program.
"""
