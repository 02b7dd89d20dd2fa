"""The page about the command line names what there is."""

import re
from pathlib import Path

import typer.main

from sknimo.cli._app import app

PAGE = Path(__file__).parents[2] / "docs" / "command_line.md"


def known_options(command):
    return {name for option in command.params for name in option.opts}


def test_every_option_and_command_on_the_page_exists():
    text = PAGE.read_text()
    group = typer.main.get_command(app)
    commands = group.commands
    options = set().union(known_options(group), *map(known_options, commands.values()))
    options |= {"--help"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) <= options
    assert set(re.findall(r"^\$? ?sknimo (\w+)", text, re.M)) <= commands.keys()


def test_every_command_and_option_of_fit_is_on_the_page():
    text = PAGE.read_text()
    group = typer.main.get_command(app)
    for name in group.commands:
        assert f"sknimo {name}" in text
    long = {name for name in known_options(group.commands["fit"]) if name[:2] == "--"}
    assert {name for name in long if name not in text} == set()
