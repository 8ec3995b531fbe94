/** Brownouts begin, last and end as promised, under every schedule. */
import { test } from 'node:test';
import { assertCaught, assertHolds, mutant } from '@ron/explorer';
import { ManualMode } from './manual-mode.ts';
import { sentinelModel, type Parts, type SentinelShape } from './sentinel.model.ts';
import { Sentinel } from './sentinel.ts';
import { Upstream } from './upstream.ts';

const PARTS: Parts = { Sentinel, Upstream, ManualMode };
const SHAPES: readonly SentinelShape[] = [
  { upstream: 'healthy', manual: 'none' },
  { upstream: 'heals', manual: 'none' },
  { upstream: 'sick', manual: 'none' },
  { upstream: 'silent', manual: 'none' },
  { upstream: 'silent', manual: 'on' },
  { upstream: 'silent', manual: 'off' },
];

for (const shape of SHAPES) {
  const { upstream, manual } = shape;
  const name = `a ${upstream} upstream, manual mode ${manual}`;
  test(`[interop I-5] [interop I-8] a brownout ends exactly if the upstream recovers: ${name}`, async (t) => {
    const { schedules } = await assertHolds(sentinelModel(PARTS, shape), { name, sleepSets: true });
    t.diagnostic(`${schedules} schedules`);
  });
}

const BUGS: readonly {
  readonly bug: string;
  readonly file: keyof typeof FILES;
  readonly find: string;
  readonly replace: string;
  readonly shape: SentinelShape;
  readonly caught: 'deadlock' | 'livelock' | RegExp;
}[] = [
  {
    bug: 'the sentinel sends no probes',
    file: 'Sentinel',
    find: '!upstream.isInBreach || isSampled ||',
    replace: 'upstream.isInBreach || isSampled ||',
    shape: { upstream: 'healthy', manual: 'none' },
    caught: 'livelock',
  },
  {
    bug: 'a failed probe counts as an answer',
    file: 'Upstream',
    find: '      this.#failed(call, error);',
    replace: '      call.end();',
    shape: { upstream: 'sick', manual: 'none' },
    caught: /in spite of a bad probe/,
  },
  {
    bug: 'a probe may hang',
    file: 'Upstream',
    find: '      await deadline.run(work);\n      call.end();\n    } catch',
    replace: '      await work(deadline.signal);\n      call.end();\n    } catch',
    shape: { upstream: 'silent', manual: 'none' },
    caught: 'deadlock',
  },
  {
    bug: 'a manual mode ends only at the next evaluation',
    file: 'ManualMode',
    find: 'return isOver(current) ? AUTO.request : current.request;',
    replace: 'return current.request;',
    shape: { upstream: 'silent', manual: 'on' },
    caught: /outlives its time/,
  },
  {
    bug: 'the mode off does not stop the shedding',
    file: 'Upstream',
    find: "mode === 'on' || (mode === 'auto' && brownout.state.isActive)",
    replace: "mode === 'on' || brownout.state.isActive",
    shape: { upstream: 'silent', manual: 'off' },
    caught: /the mode off sheds/,
  },
];

const FILES = { Sentinel: './sentinel.ts', Upstream: './upstream.ts', ManualMode: './manual-mode.ts' } as const;

for (const { bug, file, find, replace, shape, caught } of BUGS)
  test(`the model catches: ${bug}`, async () => {
    const broken = await mutant<Partial<Parts>>(import.meta.resolve(FILES[file]), find, replace);
    await assertCaught(sentinelModel({ ...PARTS, [file]: broken[file] }, shape), {}, caught);
  });
