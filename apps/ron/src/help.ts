/** Renders help texts from the command tables. */
import { COMMON_OPTIONS, type Command, type Option } from './command.ts';
import { COMMANDS } from './commands.ts';

const EXAMPLES = `examples:
  ron up                       start all services
  ron put photo.jpg            print its address, b3:...
  ron get b3:... -o photo.jpg  fetch and verify it`;

export function generalHelp(): string {
  const width = Math.max(...Object.keys(COMMANDS).map((name) => name.length));
  const lines = Object.entries(COMMANDS).map(([name, { summary }]) => `  ${name.padEnd(width)}  ${summary}`);
  return [
    'ron: a private content network',
    '',
    'usage: ron COMMAND [arguments]',
    '',
    ...lines,
    '',
    EXAMPLES,
    '',
    'Run `ron COMMAND --help` for details. Exit codes and files: docs/cli.md.',
  ].join('\n');
}

export function commandHelp(command: Command): string {
  const options = Object.entries<Option>({ ...command.options, ...COMMON_OPTIONS }).map(([name, option]) => {
    const short = option.short === undefined ? '' : `-${option.short}, `;
    const value = option.type === 'boolean' ? '' : ` ${option.value ?? 'VALUE'}`;
    return [`  ${short}--${name}${value}`, option.doc] as const;
  });
  const width = Math.max(...options.map(([left]) => left.length));
  const examples = Object.entries(command.examples);
  const examplesWidth = Math.max(0, ...examples.map(([left]) => left.length));
  return [
    `usage: ron ${command.usage}`,
    '',
    command.about,
    '',
    ...options.map(([left, doc]) => `${left.padEnd(width)}  ${doc}`),
    '',
    'examples:',
    ...examples.map(([left, doc]) => `  ${left.padEnd(examplesWidth)}  ${doc}`),
  ].join('\n');
}
