/**
 * The topology of passport.
 *
 *     listener --> issue, verify, exchange: inline, with keys that kms derived; issue waits for its entry in the audit log
 *        |-------> revoke --> registry (sealed, on disk) --> revocations (watch)
 *        |                        `--> outbox --> entry_sender --> audit log of kms
 *        `-------> long polls of services <--------------'
 */
import { NO_REVOCATIONS, signAnswer } from '@ron/auth';
import { HOLD_MS } from '@ron/auth/service';
import { LongPoll, untilAborted } from '@ron/kernel';
import { defineService, startService, type OpenContext, type StartInit } from '@ron/service';
import type { IssueEntry } from '@ron/proto';
import { openEntries, recorded } from './audit/open-entries.ts';
import { concurrency } from './concurrency.ts';
import { schema, type PassportConfig } from './config.ts';
import { Exchange } from './exchange.ts';
import { Issuer } from './issuer.ts';
import { passportCounters } from './metrics.ts';
import { RevocationRegistry } from './revocation-registry.ts';
import { openRevocationStore } from './revocation-store.ts';
import { routes } from './routes.ts';

type Context = OpenContext<PassportConfig, typeof concurrency, never, object>;

export const passport = defineService({
  name: 'passport',
  config: schema,
  concurrency,
  async open({ config, current, runtime, log, metrics, fs, env, signal, resources, openAuth }: Context) {
    const dir = config.amnesia.enabled ? undefined : config.data_dir!;
    const news = runtime.watch('revocations', NO_REVOCATIONS);
    const polls = runtime.own('holds', (capacity) => new LongPoll({ capacity, hold_ms: HOLD_MS, watch: news }));
    const auth = await openAuth({ dir, keepsMarks: true });
    const store = resources.use(await openRevocationStore({ dir, env, fs, log, auth, signal }));
    const registry = new RevocationRegistry(store, news);
    if (registry.problem !== undefined) log.error(registry.problem);
    const { append, outbox } = openEntries(config, store, log);
    const recordIssue = append && ((entry: IssueEntry, within: AbortSignal) => recorded(append, entry, within));
    const issuer = new Issuer({ keys: auth.keys, registry, policy: () => current.value.passport });

    return {
      routes: routes({
        issuer,
        exchanges: new Exchange(auth.keys, registry),
        registry,
        newerThan: (known, within) => {
          registry.requireNotRolledBack();
          return polls.next(({ version }) => version !== known, within);
        },
        sign: (poll, document, within) => signAnswer(auth.keys, poll, document, within),
        recordIssue,
        outbox,
        count: passportCounters(metrics, registry, outbox),
        log,
      }),
      epochs: registry,
      gates: {
        revocations: { kind: 'soft', sample: () => registry.problem },
        audit_entries: { kind: 'soft', sample: () => outbox?.problem },
      },
      tasks: { entry_sender: ({ stopping }) => outbox?.run(stopping) ?? untilAborted(stopping) },
      // Long polls would delay the drain.
      beforeDrain: () => polls.close(),
      parts: { registry },
    };
  },
});

export type PassportInit = StartInit<PassportConfig>;
export type Passport = Awaited<ReturnType<typeof startPassport>>;

export function startPassport(init: PassportInit) {
  return startService(passport, init);
}
