"""All kinds of cases."""

from tests.campaign.cases import Kind
from tests.campaign.checkpoints import CHECKPOINTS
from tests.campaign.command_lines import COMMAND_LINES
from tests.campaign.configs import CONFIGS
from tests.campaign.documents import DOCUMENTS
from tests.campaign.full_disks import FULL_DISKS
from tests.campaign.images import IMAGES
from tests.campaign.kills import KILLS
from tests.campaign.requests import REQUESTS

KINDS: list[Kind] = [
    COMMAND_LINES,
    IMAGES,
    CONFIGS,
    CHECKPOINTS,
    DOCUMENTS,
    *KILLS,
    FULL_DISKS,
    REQUESTS,
]
