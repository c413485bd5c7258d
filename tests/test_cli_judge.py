"""`captioning judge`: correlations of scores with made-up ratings in the files' own formats."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.stats import kendalltau

from captioning.cli import main
from captioning.data.tokens import tokenize
from captioning.metrics.bleu import bleu_scores
from captioning.metrics.cider import cider_scores
from captioning.metrics.rouge import rouge_scores
from captioning.shapes import captions, random_scene

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def written() -> dict[str, list[str]]:
    """Five captions of each of 40 images."""
    rng = np.random.default_rng(0)
    return {
        f"{number}.jpg": [f"{text} ." for text in captions(random_scene(rng), rng)][:5]
        for number in range(40)
    }


@pytest.fixture
def tokens(written: dict[str, list[str]], tmp_path: Path) -> str:
    lines = [
        f"{image}#{number}\t{caption}"
        for image, several in written.items()
        for number, caption in enumerate(several)
    ]
    (tmp_path / "Flickr8k.token.txt").write_text("\n".join(lines) + "\n")
    return str(tmp_path / "Flickr8k.token.txt")


def rated(written: dict[str, list[str]], count: int) -> list[tuple[str, str, int]]:
    """Images with the image and the number of a caption, at random."""
    rng = random.Random(0)
    return [
        (rng.choice([*written]), rng.choice([*written]), rng.randrange(5)) for _ in range(count)
    ]


def told(arguments: list[str], capsys: Capture) -> dict[str, dict[str, dict[str, float]]]:
    assert main(["judge", *arguments, "--json", "-"]) == 0
    found: dict[str, dict[str, dict[str, float]]] = json.loads(capsys.readouterr().out)["scores"]
    return found


def assert_scipy_agrees(
    found: dict[str, dict[str, dict[str, float]]],
    candidates: list[str],
    references: list[list[str]],
    ratings: list[float],
) -> None:
    words = [tokenize(caption) for caption in candidates]
    several = [list(map(tokenize, captions)) for captions in references]
    expected = {
        name: values
        for scorer in (bleu_scores, rouge_scores, cider_scores)
        for name, values in scorer(words, several).images.items()
    }
    assert list(found) == list(expected)
    for name, values in expected.items():
        for variant in "bc":
            tau = found[name][f"tau-{variant}"]
            correlation = kendalltau(values, ratings, variant=variant).statistic
            assert tau["value"] == pytest.approx(correlation, abs=1e-12)
            assert tau["low"] < tau["value"] < tau["high"]


def test_judgements_of_experts_have_scipy_s_correlations(
    written: dict[str, list[str]], tokens: str, tmp_path: Path, capsys: Capture
) -> None:
    rng = random.Random(1)
    lines = []
    candidates, references, ratings = [], [], []
    for image, other, number in rated(written, 130):
        given = [rng.randint(1, 4) for _ in range(3)]
        lines.append("\t".join([image, f"{other}#{number}", *map(str, given)]))
        if written[other][number] not in written[image]:
            candidates += [written[other][number]] * 3
            references += [written[image]] * 3
            ratings += given
    assert len(ratings) > 300
    (tmp_path / "ExpertAnnotations.txt").write_text("\n".join(lines))
    found = told([str(tmp_path / "ExpertAnnotations.txt"), "--references", tokens], capsys)
    assert_scipy_agrees(found, candidates, references, ratings)


def test_judgements_of_the_crowd_have_scipy_s_correlations(
    written: dict[str, list[str]], tokens: str, tmp_path: Path, capsys: Capture
) -> None:
    rng = random.Random(2)
    lines = []
    candidates, images, ratings = [], [], []
    kept = {image: list(several) for image, several in written.items()}
    for image, other, number in rated(written, 300):
        yes, no = rng.randint(0, 3), rng.randint(1, 3)
        lines.append(
            "\t".join([image, f"{other}#{number}", f"{yes / (yes + no)}", f"{yes}", f"{no}"])
        )
        candidates.append(written[other][number])
        images.append(image)
        ratings.append(yes / (yes + no))
        if candidates[-1] in kept[image]:
            kept[image].remove(candidates[-1])
    (tmp_path / "CrowdFlowerAnnotations.txt").write_text("\n".join(lines))
    found = told([str(tmp_path / "CrowdFlowerAnnotations.txt"), "--references", tokens], capsys)
    assert_scipy_agrees(found, candidates, [kept[image] for image in images], ratings)


@pytest.fixture
def few(tmp_path: Path) -> list[str]:
    """Two images of a table, of which one has a caption with two ratings."""
    (tmp_path / "ratings.csv").write_text(
        "image,caption,rating\n1,a red dog,5\n1,a red dog,1\n1,a cat,2\n2,a tree,4\n2,the sea,1\n"
    )
    annotations = [
        {"image_id": 1, "caption": "a red dog runs"},
        {"image_id": 2, "caption": "a green tree"},
    ]
    (tmp_path / "captions.json").write_text(json.dumps({"annotations": annotations}))
    return [str(tmp_path / "ratings.csv"), "--references", str(tmp_path / "captions.json")]


def test_the_mean_rating_of_a_caption_counts_once(few: list[str], capsys: Capture) -> None:
    scores = bleu_scores(
        [["a", "red", "dog"], ["a", "cat"], ["a", "tree"], ["the", "sea"]],
        [[["a", "red", "dog", "runs"]]] * 2 + [[["a", "green", "tree"]]] * 2,
    ).images["BLEU-1"]
    found = told([*few, "--mean"], capsys)["BLEU-1"]["tau-c"]["value"]
    assert found == pytest.approx(kendalltau(scores, [3, 2, 4, 1], variant="c").statistic)
    assert found != pytest.approx(told(few, capsys)["BLEU-1"]["tau-c"]["value"])


def test_a_table_a_file_and_a_picture_are_written(
    few: list[str], tmp_path: Path, capsys: Capture
) -> None:
    report, plot = tmp_path / "judge.json", tmp_path / "judge.png"
    assert main(["judge", *few, "--json", str(report), "--plot", str(plot)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[0] == "tau-b"
    assert [line.split()[0] for line in lines[1:]] == [
        *(f"BLEU-{n}" for n in range(1, 5)),
        "ROUGE-L",
        "CIDEr",
    ]
    summary = json.loads(report.read_text())
    assert (summary["ratings"], summary["pairs"], summary["images"]) == (5, 4, 2)
    with Image.open(plot) as picture:
        assert picture.format == "PNG"
        assert picture.width > 800


def test_pairs_that_are_left_out_are_told_of(tokens: str, tmp_path: Path, capsys: Capture) -> None:
    ratings = tmp_path / "ExpertAnnotations.txt"
    ratings.write_text("0.jpg\t0.jpg#1\t4\t4\t4\n0.jpg\t1.jpg#0\t1\t2\t1\n")
    assert main(["judge", str(ratings), "--references", tokens]) == 0
    assert capsys.readouterr().err == (
        "captioning: omitted 1 pairs whose caption is a reference of the image; 1 remain\n"
    )


@pytest.mark.parametrize(
    ("ratings", "expected"),
    [
        ("missing", "no such file; check the path"),
        ("captions.json", "captions.json: line 1 is not CSV"),
    ],
)
def test_bad_input_is_one_line(
    few: list[str], tmp_path: Path, ratings: str, expected: str, capsys: Capture
) -> None:
    assert main(["judge", str(tmp_path / ratings), *few[1:]]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert expected in line
