/** Runs a witness as this process: prints its verification key, then the ready line of a service. */
import { chmod } from 'node:fs/promises';
import { runProcess, startService } from '@ron/service';
import type { Io } from '../io.ts';
import { schema } from './config.ts';
import { witness } from './service.ts';

const UNIX = 'unix:';

/** Never returns normally: the process exits when a stop is requested. */
export async function runWitness(flags: readonly string[], io: Io): Promise<never> {
  await runProcess({
    name: 'witness',
    schema,
    argv: flags,
    env: {},
    start: async (context) => {
      const running = await startService(witness, context);
      // The signature on a submission decides; the directory of the socket limits which users can connect.
      if (running.url.startsWith(UNIX)) await chmod(running.url.slice(UNIX.length), 0o666);
      const { vkey } = running.cosigner;
      io.result(vkey, { vkey });
      await io.flushed();
      return running;
    },
  });
  throw new Error('unreachable');
}
