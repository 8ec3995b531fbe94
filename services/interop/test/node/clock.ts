/** Moves the wall clock of all processes of a node, as a jump of the clock of its host would. */
import { once } from 'node:events';
import type { ServiceProcessInit } from '@ron/testkit/service';
import { NODE_SERVICES, type NodeService, type TestNode } from './node.ts';

const INIT: Partial<ServiceProcessInit> = {
  ipc: true,
  node_flags: ['--import', new URL('./moved-clock.ts', import.meta.url).href],
};

/** For `TestNodeInit.process`. */
export const MOVABLE: Readonly<Record<NodeService, Partial<ServiceProcessInit>>> = {
  kms: INIT,
  passport: INIT,
  storage: INIT,
  mailbox: INIT,
  interop: INIT,
};

/** Sets the distance to the real time. Resolves once every process that runs has it. */
export async function moveClock(node: TestNode, offset_ms: number): Promise<void> {
  const running = NODE_SERVICES.filter((name) => node.runs(name)).map((name) => node.process(name).child);
  await Promise.all(
    running.map(async (child) => {
      const done = once(child, 'message');
      child.send(offset_ms);
      await done;
    }),
  );
}
