"""`unida completion`: commands and options on the Tab key."""

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from unida.cli.parser import Command, list_options

BASH = """\
# Completion of unida; made by `unida completion`.
_unida() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words is_value=1
    if ((COMP_CWORD == 1)); then
        words="{commands} --help --version"
    else
        case "${{COMP_WORDS[1]}} $before" in
{values}
        *) is_value=0; case "${{COMP_WORDS[1]}}" in
{options}
            esac ;;
        esac
        ((is_value)) || [[ $word == -* ]] || words=""  # files, then
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _unida unida
"""
ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


@dataclass(frozen=True)
class Completion(Command):
    """Print a script that completes commands and options in a shell.

    Example: unida completion bash
    """

    shell: Annotated[Literal["bash", "zsh"], tyro.conf.Positional]
    """For bash, write it to ~/.local/share/bash-completion/completions/unida; for zsh, put
    `source <(unida completion zsh)` into ~/.zshrc."""

    def execute(self) -> None:
        """Print the script."""
        print((ZSH if self.shell == "zsh" else "") + bash_script(), end="")


def bash_script() -> str:
    """Return the script for bash."""
    from unida.cli.main import COMMANDS, DEBUG, VERBOSITY

    values, options = [], []
    for name, kind in COMMANDS.items():
        first, _, second = name.partition(" ")
        found = dict(list_options(kind))
        if second:
            values.append(f'        "{first} {first}") words="{second}" ;;')
        flags = " ".join([*found, "--help", *VERBOSITY, DEBUG])
        options.append(f'            {first}) words="{flags}" ;;')
        for flag, allowed in found.items():
            if allowed:
                values.append(f'        "{first} {flag}") words="{" ".join(allowed)}" ;;')
    return BASH.format(
        commands=" ".join(dict.fromkeys(name.split()[0] for name in COMMANDS)),
        values="\n".join(values),
        options="\n".join(options),
    )
