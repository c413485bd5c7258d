from captioning.data.vocabulary import BOS, EOS, UNK, Vocabulary


def test_a_caption_comes_back_from_its_ids() -> None:
    vocabulary = Vocabulary.build(["A red dog runs."])
    ids = vocabulary.encode("A red dog runs.")
    assert (ids[0], ids[-1]) == (BOS, EOS)
    assert vocabulary.decode(ids) == ("a", "red", "dog", "runs")


def test_an_unknown_word_becomes_unk() -> None:
    vocabulary = Vocabulary.build(["a dog"])
    ids = vocabulary.encode("a cat")
    assert ids[2] == UNK
    assert vocabulary.decode(ids) == ("a", "<unk>")


def test_known_words_come_first_and_stay() -> None:
    captions = ["a dog", "a dog", "a cat"]
    found = Vocabulary.build(captions, min_count=2, known=("horse", "a"))
    assert found.words == ("horse", "a", "dog")


def test_brackets_are_no_words_to_write() -> None:
    vocabulary = Vocabulary.build(["a dog (brown) runs", "a {cat} [sits]"])
    assert set(vocabulary.words) == {"a", "dog", "brown", "runs", "cat", "sits"}
    assert vocabulary.encode("a (dog)") == [
        BOS,
        *vocabulary.encode("a")[1:-1],
        UNK,
        *vocabulary.encode("dog")[1:-1],
        UNK,
        EOS,
    ]
