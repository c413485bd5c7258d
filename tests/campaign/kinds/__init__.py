"""All kinds of cases."""

from tests.campaign.cases import Kind
from tests.campaign.kinds.checkpoints import CHECKPOINTS
from tests.campaign.kinds.command_lines import COMMAND_LINES
from tests.campaign.kinds.configs import CONFIGS
from tests.campaign.kinds.documents import DOCUMENTS
from tests.campaign.kinds.full_disks import FULL_DISKS
from tests.campaign.kinds.images import IMAGES
from tests.campaign.kinds.kills import KILLS
from tests.campaign.kinds.requests import REQUESTS

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
