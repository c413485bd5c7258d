"""Ensembles: several trained models as one, which average the probability of each word.

Shapes: B images, N captions per image, L regions, D annotation width, V vocabulary.
"""

from collections.abc import Sequence

from captioning.captioner.captioner import Captioner
from captioning.captioner.ensemble_decoder import EnsembleDecoder
from captioning.captioner.joint_encoder import JointEncoder, SideBySide
from captioning.data.feature_cache import fingerprint
from captioning.data.preprocessing import Preprocessing
from captioning.errors import InputError
from captioning.maps import ATTENTION


def ensemble(captioners: Sequence[Captioner], names: Sequence[str]) -> Captioner:
    """One captioner of several with the same vocabulary; encoders and image sizes may differ.

    Photos are read once for members with equal preprocessings, and encoded once for members with
    equal encoders. The first member's search is the default, and the map that all members show, if
    their regions are the same. The ensemble shares the members'
    parameters and cannot be saved itself: it is rebuilt from its members.

    Args:
        captioners: the members, none of them an ensemble itself.
        names: their names in errors, such as their files.

    Raises:
        InputError: a member's vocabulary differs from the first member's.
    """
    first = captioners[0]
    for name, captioner in zip(names, captioners, strict=True):
        if captioner.vocabulary != first.vocabulary:
            raise InputError(
                f"{name}: knows other words than {names[0]}; an ensemble needs models with the "
                "same vocabulary, so train them on the same captions with the same min_count"
            )
    # Encoders are equal if their architectures, parameters and preprocessings are.
    keys = [fingerprint(captioner.encoder, captioner.preprocessing) for captioner in captioners]
    distinct = dict(zip(keys, captioners, strict=True))
    if len(distinct) == 1:
        encoder, preprocessing = first.encoder, first.preprocessing
        regions = dict.fromkeys(distinct, slice(None))
        grids = None
    else:
        encoder, preprocessing = _joint(list(distinct.values()))
        regions = dict(zip(distinct, encoder.regions, strict=True))
        of_encoder = dict(zip(distinct, encoder.grids, strict=True))
        grids = [of_encoder[key] for key in keys]
    decoder = EnsembleDecoder(
        [captioner.decoder for captioner in captioners], [regions[key] for key in keys], grids
    )
    shown = {captioner.shown_map for captioner in captioners}
    return Captioner(
        *(encoder, decoder, first.vocabulary, preprocessing, first.search),
        shown_map=shown.pop() if len(shown) == 1 and grids is None else ATTENTION,
    ).eval()


def _joint(members: Sequence[Captioner]) -> tuple[JointEncoder, Preprocessing]:
    """The members' encoders as one, and its preprocessing."""
    parts = {repr(member.preprocessing.config): member.preprocessing for member in members}
    places, left = {}, 0
    for kind, part in parts.items():
        places[kind] = (left, part.size)
        left += part.size
    encoder = JointEncoder(
        [member.encoder for member in members],
        [places[repr(member.preprocessing.config)] for member in members],
    )
    alike = len(parts) == 1
    return encoder, members[0].preprocessing if alike else SideBySide(list(parts.values()))
