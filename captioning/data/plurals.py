"""Regular plurals of English nouns."""


def plurals(name: str) -> list[str]:
    """Candidates for the regular plural of a name's last word; a few non-words do no harm.

    WordNet's rules map plurals to lemmas and are applied in reverse. NLTK has them without
    WordNet's data. Stemming would be no better: it would confuse skis with skiing, officers with
    offices, and performers with performing.
    """
    from nltk.corpus.reader.wordnet import NOUN, WordNetCorpusReader  # takes half a second

    rules = [*WordNetCorpusReader.MORPHOLOGICAL_SUBSTITUTIONS[NOUN], ("oes", "o")]
    return [f"{name.removesuffix(last)}{plural}" for plural, last in rules if name.endswith(last)]
