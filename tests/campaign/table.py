"""The counts of answers of each kind, as a table in Markdown."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.campaign.cases import Answer
from tests.campaign.judge import ANSWERS, FAULTS

BEGIN, END = "<!-- counts -->", "<!-- end of counts -->"


def table(answers: Sequence[Answer]) -> str:
    """A row for each kind: how its cases ended, and how many have which fault."""
    ends = (*dict.fromkeys(ANSWERS.values()), "killed")
    head = ["kind", "cases", *ends, *FAULTS, "slowest", "most memory"]
    rows = [head, ["---", *["---:"] * (len(head) - 1)]]
    for kind in dict.fromkeys(answer.kind for answer in answers):
        cases = [answer for answer in answers if answer.kind == kind]
        ended = Counter(answer.ended for answer in cases)
        faults = Counter(
            fault
            for answer in cases
            for fault in {text.partition(":")[0] for text in answer.faults}
        )
        rows.append(
            [
                kind,
                str(len(cases)),
                *(str(ended[end]) for end in ends),
                *(str(faults[fault]) for fault in FAULTS),
                f"{max(answer.seconds for answer in cases):.1f} s",
                f"{max(answer.memory for answer in cases) / 1e9:.2f} GB",
            ]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def written_into(page: Path, counts: str) -> None:
    """Put the table into a page, between its two comments."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{counts}\n{END}{after}", encoding="utf-8")
