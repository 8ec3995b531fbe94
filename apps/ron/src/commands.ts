/** Every command, with the one line that `ron --help` shows. A command is loaded when it is called. */
import type { Command } from './command.ts';

export interface Listed {
  readonly summary: string;
  readonly load: () => Promise<{ readonly default: Command }>;
}

export const COMMANDS: Readonly<Record<string, Listed>> = {
  up: { summary: 'start the network on this machine', load: () => import('./commands/up.ts') },
  put: { summary: 'store a file and print its address', load: () => import('./commands/put.ts') },
  get: { summary: 'fetch an object, every byte verified', load: () => import('./commands/get.ts') },
  stat: { summary: 'size and type of an object', load: () => import('./commands/stat.ts') },
  pin: { summary: 'keep an object when space is reclaimed', load: () => import('./commands/pin.ts') },
  unpin: { summary: 'take the pin away', load: () => import('./commands/unpin.ts') },
  volumes: { summary: 'the volumes of storage, and what becomes of them', load: () => import('./commands/volumes.ts') },
  repair: { summary: 'what is missing, and how its repair goes on', load: () => import('./commands/repair.ts') },
  scrub: { summary: 'read every stored byte and mend what is damaged', load: () => import('./commands/scrub.ts') },
  keys: { summary: 'make, rotate and list keys', load: () => import('./commands/keys.ts') },
  sign: { summary: 'sign a file with a key that never leaves kms', load: () => import('./commands/sign.ts') },
  verify: { summary: 'check the signature of a file', load: () => import('./commands/verify.ts') },
  audit: { summary: 'check the audit log of kms, byte by byte', load: () => import('./commands/audit.ts') },
  cap: { summary: 'look at capabilities, narrow, issue and revoke them', load: () => import('./commands/cap.ts') },
  config: { summary: 'print or check the configuration', load: () => import('./commands/config.ts') },
  doctor: { summary: 'check this machine and this node', load: () => import('./commands/doctor.ts') },
  completion: { summary: 'completion for your shell', load: () => import('./commands/completion.ts') },
};

export async function loadCommand(name: string): Promise<Command> {
  const { default: command } = await COMMANDS[name]!.load();
  return command;
}
