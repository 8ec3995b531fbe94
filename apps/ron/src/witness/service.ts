/**
 * The topology of a witness.
 *
 *     listener --> add-checkpoint --> cosigner (one submission at a time) --> record on disk --> cosignature
 */
import { route, text } from '@ron/ingress';
import type { AccessCheck } from '@ron/proto';
import {
  configChannel,
  declareConcurrency,
  defineService,
  SHELL_DEADLINES,
  SHELL_TASKS,
  shutdownChannel,
} from '@ron/service';
import { Cosigner, SUBMISSION_BYTES_MAX } from '@ron/tlog';
import { schema } from './config.ts';

const concurrency = declareConcurrency({
  service: 'witness',
  channels: { shutdown: shutdownChannel('config_watch'), config: configChannel('listener') },
  tasks: { config_watch: SHELL_TASKS.config_watch },
  locks: {},
  deadlines: { ...SHELL_DEADLINES, add: { ms: 5000, covers: 'one checkpoint' } },
});

/** No route requires a capability: the signature on a checkpoint decides. */
const access: AccessCheck = {
  checkHeaders: () => Promise.resolve({ ok: false, code: 'forbidden', reason: 'no route accepts a capability' }),
};

export const witness = defineService({
  name: 'witness',
  config: schema,
  concurrency,
  async open({ config, fs, resources }) {
    const { dir, logs, name } = config.witness;
    const cosigner = resources.use(await Cosigner.open({ dir, logs, name, fs }));
    const add = route({
      method: 'POST',
      path: '/add-checkpoint',
      summary: 'Cosigns a checkpoint that extends the last one of its log (C2SP tlog-witness).',
      scope: null,
      lane: 'inline',
      body: 'buffered',
      body_bytes_max: SUBMISSION_BYTES_MAX,
      deadline: 'add',
      handler: async ({ body_bytes = new Uint8Array(), deadline }) => {
        const answer = await cosigner.add(Buffer.from(body_bytes).toString('utf8'), deadline.signal);
        return text(answer.status, answer.media_type, answer.text);
      },
    });
    return { routes: [add], access, tasks: {}, parts: { cosigner } };
  },
});
