"""All kinds of cases."""

from tests.campaign.cases import Kind
from tests.campaign.command_lines import COMMAND_LINES

KINDS: list[Kind] = [COMMAND_LINES]
