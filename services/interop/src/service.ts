/**
 * The topology of interop.
 *
 *     listener --> address, body, signature, limits --> work(256) --> sender --> mailbox --> receipt log --> 202
 *        |                                                              `--> spool --> spool_drainer --> mailbox
 *        |-------> capability, rate, brownout --> work(128) --> put_pool --> passport, storage
 *        `-------> capability, if reads need one --> work(128) --> read_pool --> storage
 *
 *     receipt_signer -----> kms signs the root of up to 128 receipts --> receipt log
 *     secret_refresh -----> kms unwraps secrets that it could not unwrap at the start
 *     brownout_sentinel --> errors and latency of storage, mailbox, passport --> brownout of each
 *     audit(512) --> audit_sink --> file, standard output; sums of refusals each second
 */
import { untilAborted } from '@ron/kernel';
import { defineService, startService, type OpenContext, type StartInit } from '@ron/service';
import { concurrency } from './concurrency.ts';
import { schema, type InteropConfig } from './config.ts';
import { eventLevel, type InteropEvent } from './events.ts';
import { openParts } from './parts.ts';
import { gatesOf } from './readiness.ts';
import { REASONS } from './reasons.ts';
import { routes } from './routes.ts';

export type InteropContext = OpenContext<InteropConfig, typeof concurrency, InteropEvent, object>;

export const interop = defineService({
  name: 'interop',
  config: schema,
  concurrency,
  eventLevel,
  async open(context: InteropContext) {
    const parts = await openParts(context);
    const { queues, sender, drainer, receipts, providers, upstreams, recorder, sink } = parts;
    return {
      routes: routes({ ...parts, ...parts.bridge, guardReads: context.config.auth.reads }),
      lanes: { read: queues.reads },
      reasons: REASONS,
      // Forged requests must not spend the rate of verified ones.
      charges_late: true,
      gates: gatesOf(parts),
      tasks: {
        read_pool: (task) => queues.reads.serve(task),
        put_pool: (task) => queues.puts.serve(task),
        sender: (task) => sender.run(task),
        spool_drainer: (task) => drainer.run(task),
        receipt_signer: (task) => receipts.run(task),
        secret_refresh: ({ signal, stopping }) => providers.run(AbortSignal.any([signal, stopping])),
        log_extents: (task) => parts.missing?.run(task) ?? untilAborted(AbortSignal.any([task.signal, task.stopping])),
        brownout_sentinel: (task) => upstreams.sentinel.run(task),
        audit_sink: ({ signal, stopping }) => sink.run(AbortSignal.any([signal, stopping])),
      },
      flush: {
        deadline_ms: 1000,
        run: () => {
          // Events of the drain itself are written too.
          recorder.recordLastSums();
          return sink.flush();
        },
      },
      // Spool and receipt log sync their last segments.
      close_ms: 6000,
      parts,
    };
  },
});

export type InteropInit = StartInit<InteropConfig>;
export type Interop = Awaited<ReturnType<typeof startInterop>>;

export function startInterop(init: InteropInit) {
  return startService(interop, init);
}
