import yaml

from captioning.models import CNNEncoder
from captioning.shelf import CONFIGS

CONFIG = CONFIGS / "coco_paper.yaml"


def test_the_papers_configuration_has_the_sizes_that_its_comment_tells() -> None:
    text = CONFIG.read_text(encoding="utf-8")
    comment = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    values = yaml.safe_load(text)
    decoder, data = values["model"]["decoder"]["init_args"], values["data"]
    assert values["model"]["encoder"]["init_args"] == {"backbone": "vgg19", "weights": "DEFAULT"}
    encoder = CNNEncoder("vgg19", weights=None)
    assert encoder.grid(data["size"], data["size"]) == (14, 14)
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    assert (
        f"14 x 14 raw annotation vectors of {encoder.annotation_dim} at {data['size']} pixels"
        in comment
    )
    assert f"embeddings and attention of {decoder['embedding_dim']}" in comment
    assert decoder["attention_dim"] == decoder["embedding_dim"]
    assert f"an LSTM of {decoder['hidden_dim']:,}" in comment
    assert "projection_dim" not in decoder
    assert f"batches of {data['batch_size']}" in comment
    objective = values["model"]["objective"]["init_args"]
    assert f"lambda {objective['attention_penalty']:.0f}" in comment
    assert objective["label_smoothing"] == 0
    assert f"beam of {values['model']['search']['init_args']['width']}" in comment
