export * from './command.ts';
export * from './commands.ts';
export * from './docs.ts';
export * from './exits.ts';
export { runCli } from './cli.ts';
export { Io } from './io.ts';
