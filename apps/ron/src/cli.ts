/**
 * Finds the command, reads its arguments, runs it, and turns whatever happens into an exit code.
 */
import { nearest } from '@ron/config/nearest';
import { parse } from './args.ts';
import type { Command } from './command.ts';
import { COMMANDS, loadCommand } from './commands.ts';
import { CliError, EXITS, type Exit } from './exits.ts';
import { commandHelp, generalHelp } from './help.ts';
import type { Io } from './io.ts';

const VERSION = '0.1.0';

/** The exit code. */
export async function runCli(argv: readonly string[], io: Io): Promise<number> {
  io.json = isJsonAsked(argv);
  try {
    // Also before the command: `ron --json help` and `ron help --json` are the same.
    const exit = await dispatch(argv[0] === '--json' ? argv.slice(1) : argv, io);
    await io.flushed();
    return EXITS[exit].code;
  } catch (error) {
    return EXITS[io.error(error)].code;
  }
}

/** Also before the arguments are understood: a mistake in them is told the way that was asked for. */
const isJsonAsked = (argv: readonly string[]): boolean =>
  argv.slice(0, argv.includes('--') ? argv.indexOf('--') : argv.length).includes('--json');

async function dispatch(argv: readonly string[], io: Io): Promise<Exit> {
  const [name, ...rest] = argv;
  const isGeneral = rest.every((word) => word === '--json');
  if (name === undefined) {
    io.note(generalHelp());
    return 'usage';
  }
  if (name === '--help' || name === '-h' || (name === 'help' && isGeneral)) {
    io.result(generalHelp(), { commands: Object.keys(COMMANDS) });
    return 'ok';
  }
  if (name === '--version') {
    io.result(`ron ${VERSION}`, { version: VERSION });
    return 'ok';
  }
  if (name === 'help') return await run(rest[0]!, ['--help'], io);
  return await run(name, rest, io);
}

async function run(name: string, argv: readonly string[], io: Io): Promise<Exit> {
  if (!Object.hasOwn(COMMANDS, name)) throw unknownCommand(name);
  const command = await loadCommand(name);
  const { values, args } = parse(command, argv);
  if (values.help === true) {
    io.result(commandHelp(command), { usage: `ron ${command.usage}`, about: command.about });
    return 'ok';
  }
  return await withSignals(command, async (signal) => await command.run({ values, args, io, signal }));
}

function unknownCommand(name: string): CliError {
  const meant = nearest(name, Object.keys(COMMANDS));
  const hint = meant === undefined ? '' : `: did you mean \`ron ${meant}\`?`;
  const quoted = JSON.stringify(name);
  return new CliError('usage', `unknown command ${quoted}${hint}\n     \`ron --help\` lists the commands`);
}

/** Ctrl-C ends the wait, and the command says what can be done; a second one ends the process. */
async function withSignals(command: Command, work: (signal: AbortSignal) => Promise<Exit | void>): Promise<Exit> {
  const controller = new AbortController();
  if (command.ownSignals === true) return (await work(controller.signal)) ?? 'ok';
  let ended: Exit | undefined;
  const listen = (signal: NodeJS.Signals, exit: Exit): void => {
    process.once(signal, () => {
      ended = exit;
      controller.abort(new CliError(exit, 'interrupted'));
    });
  };
  listen('SIGINT', 'interrupted');
  listen('SIGTERM', 'terminated');
  try {
    return (await work(controller.signal)) ?? 'ok';
  } catch (error) {
    // Whatever broke because of the signal: the signal is why.
    if (ended !== undefined && !(error instanceof CliError)) throw new CliError(ended, 'interrupted');
    throw error;
  }
}
