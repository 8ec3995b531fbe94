/**
 * Finds the command, parses its arguments, runs it, and maps the outcome to an exit code.
 */
import { nearest } from '@ron/config/nearest';
import { parse } from './args.ts';
import type { Command } from './command.ts';
import { COMMANDS, loadCommand } from './commands.ts';
import { CliError, EXITS, type Exit } from './exits.ts';
import { commandHelp, generalHelp } from './help.ts';
import type { Io } from './io.ts';

const VERSION = '0.1.0';

/** Returns the exit code. */
export async function runCli(argv: readonly string[], io: Io): Promise<number> {
  io.json = wantsJson(argv);
  try {
    // `ron --json help` and `ron help --json` are equivalent.
    const exit = await dispatch(argv[0] === '--json' ? argv.slice(1) : argv, io);
    await io.flushed();
    return EXITS[exit].code;
  } catch (error) {
    return EXITS[io.error(error)].code;
  }
}

/** Decided before the arguments are parsed, so that a usage error is printed as JSON too. */
const wantsJson = (argv: readonly string[]): boolean =>
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
  return new CliError('usage', `unknown command ${quoted}${hint}\n     run \`ron --help\` for the list of commands`);
}

/** The first Ctrl-C aborts the command, which reports how to continue; the second one kills the process. */
async function withSignals(command: Command, work: (signal: AbortSignal) => Promise<Exit | void>): Promise<Exit> {
  const controller = new AbortController();
  if (command.ownSignals === true) return (await work(controller.signal)) ?? 'ok';
  let ended: Exit | undefined;
  using listeners = new DisposableStack();
  const listen = (signal: NodeJS.Signals, exit: Exit): void => {
    const abort = (): void => {
      ended = exit;
      controller.abort(new CliError(exit, 'interrupted'));
    };
    process.once(signal, abort);
    listeners.defer(() => void process.off(signal, abort));
  };
  listen('SIGINT', 'interrupted');
  listen('SIGTERM', 'terminated');
  try {
    return (await work(controller.signal)) ?? 'ok';
  } catch (error) {
    // Errors after a signal are a consequence of it: report the signal.
    if (ended !== undefined && !(error instanceof CliError)) throw new CliError(ended, 'interrupted');
    throw error;
  }
}
