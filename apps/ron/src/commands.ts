/** All commands, with their summaries for `ron --help`. The module of a command is loaded on demand. */
import type { Command } from './command.ts';

export interface Listed {
  readonly summary: string;
  readonly load: () => Promise<{ readonly default: Command }>;
}

export const COMMANDS: Readonly<Record<string, Listed>> = {
  up: { summary: 'start the network on this machine', load: () => import('./commands/up.ts') },
  put: { summary: 'store a file and print its address', load: () => import('./commands/put.ts') },
  get: { summary: 'fetch an object and verify every byte', load: () => import('./commands/get.ts') },
  stat: { summary: 'print the size and type of an object', load: () => import('./commands/stat.ts') },
  pin: { summary: 'keep an object when space is reclaimed', load: () => import('./commands/pin.ts') },
  unpin: { summary: 'remove the pin of an object', load: () => import('./commands/unpin.ts') },
  volumes: { summary: 'list and manage volumes', load: () => import('./commands/volumes.ts') },
  repair: { summary: 'show missing copies, start a repair', load: () => import('./commands/repair.ts') },
  scrub: { summary: 'read every stored byte and repair damage', load: () => import('./commands/scrub.ts') },
  name: { summary: 'publish, show and renew names of addresses', load: () => import('./commands/name.ts') },
  find: { summary: 'print the nodes that provide an object', load: () => import('./commands/find.ts') },
  pack: { summary: 'add, list and verify packs of map tiles', load: () => import('./commands/pack.ts') },
  edge: { summary: 'show the delivery cache, explain and purge it', load: () => import('./commands/edge.ts') },
  hooks: { summary: 'receive webhooks: providers, deliveries, brownout', load: () => import('./commands/hooks.ts') },
  receipt: { summary: 'fetch and verify receipts of webhooks', load: () => import('./commands/receipt.ts') },
  queue: { summary: 'send and receive messages, manage dead letters', load: () => import('./commands/queue.ts') },
  keys: { summary: 'create, rotate, export and withdraw keys', load: () => import('./commands/keys.ts') },
  sign: { summary: 'sign a file with a key that never leaves kms', load: () => import('./commands/sign.ts') },
  verify: { summary: 'verify that a trusted key signed a file', load: () => import('./commands/verify.ts') },
  audit: { summary: 'verify the audit log of kms, go on after damage', load: () => import('./commands/audit.ts') },
  witness: { summary: 'cosign the audit logs of other nodes', load: () => import('./commands/witness.ts') },
  cap: { summary: 'show, attenuate, issue and revoke capabilities', load: () => import('./commands/cap.ts') },
  net: { summary: 'invite nodes to a network, show its state', load: () => import('./commands/net.ts') },
  config: { summary: 'print or check the configuration', load: () => import('./commands/config.ts') },
  doctor: { summary: 'check this machine and this node', load: () => import('./commands/doctor.ts') },
  completion: { summary: 'print a completion script for your shell', load: () => import('./commands/completion.ts') },
};

export async function loadCommand(name: string): Promise<Command> {
  const { default: command } = await COMMANDS[name]!.load();
  return command;
}
