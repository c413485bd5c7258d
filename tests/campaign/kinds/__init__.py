"""All kinds of cases."""

from tests.campaign.cases import Kind
from tests.campaign.kinds.agreements import AGREEMENTS
from tests.campaign.kinds.checkpoints import CHECKPOINTS
from tests.campaign.kinds.classes import CLASSES
from tests.campaign.kinds.command_lines import COMMAND_LINES
from tests.campaign.kinds.configs import CONFIGS
from tests.campaign.kinds.documents import DOCUMENTS
from tests.campaign.kinds.full_disks import FULL_DISKS
from tests.campaign.kinds.images import IMAGES
from tests.campaign.kinds.kills import KILLS
from tests.campaign.kinds.products import PRODUCTS
from tests.campaign.kinds.requests import REQUESTS
from tests.campaign.kinds.signals import SIGNALLED
from tests.campaign.kinds.two_writers import TWO_WRITERS
from tests.campaign.kinds.vanishing import VANISHING

KINDS: list[Kind] = [
    COMMAND_LINES,
    IMAGES,
    CONFIGS,
    CHECKPOINTS,
    DOCUMENTS,
    *KILLS,
    FULL_DISKS,
    AGREEMENTS,
    CLASSES,
    PRODUCTS,
    SIGNALLED,
    TWO_WRITERS,
    VANISHING,
    REQUESTS,
]
