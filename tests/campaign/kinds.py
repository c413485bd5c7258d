"""All kinds of cases."""

from tests.campaign.cases import Kind
from tests.campaign.checkpoints import CHECKPOINTS
from tests.campaign.command_lines import COMMAND_LINES
from tests.campaign.configs import CONFIGS
from tests.campaign.documents import DOCUMENTS
from tests.campaign.images import IMAGES

KINDS: list[Kind] = [COMMAND_LINES, IMAGES, CONFIGS, CHECKPOINTS, DOCUMENTS]
