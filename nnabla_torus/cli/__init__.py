"""The command `nnabla-torus`: each subcommand is a module of this package, imported only when it is asked for.

Importing late keeps `bench` free of nnabla and the start of 64 ranks fast.
"""

from __future__ import annotations

import importlib
import sys

import click

from nnabla_torus import __version__
from nnabla_torus.failure import UserError, ending_all_ranks

# Command name -> what `nnabla-torus --help` says of it. The function of that name lives in the module of that name.
COMMANDS = {
    "train": "Train a network as a configuration says.",
    "schedule": "Print what a run would do, without running it.",
    "prepare": "Draw, index, check, mend and pack image files.",
    "export": "Write a trained network as an NNP file.",
    "bench": "Time all-reduce algorithms on the ranks that mpirun started.",
    "plan": "Draw an all-reduce on its grid: who holds which part of the sum after each phase.",
    "emulate": "Run any command over MPI on several hosts that this machine pretends to have.",
}


class LateGroup(click.Group):
    """A group that imports a subcommand's module when it is first used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command, None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"{__name__}.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LateGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="nnabla-torus")
def group() -> None:
    """Train ImageNet as it was trained in 224 seconds: 2D-torus all-reduce and batch-size control on nnabla."""


def main() -> None:
    """Run the command line; any failure ends all ranks, a user's mistake with one line and exit status 2."""
    with ending_all_ranks():
        try:
            status = group(standalone_mode=False, prog_name="nnabla-torus")
        except click.exceptions.NoArgsIsHelpError as shown:
            click.echo(shown.format_message())
            status = 0
        except click.ClickException as error:
            raise UserError(f"{error.format_message()} (see nnabla-torus --help)") from None
        except click.Abort:
            raise KeyboardInterrupt from None
    sys.exit(status if isinstance(status, int) else 0)
