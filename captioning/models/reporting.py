"""Which of several maps of attention a model reports."""

from captioning.errors import InputError
from captioning.numbers import shown


class Reporting:
    """A part of a model that may have several maps of attention, and reports one of them.

    By default there is one map, with nothing to choose.
    """

    @property
    def map_names(self) -> tuple[str, ...]:
        """Names of the maps to choose from; none where there is one alone."""
        return ()

    @property
    def reported_map(self) -> str | None:
        """The name of the one that is reported; none where there is one alone."""
        return None

    def report_map(self, name: str) -> None:
        """Report another one from now on; the words stay what they are.

        Raises:
            InputError: there is no map of this name.
        """
        if not self.map_names:
            raise InputError(f"no head {shown(name)}: this model has one map of attention alone")
        if name not in self.map_names:
            raise InputError(f"no head {shown(name)}; choose from {', '.join(self.map_names)}")
