"""A CLIP model of a few thousand random weights, as open_clip saves it."""

from pathlib import Path
from typing import Any

CONFIG: dict[str, Any] = {
    "embed_dim": 6,
    "quick_gelu": True,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 8, "head_width": 4, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 8, "heads": 2, "layers": 1},
}


def save_clip(folder: Path) -> Path:
    """Write random weights and their configuration, in open_clip's layout."""
    import torch
    from open_clip import CLIP
    from open_clip.factory import set_model_preprocess_cfg
    from open_clip.push_to_hf_hub import save_config_for_hf
    from open_clip.transform import PreprocessCfg
    from safetensors.torch import save_file

    torch.manual_seed(4)
    model = CLIP(**CONFIG)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    # So that most cosines are positive, and scores differ from 0.
    for norm, projection in (
        (model.visual.ln_post, model.visual.proj),
        (model.ln_final, model.text_projection),
    ):
        torch.nn.init.ones_(norm.bias)
        projection.data.abs_()
    set_model_preprocess_cfg(model, vars(PreprocessCfg(size=32)))
    folder.mkdir(parents=True)
    save_config_for_hf(model, folder / "open_clip_config.json", CONFIG)
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return folder
