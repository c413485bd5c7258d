"""The former place of `captioning.commands`."""

from captioning.commands import main as main
