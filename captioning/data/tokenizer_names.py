"""Names of tokenizers; without `tokenizers`, whose patterns take long to compile."""

from typing import Literal

ScoreTokenizerName = Literal["ptb", "characters", "japanese", "chinese", "thai"]
"""Names of the tokenizers by which scores count words."""

TokenizerName = Literal[ScoreTokenizerName, "treebank", "wordpunct", "tweet"]
"""Names of tokenizers in a configuration.

- ptb: the tokenizer of the COCO caption evaluation: `do n't`, `x-ray`.
- treebank, wordpunct, tweet: NLTK's.
- characters: each character of Chinese, Japanese, Thai, Lao, Burmese and Khmer with its vowel
  signs, written without spaces, and the words of other scripts.
- japanese: the short units (mode A) of Sudachi's small dictionary; extra `ja`.
- chinese: the words of jieba with its default settings, by jieba-rs; extra `zh`.
- thai: the words of PyThaiNLP's newmm; extra `th`.

With the last four, scores count these words, so they compare only with scores by the same tokenizer
and version of its library.
"""
