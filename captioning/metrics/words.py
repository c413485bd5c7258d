"""The words of captions that a model wrote."""

from captioning.data.tokens import tokenize
from captioning.data.vocabulary import SPECIAL, UNK


def generated_words(caption: str) -> list[str]:
    """The words of a generated caption, in which `<unk>` is one word and not three."""
    words = []
    for index, known in enumerate(caption.split(SPECIAL[UNK])):
        if index > 0:
            words.append(SPECIAL[UNK])
        words += tokenize(known)
    return words
