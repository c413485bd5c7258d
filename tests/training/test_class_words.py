import torch

from captioning.data.vocabulary import SPECIAL, Vocabulary
from captioning.models.backbones import Classes
from captioning.training.guided_attention import ClassWords

NAMES = [["golden retriever"], ["tabby", "tabby cat"], ["siamese cat"], ["bus"], ["ocarina"]]


def class_words(*words: str) -> tuple[ClassWords, list[str]]:
    """Of these words; class c scores channel c of the annotation vectors, plus a tenth of c."""
    vocabulary = Vocabulary(words)
    classes = Classes(NAMES, torch.eye(5), torch.arange(5) / 10)
    found = ClassWords(classes, vocabulary, torch.device("cpu"))
    return found, [vocabulary.words[word - len(SPECIAL)] for word in found.words.tolist()]


def test_the_last_word_of_a_name_stands_for_the_class_in_singular_and_plural() -> None:
    words = ["a", "retriever", "golden", "cats", "tabby", "buses", "bus", "siamese", "dog"]
    _, named = class_words(*words)
    assert named == ["retriever", "cats", "tabby", "buses", "bus"]


def test_a_word_is_shown_by_whichever_of_its_classes_scores_most() -> None:
    found, named = class_words("cat", "retriever", "tabby")
    regions = torch.tensor([[[7.0, 1.0, 2.0, 9.0, 9.0], [0.0, 4.0, 3.0, 9.0, 9.0]]])
    assert named == ["cat", "retriever", "tabby"]
    expected = torch.tensor([[[2.2, 4.1], [7.0, 0.0], [1.1, 4.1]]])
    torch.testing.assert_close(found.shown(regions), expected)


def test_a_vocabulary_may_name_no_class() -> None:
    found, named = class_words("a", "golden")
    assert named == []
    assert found.shown(torch.ones(2, 3, 5)).shape == (2, 0, 3)


def test_the_scores_of_a_batch_are_those_of_each_photo_alone() -> None:
    found, _ = class_words("cat", "cats", "siamese", "tabby", "bus")
    regions = torch.randn(3, 4, 5)
    expected = torch.cat([found.shown(photo[None]) for photo in regions])
    torch.testing.assert_close(found.shown(regions), expected)
