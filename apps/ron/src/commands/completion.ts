/** `ron completion`: prints a completion script for a shell. */
import { usage } from '../args.ts';
import { command, COMMON_OPTIONS, type Command } from '../command.ts';
import { COMMANDS, loadCommand } from '../commands.ts';

const SHELLS = ['bash', 'zsh', 'fish'];

export default command({
  name: 'completion',
  usage: 'completion bash|zsh|fish',
  about: 'Prints a script that completes the commands and flags of ron in your shell.',
  options: {},
  args: [1, 1],
  words: SHELLS,
  examples: {
    'source <(ron completion bash)': 'add this to ~/.bashrc',
    'ron completion fish > ~/.config/fish/completions/ron.fish': 'run this once',
  },
  async run({ args: [shell], io }) {
    if (shell === undefined || !SHELLS.includes(shell))
      throw usage({ name: 'completion' }, `expected one of ${SHELLS.join(', ')}`);
    const commands = await Promise.all(Object.keys(COMMANDS).map(loadCommand));
    const script = shell === 'fish' ? fish(commands) : shell === 'zsh' ? zsh(commands) : bash(commands);
    io.result(script, { shell, script });
  },
});

const flagsOf = (each: Command): string[] =>
  Object.keys({ ...each.options, ...COMMON_OPTIONS }).map((name) => `--${name}`);

function bash(commands: readonly Command[]): string {
  const cases = commands.map(
    (each) => `    ${each.name}) words="${[...flagsOf(each), ...(each.words ?? [])].join(' ')}" ;;`,
  );
  return [
    '_ron() {',
    '  local current="${COMP_WORDS[COMP_CWORD]}" words',
    '  case "${COMP_WORDS[1]}" in',
    ...cases,
    '  esac',
    `  if [ "$COMP_CWORD" -eq 1 ]; then words="${commands.map(({ name }) => name).join(' ')}"; fi`,
    '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
    '}',
    'complete -o default -F _ron ron',
  ].join('\n');
}

function zsh(commands: readonly Command[]): string {
  return `autoload -U +X bashcompinit && bashcompinit\n${bash(commands)}`;
}

function fish(commands: readonly Command[]): string {
  const names = Object.entries(COMMANDS).map(
    ([name, { summary }]) => `complete -c ron -n __fish_use_subcommand -f -a ${name} -d '${summary}'`,
  );
  const flags = commands.flatMap((each) => {
    const here = `complete -c ron -n '__fish_seen_subcommand_from ${each.name}'`;
    return [
      ...flagsOf(each).map((flag) => `${here} -l ${flag.slice(2)}`),
      ...(each.words ?? []).map((word) => `${here} -f -a ${word}`),
    ];
  });
  return [...names, ...flags].join('\n');
}
